//! The OCI image layout: `index.json` and blobs by digest.

use super::{LocalContents, place::Place};
use crate::{
    Error,
    digest::Digest,
    oci::{self, Descriptor},
};

const INDEX_DEPTH_MAX: usize = 3;
const NAME: &str = "org.opencontainers.image.ref.name";
const FULL_NAME: &str = "io.containerd.image.name";

pub(super) fn resolve(place: &Place, tag: Option<&str>) -> Result<LocalContents, Error> {
    let image = place.image.as_str();
    let index = oci::document(image, &place.read("index.json", oci::MANIFEST_BYTES_MAX)?)?;
    let manifests = index.manifests.unwrap_or_default();
    let mut chosen = by_tag(place, &manifests, tag)?.clone();
    for _ in 0..INDEX_DEPTH_MAX {
        let digest = chosen.digest(image)?;
        let document = oci::document(image, &blob(place, &digest, oci::MANIFEST_BYTES_MAX)?)?;
        match &document.manifests {
            Some(manifests) => chosen = oci::choose(image, manifests)?.clone(),
            None => return contents(place, &digest, &document),
        }
    }
    Err(Error::malformed(image, "its manifest lists are nested too deeply"))
}

fn contents(
    place: &Place,
    digest: &Digest,
    document: &oci::Document,
) -> Result<LocalContents, Error> {
    let image = place.image.as_str();
    let config = document
        .config
        .as_ref()
        .ok_or_else(|| Error::malformed(image, "its manifest has no configuration"))?;
    let bytes = blob(place, &config.digest(image)?, oci::CONFIG_BYTES_MAX)?;
    let (config, diff_ids) = oci::config(image, &bytes)?;
    if diff_ids.len() != document.layers.len() {
        let reason = "its manifest and configuration disagree about the number of layers";
        return Err(Error::malformed(image, reason));
    }
    let mut layers = Vec::new();
    for (diff_id, layer) in diff_ids.into_iter().zip(&document.layers) {
        layers.push((diff_id, place.section(&blob_name(&layer.digest(image)?))?));
    }
    Ok(LocalContents { digest: digest.to_string(), config, layers })
}

/// The manifest with the tag, or the only one when no tag is asked for.
fn by_tag<'a>(
    place: &Place,
    manifests: &'a [Descriptor],
    tag: Option<&str>,
) -> Result<&'a Descriptor, Error> {
    let Some(tag) = tag else {
        return match manifests {
            [only] => Ok(only),
            [] => Err(place.not_found()),
            several if several.iter().all(|d| !d.annotations.contains_key(NAME)) => {
                oci::choose(&place.image, several)
            }
            _ => Err(place.unreadable("it holds several images: add :tag to the alias".into())),
        };
    };
    let named = |descriptor: &&Descriptor| {
        let named = |key| descriptor.annotations.get(key).map(String::as_str);
        named(NAME) == Some(tag)
            || named(FULL_NAME)
                .is_some_and(|name| name.rsplit_once(':').is_some_and(|n| n.1 == tag))
    };
    manifests.iter().find(named).ok_or_else(|| place.not_found())
}

fn blob_name(digest: &Digest) -> String {
    format!("blobs/sha256/{}", digest.hex())
}

fn blob(place: &Place, digest: &Digest, bytes_max: u64) -> Result<Vec<u8>, Error> {
    let bytes = place.read(&blob_name(digest), bytes_max)?;
    let actual = Digest::of(&bytes);
    if actual == *digest {
        return Ok(bytes);
    }
    Err(Error::Digest {
        image: place.image.clone(),
        what: blob_name(digest),
        expected: digest.to_string(),
        actual: actual.to_string(),
    })
}
