use super::*;

#[test]
fn challenges_are_understood() {
    let bearer = |realm: &str, service: Option<&str>| {
        Some(Challenge::Bearer { realm: realm.into(), service: service.map(Into::into) })
    };
    let table = [
        (r#"Basic realm="x""#, Some(Challenge::Basic)),
        ("basic", Some(Challenge::Basic)),
        (
            r#"Bearer realm="https://a/token",service="reg, istry",scope="repository:x:pull""#,
            bearer("https://a/token", Some("reg, istry")),
        ),
        (r#"bearer realm="a\"b""#, bearer("a\"b", None)),
        ("Bearer realm=plain , service=s", bearer("plain", Some("s"))),
        (r#"Bearer service="s""#, None),
        (r#"Bearer realm="unclosed"#, None),
        ("Digest realm=x", None),
        ("", None),
    ];
    for (text, expected) in table {
        assert_eq!(parse(text), expected, "{text}");
    }
}

#[test]
fn a_token_is_preferred_to_a_password() {
    let mut headers = HeaderMap::new();
    headers.append("www-authenticate", "Basic realm=x".parse().unwrap());
    headers.append("www-authenticate", "Bearer realm=y".parse().unwrap());
    assert!(matches!(Challenge::from_headers(&headers), Some(Challenge::Bearer { .. })));
}
