//! The image `code-interpreter`: made once on this machine, in the background.

use std::path::PathBuf;
use std::time::Duration;

use atoll_image::Addition;
use atoll_template::{BuiltIn, Progress};
use tokio::sync::watch;

use crate::config::{Config, RuntimeKind};

/// What the image and the template are called, and what E2B's clients call it.
const NAME: &str = "code-interpreter";
const ALIAS: &str = "code-interpreter-v1";
/// Minutes between tries to make it; the last for all that follow.
const PAUSES_MINUTES: [u64; 4] = [1, 5, 15, 60];

/// How far it is, for those who want sandboxes of it.
pub(crate) struct Interpreter {
    image: watch::Receiver<Addition>,
    template: watch::Receiver<Progress>,
}

impl Interpreter {
    /// Takes what an earlier server has made, or begins to make it.
    pub(crate) fn start(config: &Config) -> Self {
        let begin = Addition::Building("not begun".to_owned());
        let (image_told, image) = watch::channel(begin);
        let (template_told, template) = watch::channel(Progress::Building("not begun".to_owned()));
        let telling = Telling { image: image_told, template: template_told };
        let default = || config.data_dir.join(NAME);
        let folder = config.code_interpreter.folder.clone().unwrap_or_else(default);
        let tree = folder.join(atoll_interpreter_image::recipe_digest());
        // A simulated runtime mounts nothing, so that there is nothing to make.
        if config.runtime.kind == RuntimeKind::Sim {
            telling.ready(tree);
            return Self { image, template };
        }
        let found = tree.is_dir().then(|| atoll_interpreter_image::prepare_folder(&folder));
        match found {
            Some(Ok(())) => telling.ready(tree),
            // What is wrong with the folder may be mended while that is tried.
            _ if config.code_interpreter.build => drop(tokio::spawn(make(telling, tree))),
            Some(Err(error)) => {
                let why = causes(&error);
                tracing::warn!(image = NAME, error = why, "can't be used");
                telling.failed(&format!("{why}; then restart the server"));
            }
            None => {
                telling.failed("its building is switched off: set code_interpreter.build = true");
            }
        }
        Self { image, template }
    }

    /// The image's name and how far it is.
    pub(crate) fn image(&self) -> (String, watch::Receiver<Addition>) {
        (NAME.to_owned(), self.image.clone())
    }

    /// The template that stands for the image.
    pub(crate) fn template(&self) -> BuiltIn {
        BuiltIn {
            name: NAME.to_owned(),
            aliases: vec![ALIAS.to_owned()],
            image: NAME.to_owned(),
            state: self.template.clone(),
        }
    }
}

/// Tells the image store and the templates the same.
struct Telling {
    image: watch::Sender<Addition>,
    template: watch::Sender<Progress>,
}

impl Telling {
    fn building(&self, doing: &str) {
        tracing::info!(image = NAME, "{doing}");
        self.image.send_replace(Addition::Building(doing.to_owned()));
        self.template.send_replace(Progress::Building(doing.to_owned()));
    }

    fn ready(&self, tree: PathBuf) {
        let env = atoll_interpreter_image::environment();
        self.image.send_replace(Addition::Ready { tree, env });
        self.template.send_replace(Progress::Ready);
    }

    fn failed(&self, why: &str) {
        self.image.send_replace(Addition::Failed(why.to_owned()));
        self.template.send_replace(Progress::Failed(why.to_owned()));
    }
}

/// Makes the image, however often that must be tried: what is missing may come, a registry that
/// doesn't answer may answer again.
async fn make(telling: Telling, tree: PathBuf) {
    for tries in 0_usize.. {
        match atoll_interpreter_image::build(&tree, |doing| telling.building(doing)).await {
            Ok(()) => {
                tracing::info!(image = NAME, "ready");
                return telling.ready(tree);
            }
            Err(error) => {
                let (why, pause) = (causes(&error), pause_after(tries));
                tracing::warn!(image = NAME, error = why, "can't be built");
                let minutes = pause.as_secs() / 60;
                telling.failed(&format!("{why}; it is tried again after {minutes} min"));
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// How long to wait after so many tries have failed before.
fn pause_after(tries: usize) -> Duration {
    Duration::from_secs(60 * PAUSES_MINUTES[tries.min(PAUSES_MINUTES.len() - 1)])
}

/// What an error says, and all that led to it.
fn causes(error: &dyn std::error::Error) -> String {
    std::iter::successors(error.source(), |cause| cause.source())
        .fold(error.to_string(), |said, cause| format!("{said}: {cause}"))
}

#[cfg(test)]
mod tests;
