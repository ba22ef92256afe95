//! Archives made by friends and by enemies. These need root, as the server does.

use super::*;
use flate2::{Compression, write::GzEncoder};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use tar::{EntryType, Header};

/// A tar stream under construction that checks nothing, unlike the `tar` crate's builder.
struct Tar(Vec<u8>);

impl Tar {
    fn new() -> Self {
        assert!(rustix::process::geteuid().is_root(), "these tests need root: run them as root");
        Self(Vec::new())
    }

    fn add(mut self, kind: EntryType, path: &str, link: &str, content: &[u8]) -> Self {
        self.push(kind, path.as_bytes(), link.as_bytes(), content, 0o755);
        self
    }

    fn file(self, path: &str, content: &str) -> Self {
        self.add(EntryType::Regular, path, "", content.as_bytes())
    }

    fn directory(self, path: &str) -> Self {
        self.add(EntryType::Directory, path, "", b"")
    }

    fn symlink(self, path: &str, target: &str) -> Self {
        self.add(EntryType::Symlink, path, target, b"")
    }

    /// Records for the entry that follows.
    fn pax(mut self, records: &[(&str, &[u8])]) -> Self {
        let mut body = Vec::new();
        for (key, value) in records {
            let bare = key.len() + value.len() + 3;
            let length =
                (1..10).map(|digits| bare + digits).find(|n| n.to_string().len() + bare == *n);
            body.extend_from_slice(format!("{} {key}=", length.unwrap()).as_bytes());
            body.extend_from_slice(value);
            body.push(b'\n');
        }
        self.push(EntryType::XHeader, b"pax", b"", &body, 0o644);
        self
    }

    fn push(&mut self, kind: EntryType, path: &[u8], link: &[u8], content: &[u8], mode: u32) {
        let mut header = Header::new_ustar();
        header.set_entry_type(kind);
        header.set_mode(mode);
        header.set_uid(7);
        header.set_gid(8);
        header.set_mtime(1_000_000_000);
        header.set_size(content.len() as u64);
        header.as_mut_bytes()[..path.len()].copy_from_slice(path);
        header.as_mut_bytes()[157..157 + link.len()].copy_from_slice(link);
        header.set_cksum();
        self.0.extend_from_slice(header.as_bytes());
        self.0.extend_from_slice(content);
        self.0.resize(self.0.len().next_multiple_of(512), 0);
    }

    fn finish(mut self) -> Vec<u8> {
        self.0.extend_from_slice(&[0; 1024]);
        self.0
    }
}

struct Unpacked {
    directory: tempfile::TempDir,
    result: Result<(), Error>,
}

impl Unpacked {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join("layer").join(name)
    }

    fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).unwrap()
    }

    fn error(&self) -> String {
        self.result.as_ref().expect_err("must be refused").to_string()
    }

    /// Everything the archive could have touched outside its own directory.
    fn outside(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.directory.path()).unwrap();
        let mut names: Vec<_> =
            entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
        names.retain(|name| name != "layer" && name != "blob");
        names
    }
}

fn run(blob: &[u8], diff_id: &Digest, bytes_max: u64, entries_max: u64) -> Unpacked {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("blob");
    std::fs::write(&path, blob).unwrap();
    let section = Section { path, offset: 0, size: blob.len() as u64 };
    let budgets = Budgets { bytes: Budget::new(bytes_max), entries: Budget::new(entries_max) };
    let into = directory.path().join("layer");
    let result = unpack("app:1", &section, diff_id, &into, &budgets);
    Unpacked { directory, result }
}

fn unpacked(tar: Tar) -> Unpacked {
    let bytes = tar.finish();
    run(&bytes, &Digest::of(&bytes), 1 << 20, 100)
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn owners_modes_times_links_and_attributes_arrive() {
    let capability = [1, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    let mut tar = Tar::new().directory("./d/");
    tar.push(EntryType::Regular, b"d/sudo", b"", b"program", 0o4755);
    let out = unpacked(
        tar.symlink("d/link", "/etc/passwd")
            .add(EntryType::Link, "d/second", "d/sudo", b"")
            .add(EntryType::Fifo, "d/pipe", "", b"")
            .pax(&[
                ("SCHILY.xattr.security.capability", &capability),
                ("SCHILY.xattr.user.note", b"a\nb"),
                ("SCHILY.xattr.trusted.overlay.redirect", b"/"),
                ("SCHILY.xattr.user.overlay.opaque", b"y"),
                ("mtime", b"1234567890.5"),
                ("uid", b"123456"),
            ])
            .file("d/ping", "x"),
    );
    out.result.as_ref().unwrap();
    let sudo = out.path("d/sudo").metadata().unwrap();
    assert_eq!((sudo.uid(), sudo.gid(), sudo.mode() & 0o7777), (7, 8, 0o4755));
    assert_eq!((sudo.mtime(), sudo.nlink()), (1_000_000_000, 2));
    assert_eq!(out.path("d").metadata().unwrap().mtime(), 1_000_000_000);
    assert_eq!(out.path("d/link").read_link().unwrap(), Path::new("/etc/passwd"));
    assert_eq!(out.path("d/link").symlink_metadata().unwrap().uid(), 7);
    assert!(out.path("d/pipe").symlink_metadata().unwrap().file_type().is_fifo());
    let ping = out.path("d/ping").metadata().unwrap();
    assert_eq!(
        (ping.uid(), ping.mtime(), ping.mtime_nsec()),
        (123_456, 1_234_567_890, 500_000_000)
    );
    let attribute = |name: &str| {
        let mut value = vec![0; 64];
        let length = rustix::fs::getxattr(out.path("d/ping"), name, &mut value);
        length.map(|length| value[..length].to_vec()).ok()
    };
    assert_eq!(attribute("security.capability").as_deref(), Some(&capability[..]));
    assert_eq!(attribute("user.note").as_deref(), Some(&b"a\nb"[..]));
    assert_eq!(
        (attribute("trusted.overlay.redirect"), attribute("user.overlay.opaque")),
        (None, None)
    );
}

#[test]
fn every_compression_gives_the_same_tree() {
    let tar = Tar::new().file("a", "hello").finish();
    let zstd = zstd::encode_all(&tar[..], 1).unwrap();
    for blob in [tar.clone(), gzip(&tar), zstd] {
        let out = run(&blob, &Digest::of(&tar), 1 << 20, 10);
        out.result.as_ref().unwrap();
        assert_eq!(out.text("a"), "hello");
    }
}

#[test]
fn long_names_of_both_kinds_are_understood() {
    let long = format!("{}/{}", "d".repeat(150), "f".repeat(150));
    let mut tar = Tar::new();
    tar.push(EntryType::GNULongName, b"././@LongLink", b"", format!("{long}\0").as_bytes(), 0o644);
    let out = unpacked(tar.file("short", "gnu").pax(&[("path", b"pax/name")]).file("short", "pax"));
    out.result.as_ref().unwrap();
    assert_eq!((out.text(&long), out.text("pax/name")), ("gnu".into(), "pax".into()));
}

#[test]
fn dotted_paths_are_refused() {
    for path in ["../evil", "a/../../evil", "..", "/../evil"] {
        let out = unpacked(Tar::new().file(path, "x"));
        assert!(out.error().contains("'..'") && out.error().contains("app:1"), "{}", out.error());
        assert_eq!(out.outside(), Vec::<String>::new());
    }
}

#[test]
fn absolute_paths_stay_inside() {
    let marker = format!("/tmp/atoll-absolute-{}", std::process::id());
    let out = unpacked(Tar::new().file(&marker, "x"));
    out.result.as_ref().unwrap();
    assert!(!Path::new(&marker).exists());
    assert_eq!(out.text(&marker[1..]), "x");
}

#[test]
fn planted_links_lead_nowhere_outside() {
    // The link's target does not exist inside the layer: refused.
    for target in ["/etc", "../../../../etc", "/proc/self/root"] {
        let out = unpacked(Tar::new().symlink("evil", target).file("evil/atoll-planted", "x"));
        assert!(out.error().contains("evil/atoll-planted"), "{}", out.error());
        assert!(!Path::new("/etc/atoll-planted").exists());
    }
    // It does: the layer's own directory is meant.
    let tar = Tar::new().directory("etc").symlink("evil", "../../etc").file("evil/planted", "x");
    let out = unpacked(tar);
    out.result.as_ref().unwrap();
    assert_eq!(out.text("etc/planted"), "x");
}

#[test]
fn a_file_replaces_a_link_instead_of_writing_through_it() {
    let victim = tempfile::NamedTempFile::new().unwrap();
    let target = victim.path().to_str().unwrap();
    let out = unpacked(Tar::new().symlink("config", target).file("config", "mine"));
    out.result.as_ref().unwrap();
    assert_eq!(std::fs::read_to_string(victim.path()).unwrap(), "");
    assert!(out.path("config").symlink_metadata().unwrap().is_file());
}

#[test]
fn a_directory_swapped_for_a_link_does_not_redirect_later_files() {
    let victim = tempfile::tempdir().unwrap();
    let target = victim.path().to_str().unwrap();
    let out = unpacked(
        Tar::new().directory("d").file("d/one", "1").symlink("d", target).file("d/two", "2"),
    );
    assert!(out.result.is_err());
    assert_eq!(std::fs::read_dir(victim.path()).unwrap().count(), 0);
}

#[test]
fn hard_links_reach_only_this_layer() {
    for target in ["/etc/passwd", "../../../../etc/passwd", "missing", "evil/passwd", "/"] {
        let tar = Tar::new().symlink("evil", "/etc");
        let out = unpacked(tar.add(EntryType::Link, "stolen", target, b""));
        assert!(out.error().contains("stolen"), "{target}: {}", out.error());
        assert!(!out.path("stolen").exists());
    }
}

#[test]
fn directories_nested_through_links_are_bounded() {
    let deep = "d/".repeat(40);
    let mut tar = Tar::new();
    for round in 0..20 {
        let (from, to) = (format!("l{round}"), format!("l{}", round + 1));
        let base = if round == 0 { String::new() } else { format!("{from}/") };
        tar = tar.directory(&format!("{base}{deep}")).symlink(&to, &format!("{base}{deep}"));
    }
    assert!(unpacked(tar).error().contains("links"));
}

#[test]
fn devices_are_left_out() {
    let tar =
        Tar::new().add(EntryType::Block, "dev/sda", "", b"").add(EntryType::Char, "null", "", b"");
    let out = unpacked(tar.file("after", "x"));
    out.result.as_ref().unwrap();
    assert!(!out.path("dev/sda").exists() && !out.path("null").exists());
    assert_eq!(out.text("after"), "x");
}

#[test]
fn whiteouts_take_the_form_of_overlayfs() {
    let out = unpacked(
        Tar::new()
            .file("d/.wh.gone", "")
            .file("opaque/.wh..wh..opq", "")
            .file(".wh..wh.plnk", "")
            .file(".wh.again", "")
            .file("again/new", "x")
            .file("kept", "x")
            .file(".wh.kept", ""),
    );
    out.result.as_ref().unwrap();
    let gone = out.path("d/gone").symlink_metadata().unwrap();
    assert!(gone.file_type().is_char_device() && gone.rdev() == 0);
    for name in ["opaque", "again"] {
        let mut value = [0; 8];
        let length = rustix::fs::getxattr(out.path(name), "trusted.overlay.opaque", &mut value);
        assert_eq!(&value[..length.unwrap()], b"y", "{name}");
    }
    assert_eq!(out.text("kept"), "x");
    assert!(!out.path(".wh..wh.plnk").exists());
    assert!(unpacked(Tar::new().file(".wh...", "")).error().contains("removes no file"));
}

#[test]
fn bombs_stop_at_the_limits() {
    let zeros = Tar::new().add(EntryType::Regular, "big", "", &vec![0; 4 << 20]).finish();
    let out = run(&gzip(&zeros), &Digest::of(&zeros), 1 << 20, 10);
    assert!(
        matches!(out.result, Err(Error::TooLarge { limit: 1_048_576, .. })),
        "{:?}",
        out.result
    );
    assert!(out.path("big").metadata().unwrap().len() <= 1 << 20);
    let many = (0..20).fold(Tar::new(), |tar, n| tar.file(&format!("f{n}"), "")).finish();
    let out = run(&many, &Digest::of(&many), 1 << 20, 10);
    assert!(matches!(out.result, Err(Error::TooLarge { limit: 10, .. })), "{:?}", out.result);
}

#[test]
fn an_extended_header_cannot_fill_the_memory() {
    let mut tar = Tar::new();
    tar.push(EntryType::GNULongName, b"long", b"", &vec![b'a'; 2 << 20], 0o644);
    let bytes = tar.file("x", "").finish();
    let out = run(&gzip(&bytes), &Digest::of(&bytes), 1 << 30, 10);
    assert!(out.error().contains("extended header"), "{}", out.error());
}

#[test]
fn damage_is_noticed() {
    let bytes = Tar::new().file("a", &"hello ".repeat(5000)).finish();
    let right = Digest::of(&bytes);
    let packed = gzip(&bytes);
    let cut = run(&packed[..packed.len() - 20], &right, 1 << 20, 10);
    assert!(cut.error().contains("cut off"), "{}", cut.error());
    let short = run(&bytes[..700], &right, 1 << 20, 10);
    assert!(short.error().contains("cut off"), "{}", short.error());
    let wrong = run(&bytes, &Digest::of(b"other"), 1 << 20, 10);
    assert!(matches!(wrong.result, Err(Error::Digest { .. })));
    let mut flipped = bytes.clone();
    flipped[3] ^= 1;
    assert!(run(&flipped, &right, 1 << 20, 10).error().contains("damaged header"));
    assert!(run(b"not a tar at all", &right, 1 << 20, 10).result.is_err());
}

#[test]
fn a_path_that_is_too_long_or_holds_zero_bytes_is_refused() {
    let long = "x/".repeat(3000);
    for path in [long.as_bytes(), b"a\0b", &[b'n'; 300]] {
        let out = unpacked(Tar::new().pax(&[("path", path)]).file("short", ""));
        assert!(matches!(out.result, Err(Error::Refused { .. })), "{:?}", out.result);
    }
}

#[test]
fn directories_that_the_archive_only_implies_are_open_to_all() {
    let out = unpacked(Tar::new().file("implied/file", "x"));
    out.result.as_ref().unwrap();
    for name in ["", "implied"] {
        assert_eq!(out.path(name).metadata().unwrap().permissions().mode() & 0o7777, 0o755);
    }
}
