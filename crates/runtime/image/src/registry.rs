//! Pulling from registries that speak the OCI distribution protocol.

mod blob;
mod challenge;
mod http;
mod session;

use crate::{
    Auth, Config, Error, ImageConfig, Limits, Reference,
    digest::Digest,
    oci::{self, Document},
    reference::is_loopback,
};
use http::Http;
use reqwest::{Method, Url};
pub(crate) use session::Session;
use std::{collections::BTreeMap, sync::Arc};

/// Indexes may point at indexes, but not for ever.
const INDEX_DEPTH_MAX: usize = 3;

/// What an image consists of.
#[derive(Debug)]
pub(crate) struct Contents {
    pub(crate) digest: Digest,
    pub(crate) config: ImageConfig,
    pub(crate) layers: Vec<LayerBlob>,
}

/// One layer as it is stored in a registry.
#[derive(Debug, Clone)]
pub(crate) struct LayerBlob {
    pub(crate) diff_id: Digest,
    pub(crate) blob: Digest,
    pub(crate) size: u64,
}

/// All registries, reached by the operator's rules.
#[derive(Clone)]
pub(crate) struct Registries {
    http: Arc<Http>,
    mirrors: Arc<BTreeMap<String, Vec<Url>>>,
    insecure: Arc<Vec<String>>,
    limits: Limits,
}

impl Registries {
    pub(crate) fn new(config: &Config) -> Result<Self, Error> {
        let mut mirrors = BTreeMap::new();
        for (registry, given) in &config.mirrors {
            let parsed: Result<Vec<Url>, Error> =
                given.iter().map(|mirror| mirror_url(config, registry, mirror)).collect();
            mirrors.insert(registry.clone(), parsed?);
        }
        Ok(Self {
            http: Arc::new(Http::new(&config.limits)),
            mirrors: Arc::new(mirrors),
            insecure: Arc::new(config.insecure_registries.clone()),
            limits: config.limits.clone(),
        })
    }

    /// Places to ask for an image, in order; credentials go to the registry itself only.
    pub(crate) fn sessions(
        &self,
        reference: &Reference,
        auth: Option<&Auth>,
    ) -> Result<Vec<Session>, Error> {
        let mut bases = Vec::new();
        if auth.is_none() {
            bases.extend(self.mirrors.get(reference.registry()).into_iter().flatten().cloned());
        }
        bases.push(self.base(reference)?);
        let session = |base| {
            let (http, limits) = (Arc::clone(&self.http), self.limits.clone());
            Session::new(http, limits, base, reference, auth.cloned())
        };
        Ok(bases.into_iter().map(session).collect())
    }

    fn base(&self, reference: &Reference) -> Result<Url, Error> {
        let host = reference.api_host();
        let insecure = is_loopback(host)
            || self.insecure.iter().any(|known| known == host || known == reference.registry());
        let scheme = if insecure { "http" } else { "https" };
        Url::parse(&format!("{scheme}://{host}/")).map_err(|e| Error::Reference {
            reference: reference.to_string(),
            reason: format!("the registry is not a usable host: {e}"),
        })
    }
}

fn mirror_url(config: &Config, registry: &str, mirror: &str) -> Result<Url, Error> {
    let insecure = is_loopback(mirror) || config.insecure_registries.iter().any(|r| r == mirror);
    let mut text = match mirror.contains("://") {
        true => mirror.to_owned(),
        false => format!("{}://{mirror}", if insecure { "http" } else { "https" }),
    };
    if !text.ends_with('/') {
        text.push('/');
    }
    let unusable =
        |reason: String| Error::Configuration { field: format!("mirrors.{registry}"), reason };
    let url =
        Url::parse(&text).map_err(|e| unusable(format!("{mirror:?} is not a host or URL: {e}")))?;
    if !matches!(url.scheme(), "http" | "https") || url.host().is_none() {
        return Err(unusable(format!("{mirror:?} must be a host or an http(s) URL")));
    }
    Ok(url)
}

impl Session {
    /// Finds out what the image consists of.
    pub(crate) async fn resolve(&self) -> Result<Contents, Error> {
        let image = self.image();
        let (digest, document) = self.manifest().await?;
        let config = document
            .config
            .as_ref()
            .ok_or_else(|| Error::malformed(image, "its manifest has no configuration"))?;
        let config = config.digest(image)?;
        let bytes = self.small(&format!("blobs/{config}"), None, oci::CONFIG_BYTES_MAX).await?;
        check(image, "the configuration", &config, &bytes)?;
        let (config, diff_ids) = oci::config(image, &bytes)?;
        if diff_ids.len() != document.layers.len() {
            let reason = "its manifest and configuration disagree about the number of layers";
            return Err(Error::malformed(image, reason));
        }
        let layer = |(diff_id, layer): (Digest, &oci::Descriptor)| {
            Ok(LayerBlob { diff_id, blob: layer.digest(image)?, size: layer.size })
        };
        let layers = diff_ids.into_iter().zip(&document.layers).map(layer);
        let layers = layers.collect::<Result<_, Error>>()?;
        Ok(Contents { digest, config, layers })
    }

    /// Asks whether these credentials may pull the image, without pulling it.
    pub(crate) async fn authorise(&self) -> Result<(), Error> {
        let path = format!("manifests/{}", self.target());
        self.request(Method::HEAD, &path, Some(oci::MANIFEST_TYPES)).await.map(drop)
    }

    async fn manifest(&self) -> Result<(Digest, Document), Error> {
        let image = self.image();
        let mut target = self.target().to_owned();
        for _ in 0..INDEX_DEPTH_MAX {
            let path = format!("manifests/{target}");
            let accept = Some(oci::MANIFEST_TYPES);
            let bytes = self.small(&path, accept, oci::MANIFEST_BYTES_MAX).await?;
            let digest = match Digest::parse(&target) {
                Some(expected) => {
                    check(image, "the manifest", &expected, &bytes)?;
                    expected
                }
                None => Digest::of(&bytes),
            };
            let document = oci::document(image, &bytes)?;
            match &document.manifests {
                Some(manifests) => {
                    target = oci::choose(image, manifests)?.digest(image)?.to_string()
                }
                None => return Ok((digest, document)),
            }
        }
        Err(Error::malformed(image, "its manifest lists are nested too deeply"))
    }
}

fn check(image: &str, what: &str, expected: &Digest, bytes: &[u8]) -> Result<(), Error> {
    let actual = Digest::of(bytes);
    if actual == *expected {
        return Ok(());
    }
    Err(Error::Digest {
        image: image.to_owned(),
        what: what.to_owned(),
        expected: expected.to_string(),
        actual: actual.to_string(),
    })
}
