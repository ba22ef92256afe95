//! Which port of which sandbox a request means.

use atoll_core::SandboxId;
use axum::http::{HeaderMap, Uri, header};

use super::{ACCESS_TOKEN, ENVD_PORT, INTERPRETER_PORT, SANDBOX_ID, SANDBOX_PORT};
use crate::lifecycle::extract::sandbox_id;
use crate::lifecycle::state::DoorConfig;

/// Shortest id that is taken for one in a host name of a domain that nobody configured, so that
/// hosts such as `10-0-0-1.example` stay what they are.
const HOST_ID_BYTES_MIN: usize = 12;

/// What a request means.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found {
    /// No sandbox: a route of the server.
    Elsewhere,
    /// A port of a sandbox.
    Port(Entry),
    /// A signed link to a file, of a sandbox yet to be found.
    SignedFile,
    /// A call to the in-sandbox API with nothing but a token, of a sandbox yet to be found.
    Token(String),
    /// It tries to name a sandbox; what is wrong with that.
    Malformed(&'static str),
}

/// A port of a sandbox, and what to ask it for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) id: SandboxId,
    /// The id as it is told back to clients.
    pub(super) shown: String,
    pub(super) port: u16,
    /// The part of the path that is ours.
    pub(super) ours: String,
    /// The rest, raw, with the query.
    pub(super) rest: String,
}

impl Entry {
    pub(super) fn new(id: SandboxId, port: u16, ours: String, rest: String) -> Self {
        // A base URL that ends in a slash makes clients write two.
        let rest = match port {
            ENVD_PORT | INTERPRETER_PORT => format!("/{}", rest.trim_start_matches('/')),
            _ => rest,
        };
        Self { shown: id.as_str().to_owned(), id, port, ours, rest }
    }

    /// The path without its query.
    pub(super) fn path(&self) -> &str {
        self.rest.split('?').next().unwrap_or_default()
    }
}

/// Finds out what a request means.
pub(super) fn find(config: &DoorConfig, headers: &HeaderMap, uri: &Uri) -> Found {
    let text = |name| headers.get(name).map(|value| value.to_str().unwrap_or_default());
    match (text(SANDBOX_ID), text(SANDBOX_PORT)) {
        (Some(_), Some(port)) if is_control(uri, port) => return Found::Elsewhere,
        (Some(id), Some(port)) => {
            return entry(id, port, String::new(), path_and_query(uri));
        }
        (Some(_), None) => return Found::Malformed("missing header: e2b-sandbox-port"),
        (None, Some(_)) => return Found::Malformed("missing header: e2b-sandbox-id"),
        (None, None) => {}
    }
    if let Some((port, id)) = text(header::HOST).and_then(|host| by_host(config, host)) {
        return entry(id, port, String::new(), path_and_query(uri));
    }
    if let Some(found) = by_path(uri) {
        return found;
    }
    let path = uri.path().trim_start_matches('/');
    match text(ACCESS_TOKEN) {
        Some(token) if is_envd(path) => Found::Token(token.to_owned()),
        _ if path == "files" => Found::SignedFile,
        _ => Found::Elsewhere,
    }
}

/// SDKs of 2025 send the headers of their last sandbox with calls to the control API too. The
/// in-sandbox API has no such paths, so these can't be meant for it.
fn is_control(uri: &Uri, port: &str) -> bool {
    let path = uri.path().trim_start_matches('/');
    let is_sandboxes = ["sandboxes/", "v2/sandboxes/"].iter().any(|root| path.starts_with(root));
    is_sandboxes && port.parse() == Ok(ENVD_PORT)
}

/// SDKs of 2025 leave the headers out once they connected to a sandbox that was there before;
/// their token tells which one they mean.
fn is_envd(path: &str) -> bool {
    ["files", "files/compose", "health", "metrics", "envs"].contains(&path)
        || path.starts_with("process.Process/")
        || path.starts_with("filesystem.Filesystem/")
}

/// The raw path with its query.
pub(super) fn path_and_query(uri: &Uri) -> String {
    uri.path_and_query().map_or_else(|| "/".to_owned(), ToString::to_string)
}

fn entry(id: &str, port: &str, ours: String, rest: String) -> Found {
    let Some(id) = sandbox_id(id) else {
        return Found::Malformed("invalid sandbox id: write a-z and 0-9");
    };
    match port.parse() {
        Ok(port) if port != 0 => Found::Port(Entry::new(id, port, ours, rest)),
        Ok(_) | Err(_) => Found::Malformed("invalid sandbox port: ports go from 1 to 65535"),
    }
}

/// `<port>-<id>.<domain>`.
fn by_host<'a>(config: &DoorConfig, host: &'a str) -> Option<(&'a str, &'a str)> {
    let (label, domain) = host.split_once('.')?;
    let (port, id) = label.split_once('-')?;
    if port.is_empty() || port.len() > 5 || !port.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let bare = id.split('-').next().unwrap_or_default();
    let ours = match &config.domain {
        Some(configured) => without_port(domain).eq_ignore_ascii_case(without_port(configured)),
        None => bare.len() >= HOST_ID_BYTES_MIN,
    };
    (ours && sandbox_id(bare).is_some()).then_some((port, id))
}

fn without_port(host: &str) -> &str {
    host.split(':').next().unwrap_or_default()
}

/// `/kruise/<id>/<port>/…`.
fn by_path(uri: &Uri) -> Option<Found> {
    let path = uri.path().strip_prefix("/kruise/")?;
    let mut parts = path.splitn(3, '/');
    let (id, port) = (parts.next()?, parts.next().unwrap_or_default());
    if id == "api" || id.is_empty() {
        return None;
    }
    let rest = parts.next().unwrap_or_default();
    let rest = match uri.query() {
        Some(query) => format!("/{rest}?{query}"),
        None => format!("/{rest}"),
    };
    Some(entry(id, port, format!("/kruise/{id}/{port}"), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ID: &str = "0abcdefghjkm";

    fn find_in(config: &DoorConfig, headers: &[(&str, &str)], uri: &str) -> Found {
        let headers = headers
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()))
            .collect::<HeaderMap>();
        find(config, &headers, &uri.parse().unwrap())
    }

    fn port(port: u16, ours: &str, rest: &str) -> Found {
        let id = SandboxId::parse(ID).unwrap();
        Found::Port(Entry::new(id, port, ours.to_owned(), rest.to_owned()))
    }

    #[test]
    fn headers_name_a_port_and_both_are_needed() {
        let config = DoorConfig::default();
        let both = [("e2b-sandbox-id", ID), ("e2b-sandbox-port", "8080")];
        assert_eq!(find_in(&config, &both, "/a%2Fb?x=1"), port(8080, "", "/a%2Fb?x=1"));
        let suffixed = [("e2b-sandbox-id", "0abcdefghjkm-old"), ("e2b-sandbox-port", "49983")];
        assert_eq!(
            find_in(&config, &suffixed, "//process.Process/Start"),
            port(49983, "", "/process.Process/Start")
        );
        for headers in [
            &[("e2b-sandbox-id", ID)][..],
            &[("e2b-sandbox-port", "1")],
            &[("e2b-sandbox-id", "A"), ("e2b-sandbox-port", "1")],
            &[("e2b-sandbox-id", ID), ("e2b-sandbox-port", "0")],
            &[("e2b-sandbox-id", ID), ("e2b-sandbox-port", "65536")],
        ] {
            let found = find_in(&config, headers, "/");
            assert!(matches!(found, Found::Malformed(_)), "{headers:?}: {found:?}");
        }
    }

    #[test]
    fn calls_to_the_control_api_stay_there_whatever_headers_old_clients_send() {
        let config = DoorConfig::default();
        let envd = [("e2b-sandbox-id", ID), ("e2b-sandbox-port", "49983")];
        let path = format!("/sandboxes/{ID}/connect");
        assert_eq!(find_in(&config, &envd, &path), Found::Elsewhere);
        let own = [("e2b-sandbox-id", ID), ("e2b-sandbox-port", "8080")];
        assert_eq!(find_in(&config, &own, &path), port(8080, "", &path));
    }

    #[test]
    fn hosts_name_a_port_below_our_domain() {
        let open = DoorConfig::default();
        let host = format!("8080-{ID}.localhost:3000");
        assert_eq!(find_in(&open, &[("host", &host)], "/x"), port(8080, "", "/x"));
        for other in ["10-0-0-1.example", "localhost:3000", "127.0.0.1:3000", "a-b.example", "8-x"]
        {
            assert_eq!(find_in(&open, &[("host", other)], "/x"), Found::Elsewhere, "{other}");
        }
        let own = DoorConfig { domain: Some("box.example:3000".into()), ..DoorConfig::default() };
        let ours = format!("8080-{ID}.BOX.example:3000");
        assert_eq!(find_in(&own, &[("host", &ours)], "/x"), port(8080, "", "/x"));
        assert_eq!(find_in(&own, &[("host", &host)], "/x"), Found::Elsewhere);
    }

    #[test]
    fn paths_of_openkruise_name_a_port_but_not_the_api() {
        let config = DoorConfig::default();
        let ours = format!("/kruise/{ID}/80");
        for (path, rest) in [("", "/"), ("/", "/"), ("/a//b?q", "/a//b?q"), ("?q=1", "/?q=1")] {
            let found = find_in(&config, &[], &format!("{ours}{path}"));
            assert_eq!(found, port(80, &ours, rest), "{path}");
        }
        assert_eq!(find_in(&config, &[], "/kruise/api/sandboxes"), Found::Elsewhere);
        assert!(matches!(find_in(&config, &[], "/kruise/x"), Found::Malformed(_)));
    }

    #[test]
    fn links_and_calls_of_old_name_no_sandbox() {
        let config = DoorConfig::default();
        assert_eq!(find_in(&config, &[], "/files?path=a&signature=v1_x"), Found::SignedFile);
        assert_eq!(find_in(&config, &[], "//files?path=a"), Found::SignedFile);
        assert_eq!(find_in(&config, &[], "/sandboxes?signature=v1_x"), Found::Elsewhere);
        let token = [("x-access-token", "t")];
        for path in ["/files?path=a", "/health", "//process.Process/Start"] {
            assert_eq!(find_in(&config, &token, path), Found::Token("t".into()), "{path}");
        }
        assert_eq!(find_in(&config, &token, "/sandboxes"), Found::Elsewhere);
        assert_eq!(find_in(&config, &[], "/health"), Found::Elsewhere);
    }
}
