use crate::{Error, Result};
use std::{
    fs::{File, OpenOptions},
    io::{BufRead, BufReader},
    os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt},
    path::Path,
    time::SystemTime,
};

/// Lines delivered by one window weigh at most this much.
const WINDOW_BYTES_MAX: usize = 32 << 20;

/// An open file to be delivered piece by piece.
#[derive(Debug)]
pub struct Download {
    file: File,
    /// The file's size when it was opened.
    pub size: u64,
    /// When its content had last changed then.
    pub modified_at: SystemTime,
}

/// Opens a regular file for reading, following links.
pub fn open(path: &Path) -> Result<Download> {
    let failed = |error| Error::file("read", path, error);
    // Non-blocking, because opening a pipe would otherwise wait for its other end.
    let opened = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path);
    let file = opened.map_err(failed)?;
    let found = file.metadata().map_err(failed)?;
    if !found.is_file() {
        let problem = "is not a regular file; only those can be read".to_owned();
        return Err(Error::Unsuitable { path: path.to_owned(), problem });
    }
    let modified_at = super::moment(found.mtime(), found.mtime_nsec());
    Ok(Download { file, size: found.len(), modified_at })
}

impl Download {
    pub(super) fn into_file(self) -> File {
        self.file
    }

    /// Up to `length` bytes from `offset`; fewer at the end of the file.
    pub fn read(&self, offset: u64, length: usize) -> Result<Vec<u8>> {
        let mut bytes = vec![0; length];
        let mut filled = 0;
        while filled < length {
            let read = self.file.read_at(&mut bytes[filled..], offset + filled as u64);
            match read.map_err(Error::system("read the file"))? {
                0 => break,
                count => filled += count,
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }
}

/// Lines `offset..offset + limit` of a file, counted from 1, joined by newlines.
pub fn lines(path: &Path, offset: u64, limit: Option<u64>) -> Result<Vec<u8>> {
    let mut reader = BufReader::new(open(path)?.file);
    let failed = |error| Error::file("read", path, error);
    let (mut window, mut line, mut taken) = (Vec::new(), Vec::new(), 0);
    for number in 1.. {
        if limit.is_some_and(|limit| taken >= limit) {
            break;
        }
        line.clear();
        let mut bounded = std::io::Read::take(&mut reader, WINDOW_BYTES_MAX as u64 + 1);
        if bounded.read_until(b'\n', &mut line).map_err(failed)? == 0 {
            break;
        }
        if number < offset {
            continue;
        }
        if taken > 0 {
            window.push(b'\n');
        }
        window.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(&line));
        taken += 1;
        if window.len() > WINDOW_BYTES_MAX {
            let problem = format!("more than {WINDOW_BYTES_MAX} bytes; ask for fewer lines");
            return Err(Error::invalid("limit", problem));
        }
    }
    Ok(window)
}
