//! Named pieces of a layout directory or of an archive, read the same way.

use crate::{
    Error,
    tarball::{Entries, Kind, ReadError},
    unpack::Section,
};
use std::{
    collections::HashMap,
    fs::File,
    io::{BufReader, Read, Seek, SeekFrom},
    path::PathBuf,
};

/// Bound on the members of an archive, whose names are held in memory.
const MEMBERS_MAX: usize = 100_000;

/// Where the pieces are.
pub(super) struct Place {
    pub(super) image: String,
    path: PathBuf,
    /// Members by name; none for a directory.
    members: Option<HashMap<String, Member>>,
}

enum Member {
    Content { offset: u64, size: u64 },
    Link(String),
}

impl Place {
    pub(super) fn directory(image: &str, path: PathBuf) -> Self {
        Self { image: image.to_owned(), path, members: None }
    }

    /// Lists the members of an archive without reading their content.
    pub(super) fn archive(image: &str, path: PathBuf) -> Result<Self, Error> {
        let mut place = Self { image: image.to_owned(), path, members: None };
        let file = File::open(&place.path).map_err(|e| place.unreadable(e.to_string()))?;
        let mut entries = Entries::new(BufReader::new(file));
        let mut members = HashMap::new();
        loop {
            let entry = match entries.next_entry() {
                Ok(Some(entry)) => entry,
                Ok(None) => break,
                Err(error @ (ReadError::Malformed(_) | ReadError::Io(_))) => {
                    let remedy = "it must be an uncompressed tar";
                    return Err(place.unreadable(format!("{error}; {remedy}")));
                }
            };
            if members.len() == MEMBERS_MAX {
                return Err(place.unreadable(format!("it has over {MEMBERS_MAX} members")));
            }
            let name = normal(&String::from_utf8_lossy(&entry.path));
            let member = match entry.kind {
                Kind::File => Member::Content { offset: entry.offset, size: entry.size },
                Kind::Symlink => {
                    let directory = name.rsplit_once('/').map_or("", |(directory, _)| directory);
                    let link = String::from_utf8_lossy(&entry.link).into_owned();
                    Member::Link(normal(&format!("{directory}/{link}")))
                }
                Kind::Hardlink => Member::Link(normal(&String::from_utf8_lossy(&entry.link))),
                Kind::Directory | Kind::Fifo | Kind::Device => continue,
            };
            members.insert(name, member);
        }
        place.members = Some(members);
        Ok(place)
    }

    pub(super) fn has(&self, name: &str) -> bool {
        match &self.members {
            Some(members) => members.contains_key(name),
            None => self.path.join(name).is_file(),
        }
    }

    /// Where a piece's content is. Names come from metadata, so they may not leave the place.
    pub(super) fn section(&self, name: &str) -> Result<Section, Error> {
        let missing = || self.unreadable(format!("it has no {name}"));
        let Some(members) = &self.members else {
            if normal(name) != name {
                return Err(missing());
            }
            let path = self.path.join(name);
            let found = std::fs::metadata(&path).map_err(|_| missing())?;
            return Ok(Section { path, offset: 0, size: found.len() });
        };
        // Old archives link equal layers; one step is all they use.
        let member = match members.get(&normal(name)) {
            Some(Member::Link(target)) => members.get(target),
            direct => direct,
        };
        match member {
            Some(Member::Content { offset, size }) => {
                Ok(Section { path: self.path.clone(), offset: *offset, size: *size })
            }
            Some(Member::Link(_)) | None => Err(missing()),
        }
    }

    /// Reads a bounded piece.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> Result<Vec<u8>, Error> {
        let section = self.section(name)?;
        if section.size > bytes_max {
            return Err(self.unreadable(format!("its {name} is over {bytes_max} bytes")));
        }
        let mut bytes = Vec::new();
        let read = File::open(&section.path).and_then(|mut file| {
            file.seek(SeekFrom::Start(section.offset))?;
            file.take(section.size).read_to_end(&mut bytes)
        });
        read.map_err(|e| self.unreadable(format!("its {name}: {e}")))?;
        Ok(bytes)
    }

    pub(super) fn unreadable(&self, reason: String) -> Error {
        Error::LocalSource { image: self.image.clone(), path: self.path.clone(), reason }
    }

    pub(super) fn not_found(&self) -> Error {
        Error::NotFound { image: self.image.clone(), place: self.path.display().to_string() }
    }
}

/// A name without `.`, `..` and doubled slashes.
fn normal(name: &str) -> String {
    let mut parts = Vec::new();
    for part in name.split('/') {
        match part {
            "" | "." => {}
            ".." => drop(parts.pop()),
            part => parts.push(part),
        }
    }
    parts.join("/")
}
