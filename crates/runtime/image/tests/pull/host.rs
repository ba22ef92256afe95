//! The image made of this host.

use crate::{fixture::Shelf, namespace::run_with};
use atoll_image::Addition;
use std::{
    collections::HashSet,
    os::unix::fs::{MetadataExt, PermissionsExt},
    path::Path,
};

#[tokio::test(flavor = "multi_thread")]
async fn base_and_host_are_one_image_made_once() {
    let shelf = Shelf::with(|config| drop(config.aliases.insert("mine".into(), "host".into())));
    assert!(shelf.store.cached("base").is_none());
    let base = shelf.pull("base").await.unwrap();
    for name in ["base", "host", "mine"] {
        assert_eq!(shelf.store.cached(name).unwrap(), base);
    }
    let targets: Vec<_> = base.roots.iter().map(|root| root.target.as_path()).collect();
    assert_eq!(targets, [Path::new("/"), Path::new("/usr")]);
    assert_eq!(base.roots[1].lowers.last().unwrap(), Path::new("/usr"));
    assert_eq!(base.config.cmd, ["tail", "-f", "/dev/null"]);
    let stale = shelf.config.root.join("host/stale");
    std::fs::create_dir(&stale).unwrap();
    shelf.store.collect_garbage(&HashSet::new()).unwrap();
    assert!(!stale.exists() && base.roots[0].lowers[0].is_dir());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_addition_lies_over_the_host_once_it_is_made() {
    let tree = tempfile::tempdir().unwrap();
    let (maker, state) = tokio::sync::watch::channel(Addition::Building("half".into()));
    let broken = tokio::sync::watch::channel(Addition::Failed("pip is missing".into())).1;
    let shelf = Shelf::with(|config| {
        config.additions = [("more".to_owned(), state), ("broken".to_owned(), broken)].into();
        config.aliases.insert("vendor/more:1".into(), "more".into());
    });
    let refused = shelf.pull("broken").await.unwrap_err();
    assert!(refused.to_string().contains("pip is missing"), "{refused}");
    let waiting = shelf.pull("more");
    let env = vec![("PATH".to_owned(), "/opt/bin".to_owned())];
    maker.send_replace(Addition::Ready { tree: tree.path().to_owned(), env });
    let more = waiting.await.unwrap();
    assert_eq!(more.roots[0].lowers[0], tree.path());
    let base = shelf.pull("base").await.unwrap();
    assert_eq!(more.roots[0].lowers[1..], base.roots[0].lowers[..]);
    assert_eq!(more.config.env.iter().filter(|(key, _)| key == "PATH").count(), 1);
    assert_eq!(shelf.pull("vendor/more:1").await.unwrap(), more);
}

#[tokio::test(flavor = "multi_thread")]
async fn the_skeleton_has_owners_modes_and_nothing_of_the_host() {
    let shelf = Shelf::new();
    let base = shelf.pull("base").await.unwrap();
    let root = &base.roots[0].lowers[0];
    let expected = [
        ("", 0o755, 0),
        ("tmp", 0o1777, 0),
        ("root", 0o700, 0),
        ("home/user", 0o755, 1000),
        ("etc/shadow", 0o640, 0),
        ("etc/sudoers", 0o440, 0),
        ("var/tmp", 0o1777, 0),
    ];
    for (name, mode, owner) in expected {
        let found = root.join(name).symlink_metadata().unwrap();
        assert_eq!((found.permissions().mode() & 0o7777, found.uid()), (mode, owner), "{name}");
    }
    for name in ["etc/ssh", "etc/ssl/private", "etc/apt", "etc/docker", "etc/pip.conf", "etc/npmrc"]
    {
        assert!(root.join(name).symlink_metadata().is_err(), "{name}");
    }
    assert_eq!(std::fs::read_to_string(root.join("etc/resolv.conf")).unwrap(), "");
    assert_eq!(root.join("bin").read_link().unwrap(), Path::new("/bin").read_link().unwrap());
}

#[tokio::test(flavor = "multi_thread")]
async fn programs_of_the_host_run_in_it_and_cannot_change_the_host() {
    let shelf = Shelf::new();
    let base = shelf.pull("base").await.unwrap();
    assert_eq!(base.warnings, Vec::<String>::new(), "the tests need these programs");
    let scratch = tempfile::tempdir().unwrap();
    let script = r#"
mount --bind /dev "$ROOT/dev"
mount -t proc proc "$ROOT/proc"
chroot "$ROOT" /usr/bin/python3 -c 'import ssl, json; print(json.dumps(40 + 2))'
chroot "$ROOT" /bin/bash -lc 'python --version >/dev/null; git --version >/dev/null; curl --version >/dev/null; id -un; touch /usr/bin/planted'
chroot --userspec=1000:1000 "$ROOT" /bin/bash -c 'id -un; cd; pwd; sudo -n id -un'
"#;
    let script = format!("export HOME=/home/user\n{script}");
    let output = run_with(&base, scratch.path(), &script);
    assert_eq!(output, "42\nroot\nuser\n/home/user\nroot\n");
    assert!(!Path::new("/usr/bin/planted").exists());
}
