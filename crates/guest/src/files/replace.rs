use super::open;
use crate::{Error, Result};
use std::{fs::OpenOptions, io::Write, path::Path};

/// Files larger than this are not edited in memory.
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Replaces every occurrence of `old` in a file, in place; answers how many there were.
pub fn replace(path: &Path, old: &str, new: &str) -> Result<usize> {
    if old.is_empty() {
        return Err(Error::invalid("old", "is empty; give the text to be replaced"));
    }
    let download = open(path)?;
    if download.size > FILE_BYTES_MAX {
        let problem = format!("is larger than {FILE_BYTES_MAX} bytes; edit it with a command");
        return Err(Error::Unsuitable { path: path.to_owned(), problem });
    }
    let content = download.read(0, download.size as usize)?;
    let (edited, count) = replace_all(&content, old.as_bytes(), new.as_bytes());
    if count == 0 {
        return Ok(0);
    }
    // In place, so that owner, mode, hard links and watchers stay.
    let opened = OpenOptions::new().write(true).truncate(true).open(path);
    let written = opened.and_then(|mut file| file.write_all(&edited));
    written.map_err(|error| Error::file("write", path, error))?;
    Ok(count)
}

fn replace_all(content: &[u8], old: &[u8], new: &[u8]) -> (Vec<u8>, usize) {
    let (mut edited, mut count, mut at) = (Vec::with_capacity(content.len()), 0, 0);
    while at < content.len() {
        if content[at..].starts_with(old) {
            edited.extend_from_slice(new);
            at += old.len();
            count += 1;
        } else {
            edited.push(content[at]);
            at += 1;
        }
    }
    (edited, count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_occurrence_is_replaced_once() {
        let cases: [(&str, &str, &str, &str, usize); 5] = [
            ("abab", "ab", "x", "xx", 2),
            ("aaa", "aa", "b", "ba", 1),
            ("none", "x", "y", "none", 0),
            ("a", "a", "aa", "aa", 1),
            ("", "a", "b", "", 0),
        ];
        for (content, old, new, want, count) in cases {
            let (edited, n) = replace_all(content.as_bytes(), old.as_bytes(), new.as_bytes());
            assert_eq!((String::from_utf8(edited).unwrap().as_str(), n), (want, count));
        }
    }
}
