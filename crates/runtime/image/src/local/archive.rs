//! The format of `docker save`: `manifest.json`, a configuration and layer tars.

use super::{LocalContents, place::Place};
use crate::{Error, digest::Digest, oci};
use serde::Deserialize;

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SavedImage {
    config: String,
    #[serde(default)]
    repo_tags: Option<Vec<String>>,
    layers: Vec<String>,
}

pub(super) fn resolve(place: &Place, tag: Option<&str>) -> Result<LocalContents, Error> {
    let image = place.image.as_str();
    if !place.has("manifest.json") {
        let reason = "it has neither index.json nor manifest.json, so it is not an image";
        return Err(place.unreadable(reason.into()));
    }
    let bytes = place.read("manifest.json", oci::MANIFEST_BYTES_MAX)?;
    let saved: Vec<SavedImage> = serde_json::from_slice(&bytes)
        .map_err(|e| Error::malformed(image, format!("its manifest.json is not valid: {e}")))?;
    let chosen = by_tag(place, &saved, tag)?;
    let bytes = place.read(&chosen.config, oci::CONFIG_BYTES_MAX)?;
    let (config, diff_ids) = oci::config(image, &bytes)?;
    if diff_ids.len() != chosen.layers.len() {
        let reason = "its manifest and configuration disagree about the number of layers";
        return Err(Error::malformed(image, reason));
    }
    let mut layers = Vec::new();
    for (diff_id, name) in diff_ids.into_iter().zip(&chosen.layers) {
        layers.push((diff_id, place.section(name)?));
    }
    // The format has no manifest digest; the configuration's identifies the image as Docker does.
    Ok(LocalContents { digest: Digest::of(&bytes).to_string(), config, layers })
}

fn by_tag<'a>(
    place: &Place,
    saved: &'a [SavedImage],
    tag: Option<&str>,
) -> Result<&'a SavedImage, Error> {
    let Some(tag) = tag else {
        return match saved {
            [only] => Ok(only),
            [] => Err(place.not_found()),
            _ => Err(place.unreadable("it holds several images: add :tag to the alias".into())),
        };
    };
    let ending = format!(":{tag}");
    let tagged =
        |image: &&SavedImage| image.repo_tags.iter().flatten().any(|name| name.ends_with(&ending));
    saved.iter().find(tagged).ok_or_else(|| place.not_found())
}
