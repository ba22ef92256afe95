//! A streaming reader of tar archives that never holds more than one bounded header in memory.

mod pax;

use pax::Extensions;
use std::{
    fs::File,
    io::{self, BufReader, Read},
};
use tar::{EntryType, Header};

const BLOCK: u64 = 512;
/// Bound on one extended header, which is held in memory.
const EXTENSION_BYTES_MAX: u64 = 1 << 20;

/// Why an archive cannot be read on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReadError {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("{0}")]
    Malformed(String),
}

/// A reader that can pass over bytes, by seeking where it is able to.
pub(crate) trait Skip: Read + Sized {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let skipped = io::copy(&mut self.by_ref().take(count), &mut io::sink())?;
        if skipped == count { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
    }
}

impl Skip for BufReader<File> {
    fn skip(&mut self, count: u64) -> io::Result<()> {
        let distance = i64::try_from(count).map_err(|_| io::ErrorKind::InvalidData)?;
        self.seek_relative(distance)
    }
}

impl<R: Read> Skip for crate::digest::Metered<R> {}

/// What an entry is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Directory,
    Symlink,
    Hardlink,
    Fifo,
    Device,
}

/// One archive member, without its content.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) path: Vec<u8>,
    pub(crate) link: Vec<u8>,
    pub(crate) kind: Kind,
    pub(crate) mode: u32,
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    pub(crate) mtime: (i64, u32),
    pub(crate) size: u64,
    /// Where the content starts in the archive.
    pub(crate) offset: u64,
    pub(crate) xattrs: Vec<(String, Vec<u8>)>,
}

impl Entry {
    /// Path for messages.
    pub(crate) fn shown(&self) -> String {
        String::from_utf8_lossy(&self.path).chars().take(300).collect()
    }
}

/// Walks an archive entry by entry.
pub(crate) struct Entries<R> {
    reader: R,
    position: u64,
    /// Content bytes of the current entry not read yet.
    content_left: u64,
    /// Bytes that fill up its last block.
    padding: u64,
    globals: Extensions,
}

impl<R: Skip> Entries<R> {
    pub(crate) fn new(reader: R) -> Self {
        Self { reader, position: 0, content_left: 0, padding: 0, globals: Extensions::default() }
    }

    pub(crate) fn into_inner(self) -> R {
        self.reader
    }

    /// Reads content of the current entry; 0 at its end.
    pub(crate) fn read_content(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.content_left == 0 {
            return Ok(0);
        }
        let wanted = buffer.len().min(usize::try_from(self.content_left).unwrap_or(usize::MAX));
        let count = self.reader.read(&mut buffer[..wanted])?;
        if count == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.content_left -= count as u64;
        self.position += count as u64;
        Ok(count)
    }

    /// The next member, passing over what was not read of the current one.
    pub(crate) fn next_entry(&mut self) -> Result<Option<Entry>, ReadError> {
        let mut own = Extensions::default();
        loop {
            self.finish_entry()?;
            let Some(block) = self.read_header()? else { return Ok(None) };
            let header = Header::from_byte_slice(&block);
            let size = own.size().map_or_else(|| number(&header.as_old().size), Ok)?;
            self.content_left = size;
            self.padding = size.next_multiple_of(BLOCK) - size;
            match header.entry_type() {
                EntryType::XHeader => own.add_pax(&self.read_extension(size)?)?,
                EntryType::XGlobalHeader => {
                    let records = self.read_extension(size)?;
                    self.globals.add_pax(&records)?;
                }
                EntryType::GNULongName => own.set_path(self.read_extension(size)?),
                EntryType::GNULongLink => own.set_link(self.read_extension(size)?),
                kind => {
                    let kind = member_kind(kind, &own)?;
                    return self.entry(header, kind, size, own).map(Some);
                }
            }
        }
    }

    fn finish_entry(&mut self) -> io::Result<()> {
        let left = self.content_left + self.padding;
        if left > 0 {
            self.reader.skip(left)?;
        }
        self.position += left;
        (self.content_left, self.padding) = (0, 0);
        Ok(())
    }

    /// One header block; none at the end of the archive.
    fn read_header(&mut self) -> Result<Option<[u8; 512]>, ReadError> {
        let mut block = [0; 512];
        let mut filled = 0;
        while filled < block.len() {
            match self.reader.read(&mut block[filled..])? {
                0 if filled == 0 => return Ok(None),
                0 => return Err(ReadError::Malformed("the archive is cut off".into())),
                count => filled += count,
            }
        }
        self.position += BLOCK;
        if block.iter().all(|byte| *byte == 0) {
            return Ok(None);
        }
        // The checksum is taken with its own field as spaces.
        let sum: u32 = block
            .iter()
            .enumerate()
            .map(|(at, byte)| u32::from(if (148..156).contains(&at) { b' ' } else { *byte }))
            .sum();
        if number(&Header::from_byte_slice(&block).as_old().cksum)? != u64::from(sum) {
            return Err(ReadError::Malformed("the archive has a damaged header".into()));
        }
        Ok(Some(block))
    }

    fn read_extension(&mut self, size: u64) -> Result<Vec<u8>, ReadError> {
        if size > EXTENSION_BYTES_MAX {
            let reason = format!("an extended header is over {EXTENSION_BYTES_MAX} bytes");
            return Err(ReadError::Malformed(reason));
        }
        let mut bytes = vec![0; usize::try_from(size).expect("checked against the bound")];
        let mut filled = 0;
        while filled < bytes.len() {
            filled += self.read_content(&mut bytes[filled..])?;
        }
        Ok(bytes)
    }

    fn entry(
        &self,
        header: &Header,
        kind: Kind,
        size: u64,
        own: Extensions,
    ) -> Result<Entry, ReadError> {
        let (globals, fields) = (&self.globals, header.as_old());
        let link = header.link_name_bytes().map(|name| name.into_owned()).unwrap_or_default();
        Ok(Entry {
            path: own.path().or(globals.path()).unwrap_or_else(|| header.path_bytes().into_owned()),
            link: own.link().or(globals.link()).unwrap_or(link),
            kind,
            mode: u32::try_from(number(&fields.mode)? & 0o7777).expect("twelve bits fit"),
            uid: owner(own.uid().or(globals.uid()).map_or_else(|| number(&fields.uid), Ok)?)?,
            gid: owner(own.gid().or(globals.gid()).map_or_else(|| number(&fields.gid), Ok)?)?,
            mtime: own.mtime().or(globals.mtime()).unwrap_or_else(|| {
                let seconds = number(&fields.mtime).ok().and_then(|n| i64::try_from(n).ok());
                (seconds.unwrap_or(0), 0)
            }),
            size,
            offset: self.position,
            xattrs: own.into_xattrs(),
        })
    }
}

/// A numeric field: octal digits, or binary when the first bit is set; blank means 0.
fn number(field: &[u8]) -> Result<u64, ReadError> {
    let unusable = || ReadError::Malformed("a header of the archive has a damaged number".into());
    if let [first, rest @ ..] = field
        && first & 0x80 != 0
    {
        let head = u64::from(first & 0x7f);
        let shifted = |value: u64, byte: &u8| Some(value.checked_mul(256)? | u64::from(*byte));
        return rest.iter().try_fold(head, shifted).ok_or_else(unusable);
    }
    let text = std::str::from_utf8(field).map_err(|_| unusable())?;
    match text.trim_matches(['\0', ' ']) {
        "" => Ok(0),
        digits => u64::from_str_radix(digits, 8).map_err(|_| unusable()),
    }
}

fn owner(id: u64) -> Result<u32, ReadError> {
    u32::try_from(id).map_err(|_| ReadError::Malformed(format!("owner id {id} is too large")))
}

fn member_kind(kind: EntryType, own: &Extensions) -> Result<Kind, ReadError> {
    if own.is_sparse() {
        return Err(ReadError::Malformed("sparse files in archives are not supported".into()));
    }
    Ok(match kind {
        EntryType::Regular | EntryType::Continuous => Kind::File,
        EntryType::Directory => Kind::Directory,
        EntryType::Symlink => Kind::Symlink,
        EntryType::Link => Kind::Hardlink,
        EntryType::Fifo => Kind::Fifo,
        EntryType::Char | EntryType::Block => Kind::Device,
        other => {
            let shown = char::from(other.as_byte()).escape_default();
            return Err(ReadError::Malformed(format!(
                "archive entry type '{shown}' is not supported"
            )));
        }
    })
}
