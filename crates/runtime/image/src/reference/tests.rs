use super::*;

#[test]
fn references_get_their_defaults() {
    let digest = format!("sha256:{}", "ab".repeat(32));
    let table = [
        ("python", "docker.io/library/python:latest"),
        ("python:3.12-slim", "docker.io/library/python:3.12-slim"),
        ("opensandbox/code-interpreter:v1.0.1", "docker.io/opensandbox/code-interpreter:v1.0.1"),
        ("docker.io/python", "docker.io/library/python:latest"),
        ("index.docker.io/a/b", "docker.io/a/b:latest"),
        ("localhost/app", "localhost/app:latest"),
        ("localhost:5000/app:1", "localhost:5000/app:1"),
        ("127.0.0.1:5000/a/b/c", "127.0.0.1:5000/a/b/c:latest"),
        ("[::1]:5000/app", "[::1]:5000/app:latest"),
        ("registry.example.com/team/app__x--y.z:V_1", "registry.example.com/team/app__x--y.z:V_1"),
        (&format!("app@{digest}"), &format!("docker.io/library/app@{digest}")),
        (&format!("r.io/app:1@{digest}"), &format!("r.io/app:1@{digest}")),
    ];
    for (given, expected) in table {
        assert_eq!(Reference::parse(given).expect(given).to_string(), expected);
    }
}

#[test]
fn the_digest_wins_over_the_tag_and_docker_hub_has_an_api_host() {
    let digest = format!("sha256:{}", "0".repeat(64));
    let both = Reference::parse(&format!("app:1@{digest}")).unwrap();
    assert_eq!(
        (both.target(), both.tag(), both.api_host()),
        (&*digest, Some("1"), "registry-1.docker.io")
    );
    assert_eq!(both.digest(), Some(&*digest));
}

#[test]
fn what_is_no_reference_is_refused_with_a_remedy() {
    let long = "a".repeat(513);
    let table = [
        ("", "empty"),
        (long.as_str(), "longer than"),
        ("https://docker.io/python", "scheme"),
        ("Python", "lower-case"),
        ("a b", "lower-case"),
        ("a//b", "lower-case"),
        ("a/../b", "lower-case"),
        ("-a", "lower-case"),
        ("a-", "lower-case"),
        ("a._b", "lower-case"),
        ("a___b", "lower-case"),
        ("a:.tag", "tag"),
        ("a:", "tag"),
        ("a@sha256:abc", "sha256"),
        ("a@md5:abc", "sha256"),
        ("host.io:0/a", "port"),
        ("host.io:99999/a", "port"),
        ("[::1/a", "IPv6"),
        ("ho_st.io/a", "host name"),
        ("oci:/etc", "port"),
        ("archive:/etc/image.tar", "port"),
        ("/etc/passwd", "lower-case"),
    ];
    for (given, remedy) in table {
        let error = Reference::parse(given).expect_err(given);
        assert_eq!(error.kind(), crate::ErrorKind::Invalid);
        assert!(error.to_string().contains(remedy), "{given:?}: {error}");
    }
}

#[test]
fn loopback_is_recognised_with_and_without_ports() {
    for host in
        ["localhost", "localhost:5000", "127.0.0.1", "127.9.9.9:1", "[::1]:5000", "a.localhost"]
    {
        assert!(is_loopback(host), "{host}");
    }
    for host in ["docker.io", "128.0.0.1", "localhost.example.com", "[::2]:1", "10.0.0.1:5000"] {
        assert!(!is_loopback(host), "{host}");
    }
}
