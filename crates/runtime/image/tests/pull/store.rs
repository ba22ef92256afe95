//! The life of an image: pulled, mounted, kept over a restart, removed, collected.

use crate::{
    fixture::{Shelf, TestImage, architecture, digest, layer, names},
    namespace::run_with,
    registry::Registry,
    server::Server,
};
use atoll_image::{ErrorKind, ImageStore, Progress, Stage};
use std::{collections::HashSet, os::unix::fs::PermissionsExt, sync::Mutex};

fn three_layers() -> TestImage {
    TestImage::new(&[
        layer(&[
            ("etc/", ""),
            ("etc/old", "1"),
            ("etc/kept", "kept"),
            ("var/a", "a"),
            ("var/b", "b"),
        ]),
        layer(&[("etc/.wh.old", ""), ("var/.wh..wh..opq", ""), ("var/c", "c")]),
        layer(&[("top", "three")]),
    ])
}

#[tokio::test(flavor = "multi_thread")]
async fn a_pulled_image_mounts_with_its_deletions() {
    let (registry, shelf) = (Registry::open(), Shelf::new());
    let image = three_layers();
    registry.push("team/app", "v1", &image).await;
    let reference = registry.reference("team/app:v1");
    assert!(shelf.store.cached(&reference).is_none());
    let seen = Mutex::new(Vec::<Progress>::new());
    let note = |progress| seen.lock().unwrap().push(progress);
    let pulled = shelf.store.ensure(&reference, None, &note).await.unwrap();
    assert_eq!((&pulled.reference, &pulled.digest), (&reference, &digest(&image.manifest)));
    assert_eq!(pulled.config.env, [("COLOUR".to_owned(), "blue".to_owned())]);
    assert_eq!(pulled.config.working_dir.as_deref(), Some("/srv"));
    assert!(pulled.roots[0].lowers[0].join("top").is_file(), "the top layer comes first");
    for name in ["layers", "tmp", "host", "images"] {
        let mode = shelf.config.root.join(name).metadata().unwrap().permissions().mode();
        assert_eq!(
            mode & 0o777,
            0o700,
            "other users must not reach set-user-id programs in {name}"
        );
    }
    let last = *seen.lock().unwrap().last().unwrap();
    assert_eq!((last.stage, last.layers_done, last.layers_total), (Stage::Ready, 3, 3));
    assert_eq!(last.bytes_done, last.bytes_total);
    let scratch = tempfile::tempdir().unwrap();
    let script = "cd $ROOT; find . -type f | sort; cat top";
    let found = run_with(&pulled, scratch.path(), script);
    assert_eq!(found, "./etc/kept\n./top\n./var/c\nthree");
}

#[tokio::test(flavor = "multi_thread")]
async fn indexes_and_digests_lead_to_the_same_image() {
    let (registry, shelf) = (Registry::open(), Shelf::new());
    let image = three_layers();
    registry.push("app", "v1", &image).await;
    let expected = digest(&image.manifest);
    for name in ["app:v1-index".to_owned(), format!("app@{expected}"), format!("app:no@{expected}")]
    {
        let pulled = shelf.pull(&registry.reference(&name)).await.unwrap();
        assert_eq!(pulled.digest, expected);
    }
    assert_eq!(names(&shelf.config.root.join("layers")).len(), 3);
}

#[tokio::test(flavor = "multi_thread")]
async fn images_outlive_the_process_and_leftovers_do_not() {
    let server = Server::registry(&[("app", "v1", &three_layers())]);
    let shelf = Shelf::new();
    let reference = server.reference("app:v1");
    let before = shelf.pull(&reference).await.unwrap();
    let asked = server.requests().len();
    std::fs::create_dir_all(shelf.config.root.join("tmp/layer-77/half")).unwrap();
    let again = ImageStore::open(shelf.config.clone()).unwrap();
    assert_eq!(again.cached(&reference).unwrap(), before);
    assert_eq!(again.ensure(&reference, None, &|_| {}).await.unwrap(), before);
    assert_eq!(server.requests().len(), asked, "a present tag is not asked for again");
    assert_eq!(names(&shelf.config.root.join("tmp")), Vec::<String>::new());
    // A record whose layer is missing is worth nothing.
    std::fs::remove_dir_all(&before.roots[0].lowers[0]).unwrap();
    let damaged = ImageStore::open(shelf.config.clone()).unwrap();
    assert!(damaged.cached(&reference).is_none());
    damaged.ensure(&reference, None, &|_| {}).await.unwrap();
    assert!(before.roots[0].lowers[0].is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn garbage_is_what_nobody_needs() {
    let shared = layer(&[("shared", "x")]);
    let own = layer(&[("own", "y")]);
    let (one, two) =
        (TestImage::new(std::slice::from_ref(&shared)), TestImage::new(&[shared, own]));
    let server = Server::registry(&[("one", "v1", &one), ("two", "v1", &two)]);
    let shelf = Shelf::new();
    shelf.pull(&server.reference("one:v1")).await.unwrap();
    let image = shelf.pull(&server.reference("two:v1")).await.unwrap();
    let layers = shelf.config.root.join("layers");
    let none = HashSet::new();
    assert_eq!(shelf.store.collect_garbage(&none).unwrap(), 0);
    assert!(shelf.store.remove(&server.reference("two:v1")).unwrap());
    assert!(!shelf.store.remove(&server.reference("two:v1")).unwrap());
    assert_eq!(shelf.store.collect_garbage(&none).unwrap(), 0, "somebody still holds the image");
    let in_use = HashSet::from([image.roots[0].lowers[0].clone()]);
    drop(image);
    assert_eq!(shelf.store.collect_garbage(&in_use).unwrap(), 0, "a sandbox still uses the layer");
    assert_eq!(names(&layers).len(), 2);
    assert!(shelf.store.collect_garbage(&none).unwrap() > 0);
    assert_eq!(names(&layers).len(), 1, "the shared layer stays");
    assert_eq!(shelf.store.list().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_image_for_another_machine_is_refused() {
    let image = TestImage::for_architecture(&[layer(&[("a", "a")])], "sparc");
    let (server, shelf) = (Server::registry(&[("app", "v1", &image)]), Shelf::new());
    let error = shelf.pull(&server.reference("app:v1")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Invalid);
    let text = error.to_string();
    assert!(text.contains("linux/sparc") && text.contains(architecture()), "{text}");
    shelf.assert_empty();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_layer_that_occurs_twice_is_mounted_once() {
    let (twice, middle) = (layer(&[("a", "top")]), layer(&[("a", "middle"), ("b", "b")]));
    let image = TestImage::new(&[twice.clone(), middle, twice]);
    let (server, shelf) = (Server::registry(&[("app", "v1", &image)]), Shelf::new());
    let pulled = shelf.pull(&server.reference("app:v1")).await.unwrap();
    let scratch = tempfile::tempdir().unwrap();
    assert_eq!(run_with(&pulled, scratch.path(), "cat $ROOT/a $ROOT/b"), "topb");
}
