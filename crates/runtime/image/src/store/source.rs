//! Where the image of a name comes from.

use crate::{AdditionState, Config, Error, Reference, local::LocalSource};
use std::collections::BTreeMap;

/// Names of the image made from this host.
const HOST_NAMES: [&str; 2] = ["host", "base"];

/// One place an image comes from.
#[derive(Debug, Clone)]
pub(super) enum Source {
    Host,
    Addition { name: String, state: AdditionState },
    Local { alias: String, source: LocalSource },
    Registry(Reference),
}

impl Source {
    /// What clients may write: the host image or a registry reference.
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        if HOST_NAMES.contains(&text) {
            return Ok(Self::Host);
        }
        Reference::parse(text).map(Self::Registry)
    }

    /// Canonical name, under which the image is kept.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Host => HOST_NAMES[0].to_owned(),
            Self::Addition { name, .. } => name.clone(),
            Self::Local { alias, .. } => alias.clone(),
            Self::Registry(reference) => reference.to_string(),
        }
    }

    pub(super) fn takes_credentials(&self) -> bool {
        matches!(self, Self::Registry(_))
    }
}

/// Names that mean something here: images made on this machine, and the operator's aliases, which
/// alone may name host paths.
pub(super) fn named(config: &Config) -> Result<BTreeMap<String, Source>, Error> {
    let addition = |(name, state): (&String, &AdditionState)| {
        (name.clone(), Source::Addition { name: name.clone(), state: state.clone() })
    };
    let mut sources: BTreeMap<_, _> = config.additions.iter().map(addition).collect();
    for (alias, target) in &config.aliases {
        let unusable =
            |reason: String| Error::Configuration { field: format!("aliases.{alias}"), reason };
        let source = match LocalSource::parse(target) {
            Some(local) => Source::Local { alias: alias.clone(), source: local.map_err(unusable)? },
            None if sources.contains_key(target) => sources[target].clone(),
            None => Source::parse(target).map_err(|e| unusable(e.to_string()))?,
        };
        sources.insert(alias.clone(), source);
    }
    Ok(sources)
}
