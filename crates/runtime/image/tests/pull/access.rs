//! Who gets which image.

use crate::{
    fixture::{Shelf, TestImage, layer},
    registry::{PASSWORD, Registry, USERNAME},
    server::{Reply, Server, contents, found},
};
use atoll_image::{Auth, ErrorKind};

#[tokio::test(flavor = "multi_thread")]
async fn a_private_image_is_only_for_who_knows_the_password() {
    let (registry, shelf) = (Registry::with_password(), Shelf::new());
    registry.push("secret", "v1", &TestImage::new(&[layer(&[("a", "a")])])).await;
    let reference = registry.reference("secret:v1");
    let refuse = async |username: &str, password: &str| {
        let error = shelf.pull_as(&reference, username, password).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Unauthorized);
        let text = error.to_string();
        assert!(text.contains(&reference) && text.contains("wrong username or password"), "{text}");
        assert!(!text.contains("guess"), "{text}");
    };
    refuse(USERNAME, "guess").await;
    let anonymous = shelf.pull(&reference).await.unwrap_err();
    assert_eq!(anonymous.kind(), ErrorKind::Unauthorized);
    assert!(anonymous.to_string().contains("image.auth"), "{anonymous}");
    shelf.assert_empty();

    let image = shelf.pull_as(&reference, USERNAME, PASSWORD).await.unwrap();
    // Now it is present, and still private.
    refuse(USERNAME, "guess").await;
    refuse("stranger", PASSWORD).await;
    assert_eq!(shelf.pull(&reference).await.unwrap_err().kind(), ErrorKind::Unauthorized);
    assert!(shelf.store.cached(&reference).is_none());
    assert!(!shelf.store.list()[0].public);
    assert_eq!(shelf.pull_as(&reference, USERNAME, PASSWORD).await.unwrap(), image);

    // Without the registry, only who proved himself before is served.
    drop(registry);
    assert_eq!(shelf.pull_as(&reference, USERNAME, PASSWORD).await.unwrap(), image);
    let unproved = shelf.pull_as(&reference, USERNAME, "guess").await.unwrap_err();
    assert_eq!(unproved.kind(), ErrorKind::Unreachable);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_pulled_with_needless_credentials_becomes_public_when_the_registry_says_so() {
    let server = Server::registry(&[("app", "v1", &TestImage::new(&[layer(&[("a", "a")])]))]);
    let shelf = Shelf::new();
    let reference = server.reference("app:v1");
    shelf.pull_as(&reference, "someone", "anything").await.unwrap();
    assert!(shelf.store.cached(&reference).is_none());
    shelf.pull(&reference).await.unwrap();
    assert!(shelf.store.cached(&reference).is_some());
    assert_eq!(server.count("GET", "/manifests/v1"), 1);
    assert_eq!(server.count("HEAD", "/manifests/v1"), 1);
}

/// Username `user` and password `right` as an `Authorization` header.
const RIGHT: &str = "Basic dXNlcjpyaWdodA==";

#[tokio::test(flavor = "multi_thread")]
async fn tokens_are_fetched_and_credentials_stay_with_the_registry() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let content = contents(&[("app", "v1", &image)]);
    let storage = Server::start({
        let content = content.clone();
        move |request| found(&content, &request.path)
    });
    let tokens = Server::start(|request| match request.authorization.as_deref() {
        Some(RIGHT) => Reply::ok(r#"{"token": "letmein"}"#),
        _ => Reply::status(401, "{}"),
    });
    let (realm, elsewhere) = (tokens.host.clone(), storage.host.clone());
    let registry = Server::start(move |request| {
        if request.authorization.as_deref() != Some("Bearer letmein") {
            let challenge = format!(r#"Bearer realm="http://{realm}/token",service="s v""#);
            return Reply::status(401, "{}").header("www-authenticate", challenge);
        }
        if request.path.contains("/blobs/") {
            let place = format!("http://{elsewhere}{}", request.path);
            return Reply::status(307, "").header("location", place);
        }
        found(&content, &request.path)
    });
    let shelf = Shelf::new();
    let reference = registry.reference("app:v1");
    let wrong = shelf.pull_as(&reference, "user", "wrong").await.unwrap_err();
    assert_eq!(wrong.kind(), ErrorKind::Unauthorized);
    shelf.pull_as(&reference, "user", "right").await.unwrap();
    assert!(tokens.requests()[0].path.ends_with("service=s+v&scope=repository%3Aapp%3Apull"));
    assert!(registry.requests().iter().all(|r| r.authorization.as_deref() != Some(RIGHT)));
    assert!(storage.requests().len() >= 2);
    assert!(storage.requests().iter().all(|request| request.authorization.is_none()));
}

#[test]
fn passwords_do_not_show() {
    let auth = Auth { username: "user".into(), password: "hunter2".into() };
    assert!(!format!("{auth:?}").contains("hunter2"));
}
