//! Registries that fail, lie or are not there.

use crate::{
    fixture::{Shelf, TestImage, digest, layer},
    registry::Registry,
    server::{Reply, Server, contents, found},
};
use atoll_image::{Error, ErrorKind};
use std::{
    net::TcpListener,
    sync::atomic::{AtomicUsize, Ordering},
};

#[tokio::test(flavor = "multi_thread")]
async fn a_closed_port_is_named_with_the_image() {
    let host = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let shelf = Shelf::with(|config| config.limits.attempts_max = 1);
    let error = shelf.pull(&format!("{host}/app:v1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    let text = error.to_string();
    assert!(text.contains(&format!("image {host}/app:v1")), "{text}");
    assert!(
        text.contains(&format!("registry {host} is unreachable: Connection refused")),
        "{text}"
    );
    shelf.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_missing_tag_or_repository_is_not_found() {
    let (registry, shelf) = (Registry::open(), Shelf::new());
    registry.push("app", "v1", &TestImage::new(&[layer(&[("a", "a")])])).await;
    for name in ["app:v2", "other:v1"] {
        let error = shelf.pull(&registry.reference(name)).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound);
        let text = error.to_string();
        assert!(text.contains(name) && text.contains(&registry.host), "{text}");
    }
    shelf.assert_empty();
}

/// A server whose replies for the layer's blob are changed.
fn spoiled(image: &TestImage, spoil: impl Fn(&mut Reply) + Send + Sync + 'static) -> Server {
    let content = contents(&[("app", "v1", image)]);
    let blob = digest(&image.layers[0].blob);
    Server::start(move |request| {
        let mut reply = found(&content, &request.path);
        if request.path.ends_with(&blob) {
            spoil(&mut reply);
        }
        reply
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_download_leaves_nothing() {
    let image = TestImage::new(&[layer(&[("a", &"content ".repeat(9000))])]);
    let server = spoiled(&image, |reply| reply.sent /= 2);
    let shelf = Shelf::with(|config| config.limits.attempts_max = 2);
    let error = shelf.pull(&server.reference("app:v1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unreachable);
    assert!(error.to_string().contains("broke off"), "{error}");
    assert_eq!(server.count("GET", &digest(&image.layers[0].blob)), 2, "it is tried again once");
    shelf.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn blobs_of_the_wrong_size_or_content_are_refused() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let shelf = Shelf::with(|config| config.limits.attempts_max = 1);
    let short = spoiled(&image, |reply| {
        reply.body.pop();
        reply.sent = reply.body.len();
    });
    let error = shelf.pull(&short.reference("app:v1")).await.unwrap_err();
    assert!(error.to_string().contains("fewer than"), "{error}");
    let long = spoiled(&image, |reply| {
        reply.body.push(0);
        reply.sent = reply.body.len();
    });
    let error = shelf.pull(&long.reference("app:v1")).await.unwrap_err();
    assert!(error.to_string().contains("more than"), "{error}");
    let other = spoiled(&image, |reply| reply.body[20] ^= 1);
    let error = shelf.pull(&other.reference("app:v1")).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
    assert_eq!(error.kind(), ErrorKind::Invalid);
    shelf.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_unpacks_to_something_else_leaves_nothing() {
    let mut lie = layer(&[("a", "a")]);
    lie.diff_id = digest(b"something else");
    let server = Server::registry(&[("app", "v1", &TestImage::new(&[lie]))]);
    let shelf = Shelf::new();
    let error = shelf.pull(&server.reference("app:v1")).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
    shelf.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_manifest_that_is_not_the_digest_asked_for_is_refused() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let manifest = image.manifest.clone();
    let server = Server::start(move |_| Reply::ok(manifest.clone()));
    let shelf = Shelf::new();
    let asked = digest(b"another manifest");
    let error = shelf.pull(&server.reference(&format!("app@{asked}"))).await.unwrap_err();
    assert!(matches!(error, Error::Digest { .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_passing_failure_is_tried_again() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let content = contents(&[("app", "v1", &image)]);
    let asked = AtomicUsize::new(0);
    let server = Server::start(move |request| match asked.fetch_add(1, Ordering::SeqCst) {
        0 => Reply::status(503, ""),
        _ => found(&content, &request.path),
    });
    Shelf::new().pull(&server.reference("app:v1")).await.unwrap();
    assert_eq!(server.count("GET", "/manifests/v1"), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_over_the_limits_are_refused_before_they_are_downloaded() {
    let layers = [layer(&[("a", "a")]), layer(&[("b", "b")])];
    let image = TestImage::new(&layers);
    let server = Server::registry(&[("app", "v1", &image)]);
    let many = Shelf::with(|config| config.limits.layers_max = 1);
    let large = Shelf::with(|config| config.limits.compressed_bytes_max = 10);
    for shelf in [many, large] {
        let error = shelf.pull(&server.reference("app:v1")).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
        shelf.assert_empty();
    }
    assert_eq!(server.count("GET", &digest(&layers[0].blob)), 0);
    let unpacked = Shelf::with(|config| config.limits.unpacked_bytes_max = 600);
    let error = unpacked.pull(&server.reference("app:v1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
    unpacked.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn metadata_without_end_is_cut_short() {
    let server = Server::start(|_| Reply::ok(vec![b' '; 5 << 20]));
    let error = Shelf::new().pull(&server.reference("app:v1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::TooLarge, "{error}");
}
