//! Image references: `[registry[:port]/]repository[:tag][@sha256:digest]`.

use crate::{Error, digest::Digest};
use std::{fmt, net::IpAddr};

#[cfg(test)]
mod tests;

const REFERENCE_LEN_MAX: usize = 512;
const TAG_LEN_MAX: usize = 128;
const DOCKER_HUB: &str = "docker.io";

/// A parsed image reference with defaults filled in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Reference {
    registry: String,
    repository: String,
    tag: Option<String>,
    digest: Option<String>,
}

impl Reference {
    /// Parses a reference as clients write it; `python` means `docker.io/library/python:latest`.
    pub fn parse(text: &str) -> Result<Self, Error> {
        parse(text).map_err(|reason| Error::Reference {
            reference: text.chars().take(600).collect(),
            reason,
        })
    }

    /// Host and port of the registry as named in the reference.
    pub fn registry(&self) -> &str {
        &self.registry
    }

    /// Repository inside the registry.
    pub fn repository(&self) -> &str {
        &self.repository
    }

    /// Tag, unless only a digest was given.
    pub fn tag(&self) -> Option<&str> {
        self.tag.as_deref()
    }

    /// Digest the manifest must have.
    pub fn digest(&self) -> Option<&str> {
        self.digest.as_deref()
    }

    /// The digest if there is one, otherwise the tag: what to ask the registry for.
    pub(crate) fn target(&self) -> &str {
        self.digest.as_deref().or(self.tag.as_deref()).unwrap_or("latest")
    }

    /// Host and port that serve the registry's API.
    pub(crate) fn api_host(&self) -> &str {
        if self.registry == DOCKER_HUB { "registry-1.docker.io" } else { &self.registry }
    }
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.registry, self.repository)?;
        if let Some(tag) = &self.tag {
            write!(f, ":{tag}")?;
        }
        match &self.digest {
            Some(digest) => write!(f, "@{digest}"),
            None => Ok(()),
        }
    }
}

/// Whether `host[:port]` is this machine, so that plain HTTP leaks nothing.
pub(crate) fn is_loopback(host: &str) -> bool {
    let name = host_name(host);
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn host_name(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split(']').next().unwrap_or(rest);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

fn parse(text: &str) -> Result<Reference, String> {
    if text.is_empty() {
        return Err("it is empty; write it as name:tag".into());
    }
    if text.len() > REFERENCE_LEN_MAX {
        return Err(format!("it is longer than {REFERENCE_LEN_MAX} characters"));
    }
    if text.contains("://") {
        return Err("leave out the scheme such as https:// or docker://".into());
    }
    let (named, digest) = match text.split_once('@') {
        None => (text, None),
        Some((named, digest)) => {
            let digest = Digest::parse(digest)
                .ok_or("the part after @ must be sha256: and 64 lower-case hexadecimal digits")?;
            (named, Some(digest.to_string()))
        }
    };
    let (name, tag) = match named.rsplit_once(':') {
        Some((name, tag)) if !tag.contains('/') => (name, Some(tag)),
        _ => (named, None),
    };
    if let Some(tag) = tag {
        check_tag(tag)?;
    }
    let (registry, path) = split_registry(name);
    let registry = match registry {
        "index.docker.io" | "registry-1.docker.io" => DOCKER_HUB,
        other => other,
    };
    check_registry(registry)?;
    check_path(path)?;
    let repository = if registry == DOCKER_HUB && !path.contains('/') {
        format!("library/{path}")
    } else {
        path.to_owned()
    };
    let tag = match (tag, &digest) {
        (Some(tag), _) => Some(tag.to_owned()),
        (None, Some(_)) => None,
        (None, None) => Some("latest".to_owned()),
    };
    Ok(Reference { registry: registry.to_owned(), repository, tag, digest })
}

fn split_registry(name: &str) -> (&str, &str) {
    match name.split_once('/') {
        Some((first, rest)) if first.contains(['.', ':', '[']) || first == "localhost" => {
            (first, rest)
        }
        _ => (DOCKER_HUB, name),
    }
}

fn check_tag(tag: &str) -> Result<(), String> {
    let word = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
    let valid = tag.len() <= TAG_LEN_MAX
        && tag.bytes().next().is_some_and(word)
        && tag.bytes().all(|b| word(b) || b == b'.' || b == b'-');
    if valid {
        return Ok(());
    }
    Err(format!(
        "the tag must be 1 to {TAG_LEN_MAX} letters, digits, '_', '.' or '-' and not start with '.' or '-'"
    ))
}

fn check_registry(registry: &str) -> Result<(), String> {
    let name = host_name(registry);
    let port = match registry.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((_, "")) => None,
            Some((_, after)) => Some(after.strip_prefix(':').unwrap_or("none")),
            None => return Err("the registry's IPv6 address lacks its closing ']'".into()),
        },
        None => registry.split_once(':').map(|(_, port)| port),
    };
    if port.is_some_and(|port| port.parse::<u16>().map_or(true, |number| number == 0)) {
        return Err("the registry's port must be a number from 1 to 65535".into());
    }
    let valid = if registry.starts_with('[') {
        name.parse::<std::net::Ipv6Addr>().is_ok()
    } else {
        let label = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
        name.split('.').all(|part| {
            !part.is_empty()
                && !part.starts_with('-')
                && !part.ends_with('-')
                && part.bytes().all(label)
        })
    };
    if valid {
        Ok(())
    } else {
        Err("the registry must be a host name with an optional port".into())
    }
}

fn check_path(path: &str) -> Result<(), String> {
    let word = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    let separator =
        |run: &str| matches!(run, "" | "." | "_" | "__") || run.bytes().all(|b| b == b'-');
    // Splitting at the words leaves the separators between them.
    let valid = path.split('/').all(|part| {
        part.starts_with(word) && part.ends_with(word) && part.split(word).all(separator)
    });
    if valid {
        return Ok(());
    }
    Err("the name must be lower-case letters and digits, joined by '.', '_', '-' or '/'".into())
}
