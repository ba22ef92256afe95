//! A sandbox's files: layers of the image under a writable layer, shown through its own ids.
//!
//! Everything on disk keeps the image's ids (root is 0). Mounts with an id map show them as the
//! sandbox's range, so layers are shared by all sandboxes, nothing is ever chowned, and a
//! snapshot is simply the writable folder.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use crate::protocol::{Bind, Root, files};
use crate::sys;
use crate::sys::mount::{self, Attributes, Filesystem};
use crate::sys::process::as_file_owner;

/// Layers of one image; overlayfs itself allows 500.
const LAYERS_MAX: usize = 128;

/// Says what was being done when something failed.
pub(super) trait Context<T> {
    fn context(self, doing: impl FnOnce() -> String) -> io::Result<T>;
}

impl<T> Context<T> for io::Result<T> {
    fn context(self, doing: impl FnOnce() -> String) -> Self {
        self.map_err(|e| io::Error::new(e.kind(), format!("{}: {e}", doing())))
    }
}

/// Mounts all of a sandbox's overlays at `top` in the present mount namespace; its layers are
/// shown below `dir` on the way.
pub(super) fn mount_roots(
    dir: &Path,
    top: &Path,
    roots: &[Root],
    first_id: u32,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    for (number, root) in roots.iter().enumerate() {
        // Overlayfs works on the writable layer as whoever mounted it, so that must be an id
        // which the layer's map knows.
        let overlay = as_file_owner(first_id, || overlay(dir, number, root, ids))?;
        let target = top.join(root.target.strip_prefix("/").unwrap_or(&root.target));
        mount::attach(overlay.as_fd(), &target)
            .context(|| format!("attaching the files of {}", root.target.display()))?;
    }
    Ok(())
}

/// One overlay, attached nowhere yet.
fn overlay(
    dir: &Path,
    number: usize,
    root: &Root,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<OwnedFd> {
    if root.lowers.is_empty() || root.lowers.len() > LAYERS_MAX {
        let count = root.lowers.len();
        return Err(io::Error::other(format!("{count} layers: only 1 to {LAYERS_MAX} work")));
    }
    let stage = dir.join(files::LAYERS).join(number.to_string());
    for (depth, lower) in root.lowers.iter().enumerate() {
        show_with_ids(lower, &stage.join(depth.to_string()), ids)?;
    }
    show_with_ids(&root.writable, &stage.join("w"), ids)?;
    // Options have at most 256 bytes, so paths in them are as short as can be.
    std::env::set_current_dir(&stage)?;
    let mounted = mount_overlay(root.lowers.len());
    std::env::set_current_dir("/")?;
    mounted
}

/// Mounts the layers `0`, `1`, … and `w` of the present folder.
fn mount_overlay(layers: usize) -> io::Result<OwnedFd> {
    let context = |what: &'static str| move || format!("overlay {what}");
    let overlay = Filesystem::open(c"overlay").context(context("open"))?;
    let names: Vec<String> = (0..layers).map(|depth| depth.to_string()).collect();
    let mut one_by_one = names.iter().map(|name| overlay.set(c"lowerdir+", name.as_bytes()));
    if one_by_one.by_ref().next().is_some_and(|first| first.is_err()) {
        // Before Linux 6.5 all layers are one option.
        overlay.set(c"lowerdir", names.join(":").as_bytes()).context(context("lowerdir"))?;
    } else {
        one_by_one.collect::<io::Result<()>>().context(context("lowerdir+"))?;
    }
    overlay.set(c"upperdir", b"w/upper").context(context("upperdir"))?;
    overlay.set(c"workdir", b"w/work").context(context("workdir"))?;
    // A sandbox that runs doesn't outlive the machine, so its files need not be written out on
    // unmount; one that is to rest has them written out otherwise.
    overlay.flag(c"volatile").context(context("volatile"))?;
    overlay.mount(libc::MOUNT_ATTR_NODEV).context(context("mount"))
}

/// Shows `source` at `place` with ids as seen from the sandbox.
fn show_with_ids(source: &Path, place: &Path, ids: Option<BorrowedFd<'_>>) -> io::Result<()> {
    let tree = mount::clone_tree(source, false)
        .context(|| format!("opening the layer {}", source.display()))?;
    mount::set_attributes(tree.as_fd(), Attributes { set: 0, id_map: ids }, false)
        .context(|| format!("mapping ids of {}", source.display()))?;
    mount::attach(tree.as_fd(), place).context(|| format!("attaching {}", place.display()))
}

/// Puts a folder from outside where the sandbox wants it. Links can lead neither its source nor
/// its target elsewhere: both are found once and then used by descriptor.
pub(super) fn bind(
    top: &Path,
    bind: &Bind,
    first_id: u32,
    ids: Option<BorrowedFd<'_>>,
) -> io::Result<()> {
    let doing = || format!("mounting a volume at {}", bind.target.display());
    let source = find_source(&bind.root, &bind.below).context(doing)?;
    let file = std::fs::File::from(source.try_clone()?).metadata().context(doing)?.is_file();
    let root = sys::open_path(top)?;
    let target =
        as_file_owner(first_id, || make_folder(root.as_fd(), &bind.target, file)).context(doing)?;
    let tree = mount::clone_place(source.as_fd()).context(doing)?;
    let mut set = libc::MOUNT_ATTR_NOSUID | libc::MOUNT_ATTR_NODEV;
    if bind.read_only {
        set |= libc::MOUNT_ATTR_RDONLY;
    }
    mount::set_attributes(tree.as_fd(), Attributes { set, id_map: ids }, false).context(doing)?;
    mount::attach_at(tree.as_fd(), target.as_fd()).context(doing)
}

/// Opens `below` in `root`, making folders on the way and following no link.
fn find_source(root: &Path, below: &Path) -> io::Result<OwnedFd> {
    let mut here = sys::open_path(root)?;
    for part in below.components().filter_map(name_of) {
        let part = Path::new(&part);
        here = match sys::open_no_link(here.as_fd(), part, libc::O_PATH) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                sys::make_folder_at(here.as_fd(), part)?;
                sys::open_no_link(here.as_fd(), part, libc::O_PATH)?
            }
            other => other?,
        };
    }
    Ok(here)
}

/// Opens `path` below `root`, making folders on the way and, if `file`, an empty file at the end.
pub(super) fn make_folder(root: BorrowedFd<'_>, path: &Path, file: bool) -> io::Result<OwnedFd> {
    let mut walked = PathBuf::from("/");
    let mut here = root.try_clone_to_owned()?;
    let parts: Vec<_> = path.components().filter_map(name_of).collect();
    for (depth, part) in parts.iter().enumerate() {
        walked.push(part);
        let opened = sys::open_in_root(root, &walked, libc::O_PATH);
        here = match opened {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                // By descriptor: the ids that own the tree may not walk the host's folders.
                if file && depth + 1 == parts.len() {
                    sys::make_file_at(here.as_fd(), Path::new(part))?;
                } else {
                    sys::make_folder_at(here.as_fd(), Path::new(part))?;
                }
                sys::open_in_root(root, &walked, libc::O_PATH)?
            }
            other => other?,
        };
    }
    Ok(here)
}

fn name_of(component: std::path::Component<'_>) -> Option<std::ffi::OsString> {
    match component {
        std::path::Component::Normal(name) => Some(name.to_owned()),
        _ => None,
    }
}

/// Writes small files into the tree below `root`, following no link out of it.
pub(super) fn write_files<'a>(
    root: BorrowedFd<'_>,
    files: impl Iterator<Item = (&'a String, &'a String)>,
) -> io::Result<()> {
    use std::io::Write;
    for (path, content) in files {
        let doing = || format!("writing {path} into the sandbox");
        let path = Path::new(path);
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { continue };
        // An image without that folder has no use for the file.
        let Ok(dir) = sys::open_in_root(root, parent, libc::O_PATH) else { continue };
        sys::remove_file_at(dir.as_fd(), Path::new(name)).context(doing)?;
        let mut file = sys::make_file_at(dir.as_fd(), Path::new(name)).context(doing)?;
        file.write_all(content.as_bytes()).context(doing)?;
    }
    Ok(())
}
