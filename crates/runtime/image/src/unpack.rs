//! Unpacks one layer archive into a directory in the form overlayfs wants.

mod tree;

#[cfg(test)]
mod tests;

use crate::{
    Error,
    digest::{Budget, BudgetSpent, Digest, Metered},
    tarball::{Entries, Entry, Kind, ReadError},
};
use flate2::bufread::MultiGzDecoder;
use rustix::fd::AsFd;
use std::{
    fs::File,
    io::{self, BufRead, BufReader, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};
use tree::{Attributes, Tree, TreeError};

const COPY_BUFFER: usize = 128 * 1024;
/// Largest zstd window accepted, as a power of two; bounds the decoder's memory.
const ZSTD_WINDOW_LOG_MAX: u32 = 27;
const WHITEOUT: &[u8] = b".wh.";
const OPAQUE: &[u8] = b".wh..wh..opq";
/// Names of the old aufs driver that mean nothing today.
const AUFS: &[u8] = b".wh..wh.";

/// Part of a file that holds a layer, compressed or not.
#[derive(Debug, Clone)]
pub(crate) struct Section {
    pub(crate) path: PathBuf,
    pub(crate) offset: u64,
    pub(crate) size: u64,
}

/// Bounds shared by the layers of one image.
#[derive(Debug, Clone)]
pub(crate) struct Budgets {
    pub(crate) bytes: Budget,
    pub(crate) entries: Budget,
}

/// Unpacks `layer` into the new directory `into` and checks its uncompressed digest.
pub(crate) fn unpack(
    image: &str,
    layer: &Section,
    diff_id: &Digest,
    into: &Path,
    budgets: &Budgets,
) -> Result<(), Error> {
    let reader = open(layer).map_err(|e| Error::io(image, "opening layer", &layer.path, e))?;
    let stream = Metered::new(reader, budgets.bytes.clone());
    let tree = Tree::create(into).map_err(|e| Error::io(image, "making directory", into, e))?;
    let mut unpacker = Unpacker { image, into, budgets, tree, entries: Entries::new(stream) };
    while unpacker.apply_next()? {}
    let Unpacker { tree, entries, .. } = unpacker;
    let failed = |e: io::Error| read_error(image, budgets, ReadError::Io(e));
    let actual = entries.into_inner().finish().map_err(failed)?;
    if actual != *diff_id {
        return Err(Error::Digest {
            image: image.to_owned(),
            what: "an unpacked layer".into(),
            expected: diff_id.to_string(),
            actual: actual.to_string(),
        });
    }
    tree.finish().map_err(|e| Error::io(image, "finishing layer", into, e))
}

/// Opens a layer and decompresses it by what its first bytes say.
fn open(layer: &Section) -> io::Result<Box<dyn Read>> {
    let mut file = File::open(&layer.path)?;
    file.seek(SeekFrom::Start(layer.offset))?;
    let mut reader = BufReader::with_capacity(COPY_BUFFER, file.take(layer.size));
    let start = reader.fill_buf()?;
    if start.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(MultiGzDecoder::new(reader)));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let mut decoder = zstd::Decoder::with_buffer(reader)?;
        decoder.window_log_max(ZSTD_WINDOW_LOG_MAX)?;
        return Ok(Box::new(decoder));
    }
    Ok(Box::new(reader))
}

struct Unpacker<'a> {
    image: &'a str,
    into: &'a Path,
    budgets: &'a Budgets,
    tree: Tree,
    entries: Entries<Metered<Box<dyn Read>>>,
}

impl Unpacker<'_> {
    fn apply_next(&mut self) -> Result<bool, Error> {
        let entry = self.entries.next_entry();
        let Some(entry) = entry.map_err(|e| read_error(self.image, self.budgets, e))? else {
            return Ok(false);
        };
        if !self.budgets.entries.take(1) {
            let (what, limit) = ("the number of files", self.budgets.entries.limit);
            return Err(Error::TooLarge { image: self.image.to_owned(), what, limit });
        }
        let path = tree::components(&entry.path).map_err(|e| self.refused(&entry, e))?;
        match path.split_last() {
            None if entry.kind == Kind::Directory => {
                self.tree.set_root(&attributes(&entry)).map_err(|e| self.refused(&entry, e))?;
            }
            None => return Err(self.refused(&entry, TreeError::Refused("it names the root"))),
            Some((name, parents)) if name.starts_with(WHITEOUT) => {
                self.whiteout(parents, name).map_err(|e| self.refused(&entry, e))?;
            }
            Some((name, parents)) => self.member(&entry, parents, name)?,
        }
        Ok(true)
    }

    fn whiteout(&mut self, parents: &[&[u8]], name: &[u8]) -> Result<(), TreeError> {
        if name == OPAQUE {
            return self.tree.make_opaque(parents);
        }
        if name.starts_with(AUFS) {
            return Ok(());
        }
        match &name[WHITEOUT.len()..] {
            b"" | b"." | b".." => Err(TreeError::Refused("it removes no file name")),
            hidden => self.tree.hide(parents, hidden),
        }
    }

    fn member(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Result<(), Error> {
        let attributes = attributes(entry);
        let made = match entry.kind {
            Kind::File => return self.file(entry, parents, name),
            Kind::Directory => self.tree.directory(parents, name, &attributes),
            Kind::Symlink => self.tree.symlink(parents, name, &entry.link, &attributes),
            Kind::Hardlink => self.tree.hardlink(parents, name, &entry.link),
            Kind::Fifo => self.tree.fifo(parents, name, &attributes),
            // The sandbox has its own /dev; a device in an image could reach the host's hardware.
            Kind::Device => Ok(()),
        };
        made.map_err(|e| self.refused(entry, e))
    }

    fn file(&mut self, entry: &Entry, parents: &[&[u8]], name: &[u8]) -> Result<(), Error> {
        let made = self.tree.file(parents, name);
        let file = made.map_err(|e| self.refused(entry, e))?;
        let mut file = File::from(file);
        let mut buffer =
            vec![0; COPY_BUFFER.min(usize::try_from(entry.size).unwrap_or(COPY_BUFFER))];
        if !buffer.is_empty() {
            loop {
                let count = self.entries.read_content(&mut buffer);
                let count = count.map_err(|e| read_error(self.image, self.budgets, e.into()))?;
                if count == 0 {
                    break;
                }
                file.write_all(&buffer[..count])
                    .map_err(|e| Error::io(self.image, "unpacking into", self.into, e))?;
            }
        }
        let set = tree::set_attributes(file.as_fd(), &attributes(entry));
        set.map_err(|e| self.refused(entry, e.into()))
    }

    fn refused(&self, entry: &Entry, error: TreeError) -> Error {
        match error {
            TreeError::Refused(reason) => Error::Refused {
                image: self.image.to_owned(),
                entry: entry.shown(),
                reason: reason.to_owned(),
            },
            TreeError::Io(source) => {
                Error::io(self.image, "unpacking into", self.into.join(entry.shown()), source)
            }
        }
    }
}

fn attributes(entry: &Entry) -> Attributes<'_> {
    Attributes {
        mode: entry.mode,
        uid: entry.uid,
        gid: entry.gid,
        mtime: entry.mtime,
        xattrs: &entry.xattrs,
    }
}

fn read_error(image: &str, budgets: &Budgets, error: ReadError) -> Error {
    match error {
        ReadError::Malformed(reason) => {
            Error::malformed(image, format!("a layer is damaged: {reason}"))
        }
        ReadError::Io(error) if error.get_ref().is_some_and(|e| e.is::<BudgetSpent>()) => {
            let (what, limit) = ("its unpacked size in bytes", budgets.bytes.limit);
            Error::TooLarge { image: image.to_owned(), what, limit }
        }
        ReadError::Io(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Error::malformed(image, "a layer is cut off before its end")
        }
        ReadError::Io(error) => Error::malformed(image, format!("a layer cannot be read: {error}")),
    }
}
