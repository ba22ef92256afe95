//! Keeping a sandbox's files.
//!
//! Only what the sandbox changed is copied; the layers below are shared with the image or with the
//! snapshot it came from. Sandboxes made from it, forks too, share that one copy to read. Where the
//! disk's filesystem can share blocks between files (Btrfs, XFS), the copy itself takes no space.

use std::io;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use atoll_core::{Error, Result};

use crate::config::Layout;
use crate::files::{read_json, write_json};
use crate::plan::{self, Base, Plan};
use crate::trash::Trash;

/// Copies the writable folders of the sandbox in `dir`; complete and on the disk, or not there at
/// all.
pub(crate) async fn take(layout: &Layout, dir: &Path, id: &str) -> io::Result<()> {
    let draft = layout.snapshots().join(format!("{id}.draft"));
    Trash::of(layout).throw(&draft)?;
    let taken = match fill(&draft, dir, &layout.snapshot(id)).await {
        Ok(()) => keep(layout, &draft, id).await,
        Err(error) => Err(error),
    };
    if taken.is_err()
        && let Err(error) = Trash::of(layout).throw(&draft)
    {
        tracing::warn!(%error, id, "a half-taken snapshot stays until the next start");
    }
    taken
}

/// Writes what will be the snapshot in `home` into `draft`.
async fn fill(draft: &Path, dir: &Path, home: &Path) -> io::Result<()> {
    let plan: Plan = read_json(&dir.join(plan::FILE))?;
    std::fs::create_dir_all(draft)?;
    let mut trees = plan.base.trees;
    for (number, tree) in trees.iter_mut().enumerate() {
        let name = format!("files-{number}");
        copy(&plan::writable(dir, number).join("upper"), &draft.join(&name)).await?;
        tree.lowers.insert(0, home.join(name));
    }
    let base = Base { trees, defaults: plan.base.defaults };
    write_json(&draft.join(plan::FILE), &base)
}

/// Makes the draft the snapshot. Its files reach the disk before its name does: a power cut leaves
/// all of it or nothing.
async fn keep(layout: &Layout, draft: &Path, id: &str) -> io::Result<()> {
    let (parent, draft, home) = (layout.snapshots(), draft.to_owned(), layout.snapshot(id));
    let kept = tokio::task::spawn_blocking(move || {
        let folder = std::fs::File::open(parent)?;
        rustix::fs::syncfs(&folder)?;
        std::fs::rename(draft, home)?;
        folder.sync_all()
    });
    kept.await.unwrap_or_else(|panic| Err(io::Error::other(panic)))
}

/// Removes a snapshot unless something still stands on its files.
pub(crate) fn remove(layout: &Layout, id: &str) -> Result<()> {
    let home = layout.snapshot(id);
    if let Some(user) = user_of(layout, &home) {
        let message = format!("snapshot {id} is still in use by {user}: remove that first");
        return Err(Error::conflict(message).with_reason("SNAPSHOT_IN_USE"));
    }
    Trash::of(layout)
        .throw(&home)
        .map_err(|e| Error::internal(format!("removing snapshot {id}: {e}")))
}

/// The complete snapshots.
pub(crate) fn list(layout: &Layout) -> Vec<String> {
    let entries = std::fs::read_dir(layout.snapshots()).into_iter().flatten();
    entries
        .filter_map(std::result::Result::ok)
        .filter(|entry| entry.path().join(plan::FILE).exists())
        .filter_map(|entry| entry.file_name().into_string().ok())
        .filter(|name| !name.ends_with(".draft"))
        .collect()
}

/// Removes copies that a crash interrupted.
pub(crate) fn remove_drafts(layout: &Layout) {
    let entries = std::fs::read_dir(layout.snapshots()).into_iter().flatten();
    for entry in entries.filter_map(std::result::Result::ok) {
        if entry.file_name().to_string_lossy().ends_with(".draft")
            && let Err(error) = Trash::of(layout).throw(&entry.path())
        {
            tracing::warn!(%error, "a half-taken snapshot stays");
        }
    }
}

/// A sandbox or snapshot whose layers lie in `home`.
fn user_of(layout: &Layout, home: &Path) -> Option<String> {
    let stands_on = |base: &Base| {
        base.trees.iter().flat_map(|tree| &tree.lowers).any(|lower| lower.starts_with(home))
    };
    let folders = |dir: PathBuf| {
        std::fs::read_dir(dir).into_iter().flatten().filter_map(std::result::Result::ok)
    };
    let sandbox = folders(layout.sandboxes()).find(|entry| {
        read_json::<Plan>(&entry.path().join(plan::FILE)).is_ok_and(|plan| stands_on(&plan.base))
    });
    if let Some(entry) = sandbox {
        return Some(format!("sandbox {}", entry.file_name().to_string_lossy()));
    }
    let snapshot = folders(layout.snapshots()).filter(|entry| entry.path() != home).find(|entry| {
        read_json::<Base>(&entry.path().join(plan::FILE)).is_ok_and(|base| stands_on(&base))
    });
    snapshot.map(|entry| format!("snapshot {}", entry.file_name().to_string_lossy()))
}

/// `cp` knows every kind of file, attribute and hole; ours would only know less.
async fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let output = tokio::process::Command::new("cp")
        .args(["--archive", "--reflink=auto", "--one-file-system", "--no-target-directory"])
        .arg(from)
        .arg(to)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .output()
        .await?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let kind = if said.contains("No space left") {
        io::ErrorKind::StorageFull
    } else {
        io::ErrorKind::Other
    };
    Err(io::Error::new(kind, format!("copying files: {}", said.trim())))
}

#[cfg(test)]
mod tests;
