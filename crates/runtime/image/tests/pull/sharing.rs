//! Work that is done once for many.

use crate::{
    fixture::{Shelf, TestImage, digest, layer},
    registry::Registry,
    server::{Reply, Server, contents, found},
};
use atoll_image::{Config, ErrorKind};
use futures_util::future::join_all;
use std::sync::{Arc, Barrier};

#[tokio::test(flavor = "multi_thread")]
async fn twenty_callers_share_one_download() {
    let image = TestImage::new(&[layer(&[("a", "a")]), layer(&[("b", "b")])]);
    let server = Server::registry(&[("app", "v1", &image)]);
    let shelf = Shelf::new();
    let reference = server.reference("app:v1");
    let images = join_all((0..20).map(|_| shelf.pull(&reference))).await;
    let first = images[0].as_ref().unwrap();
    assert!(images.iter().all(|image| Arc::ptr_eq(image.as_ref().unwrap(), first)));
    for blob in image.blobs() {
        assert_eq!(server.count("GET", &digest(blob)), 1);
    }
    assert_eq!(server.requests().len(), 4);
}

#[tokio::test(flavor = "multi_thread")]
async fn twenty_callers_of_a_real_registry_get_one_image() {
    let (registry, shelf) = (Registry::open(), Shelf::new());
    registry.push("app", "v1", &TestImage::new(&[layer(&[("a", "a")])])).await;
    let reference = registry.reference("app:v1");
    let images = join_all((0..20).map(|_| shelf.pull(&reference))).await;
    assert!(images.iter().all(Result::is_ok));
    assert_eq!(shelf.store.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_of_two_images_is_fetched_once() {
    let shared = layer(&[("shared", "x")]);
    let one = TestImage::new(&[shared.clone(), layer(&[("one", "1")])]);
    let two = TestImage::new(&[shared.clone(), layer(&[("two", "2")])]);
    let content = contents(&[("one", "v1", &one), ("two", "v1", &two)]);
    // Both pulls know their layers before either may go on.
    let both = Arc::new(Barrier::new(2));
    let server = Server::start(move |request| {
        if request.path.ends_with("/manifests/v1") {
            both.wait();
        }
        found(&content, &request.path)
    });
    let shelf = Shelf::new();
    let (first, second) = (server.reference("one:v1"), server.reference("two:v1"));
    let (first, second) = tokio::join!(shelf.pull(&first), shelf.pull(&second));
    assert_eq!(first.unwrap().roots[0].lowers[1], second.unwrap().roots[0].lowers[1]);
    assert_eq!(server.count("GET", &digest(&shared.blob)), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn callers_who_give_up_do_not_disturb_the_others() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let server = Server::registry(&[("app", "v1", &image)]);
    let shelf = Shelf::new();
    let reference = server.reference("app:v1");
    let impatient = shelf.store.clone();
    let named = reference.clone();
    let task = tokio::spawn(async move { impatient.ensure(&named, None, &|_| {}).await.map(drop) });
    task.abort();
    shelf.pull(&reference).await.unwrap();
    assert_eq!(server.count("GET", &digest(&image.layers[0].blob)), 1);
}

fn mirrored(mirror: &Server) -> impl FnOnce(&mut Config) + use<> {
    let mirrors = vec![format!("http://{}/cache", mirror.host)];
    |config| {
        // The registry itself must not be asked over the network.
        config.limits.attempts_max = 1;
        config.mirrors.insert("127.0.0.1:1".into(), mirrors);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrors_serve_callers_without_credentials() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let content = contents(&[("app", "v1", &image)]);
    let mirror = Server::start(move |request| {
        request.path.strip_prefix("/cache").map_or(Reply::status(404, ""), |p| found(&content, p))
    });
    let shelf = Shelf::with(mirrored(&mirror));
    let with_credentials = shelf.pull_as("127.0.0.1:1/app:v1", "user", "password").await;
    assert_eq!(with_credentials.unwrap_err().kind(), ErrorKind::Unreachable);
    assert_eq!(mirror.requests().len(), 0, "a mirror never sees credentials");
    let pulled = shelf.pull("127.0.0.1:1/app:v1").await.unwrap();
    assert_eq!(pulled.reference, "127.0.0.1:1/app:v1");
    let missing = shelf.pull("127.0.0.1:1/other:v1").await.unwrap_err();
    assert_eq!(missing.kind(), ErrorKind::Unreachable, "the registry has the last word");
}
