//! Which headers pass, and in which form.

use std::net::IpAddr;

use http::header::{self, HeaderMap, HeaderName, HeaderValue};

use crate::forward::{Credentials, Forwarding};

/// Meant for one connection only, by RFC 9110 and by habit.
const HOP_BY_HOP: [HeaderName; 8] = [
    header::CONNECTION,
    HeaderName::from_static("keep-alive"),
    header::PROXY_AUTHENTICATE,
    header::PROXY_AUTHORIZATION,
    header::TE,
    header::TRAILER,
    header::TRANSFER_ENCODING,
    header::UPGRADE,
];

/// Keys to our own doors, and words meant for us: no sandbox may ever see them.
const OURS: [HeaderName; 7] = [
    HeaderName::from_static("open-sandbox-api-key"),
    HeaderName::from_static("open-sandbox-client-ip"),
    HeaderName::from_static("opensandbox-secure-access"),
    HeaderName::from_static("opensandbox-ingress-to"),
    HeaderName::from_static("opensandbox-access-renew"),
    HeaderName::from_static("x-api-key"),
    header::EXPECT,
];

/// What a client can't be trusted to say about itself.
const FORWARDED: [HeaderName; 5] = [
    header::FORWARDED,
    HeaderName::from_static("x-forwarded-for"),
    HeaderName::from_static("x-forwarded-host"),
    HeaderName::from_static("x-forwarded-proto"),
    HeaderName::from_static("x-real-ip"),
];

/// What may repeat the caller's API key: the Go SDK puts it in the last one.
const CREDENTIALS: [HeaderName; 3] =
    [header::AUTHORIZATION, header::COOKIE, HeaderName::from_static("x-execd-access-token")];

/// The protocol a request wants to change to, if it wants to.
pub(crate) fn upgrade_of(headers: &HeaderMap) -> Option<HeaderValue> {
    let asks = connection_tokens(headers).any(|token| token.eq_ignore_ascii_case("upgrade"));
    asks.then(|| headers.get(header::UPGRADE).cloned()).flatten()
}

/// Turns a client's headers into what the sandbox gets.
pub(crate) fn for_sandbox(headers: &mut HeaderMap, forwarding: &Forwarding, host: HeaderValue) {
    let asked_host = headers.get(header::HOST).cloned();
    drop_hop_by_hop(headers);
    for name in OURS.iter().chain(&FORWARDED) {
        headers.remove(name);
    }
    if forwarding.credentials == Credentials::Drop {
        for name in &CREDENTIALS {
            headers.remove(name);
        }
    }
    headers.insert(header::HOST, host);
    if let Some(value) = forwarding.client.and_then(address) {
        headers.insert("x-forwarded-for", value);
    }
    if let Some(value) = asked_host {
        headers.insert("x-forwarded-host", value);
    }
    headers.insert("x-forwarded-proto", HeaderValue::from_static("http"));
}

/// Turns a sandbox's headers into what the client gets.
pub(crate) fn for_client(headers: &mut HeaderMap, prefix: &str) {
    drop_hop_by_hop(headers);
    let moved = headers
        .get(header::LOCATION)
        .and_then(|value| value.to_str().ok())
        .filter(|location| location.starts_with('/') && !location.starts_with("//"))
        .and_then(|location| HeaderValue::try_from(format!("{prefix}{location}")).ok());
    if let Some(value) = moved {
        headers.insert(header::LOCATION, value);
    }
}

/// Says in `headers` that the connection changes to `protocol`.
pub(crate) fn mark_upgrade(headers: &mut HeaderMap, protocol: HeaderValue) {
    headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(header::UPGRADE, protocol);
}

fn drop_hop_by_hop(headers: &mut HeaderMap) {
    let named: Vec<HeaderName> = connection_tokens(headers)
        .filter_map(|token| HeaderName::from_bytes(token.as_bytes()).ok())
        .collect();
    for name in HOP_BY_HOP.iter().chain(&named) {
        headers.remove(name);
    }
}

fn connection_tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(str::trim)
}

fn address(ip: IpAddr) -> Option<HeaderValue> {
    HeaderValue::try_from(ip.to_canonical().to_string()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn forwarding(credentials: Credentials) -> Forwarding {
        Forwarding { prefix: "/p".into(), credentials, client: Some(IpAddr::from([10, 1, 2, 3])) }
    }

    fn map(pairs: &[(&'static str, &'static str)]) -> HeaderMap {
        pairs
            .iter()
            .map(|(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value)))
            .collect()
    }

    #[test]
    fn a_sandbox_sees_neither_our_keys_nor_what_a_client_claims_about_itself() {
        let mut headers = map(&[
            ("host", "box.example"),
            ("open-sandbox-api-key", "k"),
            ("opensandbox-secure-access", "t"),
            ("x-forwarded-for", "1.1.1.1"),
            ("forwarded", "for=1.1.1.1"),
            ("authorization", "Bearer k"),
            ("cookie", "a=b"),
            ("connection", "close, x-secret"),
            ("x-secret", "1"),
            ("x-kept", "1"),
        ]);
        for_sandbox(
            &mut headers,
            &forwarding(Credentials::Drop),
            HeaderValue::from_static("localhost:1"),
        );
        let expected = map(&[
            ("host", "localhost:1"),
            ("x-forwarded-for", "10.1.2.3"),
            ("x-forwarded-host", "box.example"),
            ("x-forwarded-proto", "http"),
            ("x-kept", "1"),
        ]);
        assert_eq!(headers, expected);
    }

    #[test]
    fn a_direct_route_keeps_the_service_s_own_credentials() {
        let mut headers = map(&[("authorization", "Bearer x"), ("cookie", "a=b")]);
        for_sandbox(&mut headers, &forwarding(Credentials::Keep), HeaderValue::from_static("h"));
        assert!(headers.contains_key("authorization") && headers.contains_key("cookie"));
    }

    #[test]
    fn only_root_relative_locations_move_below_the_prefix() {
        for (location, expected) in [
            ("/login?x=1", "/p/login?x=1"),
            ("//elsewhere/x", "//elsewhere/x"),
            ("http://elsewhere/", "http://elsewhere/"),
            ("next", "next"),
        ] {
            let mut headers = map(&[("location", location)]);
            for_client(&mut headers, "/p");
            assert_eq!(headers["location"], expected);
        }
    }
}
