//! What a build starts from.

use atoll_core::Error;

use super::{BASE, Failure, Work};
use crate::log::Level;
use crate::recipe::Ground;
use crate::record::{Made, Setting, Source};

/// The SDKs' own base image, which our base stands in for.
const STOCK_BASE: &str = "e2bdev/base";

impl Work {
    /// Sets out from what the recipe names; answers what stands for it in the cache.
    pub(super) async fn prepare(&mut self, from: &Ground) -> Result<Vec<String>, Failure> {
        BASE.clone_into(&mut self.step);
        match from {
            Ground::Image(reference, auth) => {
                self.note(BASE.to_owned(), Level::Info, &format!("[base] FROM {reference}"));
                if is_stock_base(reference) {
                    let said = format!("{reference} is this server's own base image");
                    self.note(BASE.to_owned(), Level::Info, &said);
                    return self.built_in(BASE).await;
                }
                if self.shop.built_ins.iter().any(|built_in| built_in.image == *reference) {
                    return self.built_in(reference).await;
                }
                self.auth.clone_from(auth);
                let source = Source::Image(reference.clone());
                let setting = Setting::default();
                self.made = Made { source, setting, start: None, ready: None, foreign: true };
                // Its accounts are completed in the first builder.
                self.changed = true;
                Ok(vec!["image".to_owned(), reference.clone()])
            }
            Ground::Template(reference) => {
                self.note(
                    BASE.to_owned(),
                    Level::Info,
                    &format!("[base] FROM template {reference}"),
                );
                let found = self.shop.find_ready(&self.tenant, reference).await;
                let found = found.map_err(self.because("fromTemplate"))?;
                let made = found.build.made.clone();
                let made = made.ok_or_else(|| self.failure("fromTemplate: it has no result"))?;
                self.made = made;
                self.pin();
                Ok(vec!["build".to_owned(), found.build.id.clone()])
            }
        }
    }

    async fn built_in(&mut self, image: &str) -> Result<Vec<String>, Failure> {
        let known = self.shop.built_ins.iter().find(|built_in| built_in.image == image);
        let waited = match known {
            Some(built_in) => built_in.wait(self.shop.config.built_in_patience).await,
            None => Err(Error::not_found(format_args!("the built-in image {image}"))),
        };
        waited.map_err(self.because("fromImage"))?;
        self.made = Made::of_image(image);
        Ok(vec!["image".to_owned(), image.to_owned()])
    }
}

fn is_stock_base(reference: &str) -> bool {
    let name = reference.strip_prefix("docker.io/").unwrap_or(reference);
    let rest = name.strip_prefix(STOCK_BASE);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([':', '@']))
}

#[cfg(test)]
mod tests {
    use super::is_stock_base;

    #[test]
    fn only_the_stock_base_image_is_replaced() {
        for yes in ["e2bdev/base", "e2bdev/base:latest", "docker.io/e2bdev/base@sha256:00"] {
            assert!(is_stock_base(yes), "{yes}");
        }
        for no in ["e2bdev/baseline", "ubuntu:24.04", "mirror.test/e2bdev/base", "e2bdev/code"] {
            assert!(!is_stock_base(no), "{no}");
        }
    }
}
