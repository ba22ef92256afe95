//! Images from layouts and archives that the operator named.

use crate::fixture::{MANIFEST, Shelf, TestImage, digest, layer};
use atoll_image::{Config, ErrorKind, ImageStore};
use serde_json::json;
use std::path::Path;

/// The files of an OCI layout with one image tagged `v1`.
fn layout(image: &TestImage) -> Vec<(String, Vec<u8>)> {
    let index = json!({"schemaVersion": 2, "manifests": [{"mediaType": MANIFEST,
        "digest": digest(&image.manifest), "size": image.manifest.len(),
        "annotations": {"org.opencontainers.image.ref.name": "v1"}}]});
    let mut files = vec![
        ("oci-layout".to_owned(), br#"{"imageLayoutVersion":"1.0.0"}"#.to_vec()),
        ("index.json".to_owned(), index.to_string().into_bytes()),
    ];
    for blob in image.blobs().chain([&image.manifest]) {
        files.push((format!("blobs/sha256/{}", &digest(blob)[7..]), blob.clone()));
    }
    files
}

/// The files of `docker save` for one image tagged `v1`.
fn saved(image: &TestImage) -> Vec<(String, Vec<u8>)> {
    let names: Vec<String> = (0..image.layers.len()).map(|n| format!("l{n}/layer.tar")).collect();
    let manifest = json!([{"Config": "config.json", "RepoTags": ["app:v1"], "Layers": names}]);
    let mut files = vec![
        ("manifest.json".to_owned(), manifest.to_string().into_bytes()),
        ("config.json".to_owned(), image.config.clone()),
    ];
    files.extend(names.into_iter().zip(image.layers.iter().map(|layer| layer.tar.clone())));
    files
}

fn write_tar(path: &Path, files: &[(String, Vec<u8>)]) {
    let mut builder = tar::Builder::new(std::fs::File::create(path).unwrap());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_mode(0o644);
        header.set_size(content.len() as u64);
        builder.append_data(&mut header, name, &content[..]).unwrap();
    }
    builder.finish().unwrap();
}

fn write_directory(path: &Path, files: &[(String, Vec<u8>)]) {
    for (name, content) in files {
        std::fs::create_dir_all(path.join(name).parent().unwrap()).unwrap();
        std::fs::write(path.join(name), content).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn all_local_forms_give_the_same_layers() {
    let image = TestImage::new(&[layer(&[("a", "a")]), layer(&[("b", "b")])]);
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    write_directory(&path("layout"), &layout(&image));
    write_tar(&path("layout.tar"), &layout(&image));
    write_tar(&path("saved.tar"), &saved(&image));
    let shelf = Shelf::with(|config| {
        for (alias, target) in [
            ("directory", format!("oci:{}:v1", path("layout").display())),
            ("untagged", format!("oci:{}", path("layout").display())),
            ("packed", format!("archive:{}:v1", path("layout.tar").display())),
            ("saved", format!("archive:{}:v1", path("saved.tar").display())),
            ("absent", format!("oci:{}:v2", path("layout").display())),
            ("nowhere", "archive:/nonexistent/image.tar".to_owned()),
        ] {
            config.aliases.insert(alias.to_owned(), target);
        }
    });
    let first = shelf.pull("directory").await.unwrap();
    assert_eq!(first.digest, digest(&image.manifest));
    for alias in ["untagged", "packed", "saved"] {
        let pulled = shelf.pull(alias).await.unwrap();
        assert_eq!((&pulled.roots, &pulled.config), (&first.roots, &first.config), "{alias}");
        assert!(shelf.store.cached(alias).is_some());
    }
    assert_eq!(shelf.pull("absent").await.unwrap_err().kind(), ErrorKind::NotFound);
    let nowhere = shelf.pull("nowhere").await.unwrap_err();
    assert!(nowhere.to_string().contains("/nonexistent/image.tar"), "{nowhere}");
}

#[tokio::test(flavor = "multi_thread")]
async fn damaged_and_foreign_files_are_refused() {
    let image = TestImage::new(&[layer(&[("a", "a")])]);
    let files = tempfile::tempdir().unwrap();
    let path = |name: &str| files.path().join(name);
    let mut damaged = layout(&image);
    damaged.last_mut().unwrap().1.push(b' ');
    write_directory(&path("damaged"), &damaged);
    write_tar(&path("foreign.tar"), &[("readme".to_owned(), b"x".to_vec())]);
    std::fs::write(path("text.tar"), "no archive").unwrap();
    let shelf = Shelf::with(|config| {
        for name in ["foreign.tar", "text.tar"] {
            config.aliases.insert(name.into(), format!("archive:{}", path(name).display()));
        }
        config.aliases.insert("damaged".into(), format!("oci:{}", path("damaged").display()));
    });
    for (alias, word) in
        [("damaged", "damaged"), ("foreign.tar", "not an image"), ("text.tar", "uncompressed tar")]
    {
        let error = shelf.pull(alias).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.to_string().contains(word), "{error}");
    }
    shelf.assert_empty();
}

#[test]
fn unusable_settings_are_named() {
    let directory = tempfile::tempdir().unwrap();
    let open = |change: &dyn Fn(&mut Config)| {
        let mut config = Config { root: directory.path().into(), ..Config::default() };
        change(&mut config);
        ImageStore::open(config).unwrap_err().to_string()
    };
    let relative = open(&|c| drop(c.aliases.insert("x".into(), "oci:here".into())));
    assert!(relative.contains("aliases.x") && relative.contains("absolute"), "{relative}");
    let invalid = open(&|c| drop(c.aliases.insert("x".into(), "Not Valid".into())));
    assert!(invalid.contains("aliases.x"), "{invalid}");
    let mirror = open(&|c| drop(c.mirrors.insert("r.io".into(), vec!["ftp://x".into()])));
    assert!(mirror.contains("mirrors.r.io"), "{mirror}");
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_cannot_name_host_paths() {
    let shelf = Shelf::new();
    for reference in ["oci:/etc", "archive:/etc/passwd", "/etc/passwd", "../x"] {
        assert_eq!(shelf.pull(reference).await.unwrap_err().kind(), ErrorKind::Invalid);
    }
}
