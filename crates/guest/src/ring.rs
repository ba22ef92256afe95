//! A byte ring in a file that two processes share: the last bytes of an endless log.
//!
//! Layout: bytes `0..8` are the little-endian count of bytes ever written, the rest is the ring;
//! byte number `n` of the log lies at `8 + n % capacity`. The writer stores data before the count,
//! so a reader sees at worst a torn line at the oldest end, never bytes that were not written.

use std::{
    fs::File,
    io,
    os::unix::fs::FileExt,
    sync::{Mutex, PoisonError},
};

/// Bytes before the ring's data.
pub const HEADER_BYTES: usize = 8;

/// The writing end, and the reading end within the same process.
#[derive(Debug)]
pub struct Ring {
    file: File,
    capacity: u64,
    total: Mutex<u64>,
}

impl Ring {
    /// Makes a ring out of an empty file, growing it to the header and `capacity` bytes.
    pub fn create(file: File, capacity: u64) -> io::Result<Self> {
        file.set_len(HEADER_BYTES as u64 + capacity)?;
        Self::adopt(file)
    }

    /// Continues the ring that a file already holds; its size fixes the capacity.
    pub fn adopt(file: File) -> io::Result<Self> {
        let capacity = file.metadata()?.len().saturating_sub(HEADER_BYTES as u64);
        if capacity == 0 {
            return Err(io::Error::new(io::ErrorKind::InvalidInput, "the ring file is too small"));
        }
        let mut header = [0; HEADER_BYTES];
        file.read_exact_at(&mut header, 0)?;
        Ok(Self { file, capacity, total: Mutex::new(u64::from_le_bytes(header)) })
    }

    /// Appends bytes, overwriting the oldest ones once the ring is full.
    pub fn append(&self, bytes: &[u8]) -> io::Result<()> {
        let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        let skipped = bytes.len().saturating_sub(self.capacity as usize);
        let start = total.wrapping_add(skipped as u64);
        for (position, part) in split(start, &bytes[skipped..], self.capacity) {
            self.file.write_all_at(part, HEADER_BYTES as u64 + position)?;
        }
        *total = total.wrapping_add(bytes.len() as u64);
        self.file.write_all_at(&total.to_le_bytes(), 0)
    }

    /// The bytes from log position `cursor` on (or from the oldest kept), and the next position.
    pub fn since(&self, cursor: u64) -> io::Result<(Vec<u8>, u64)> {
        let total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
        let start = cursor.clamp(total.saturating_sub(self.capacity), *total);
        let mut bytes = vec![0; (*total - start) as usize];
        let first = bytes.len().min((self.capacity - start % self.capacity) as usize);
        let (head, tail) = bytes.split_at_mut(first);
        self.file.read_exact_at(head, HEADER_BYTES as u64 + start % self.capacity)?;
        self.file.read_exact_at(tail, HEADER_BYTES as u64)?;
        Ok((bytes, *total))
    }
}

/// Reads what is kept in a ring from the file's whole content, oldest byte first.
///
/// The content may come from a hostile sandbox: any bytes are answered with at most the ring's
/// capacity, never with a panic.
pub fn read(bytes: &[u8]) -> Vec<u8> {
    let Some((header, data)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
        return Vec::new();
    };
    let (total, capacity) = (u64::from_le_bytes(*header), data.len() as u64);
    if capacity == 0 || total <= capacity {
        return data[..total.min(capacity) as usize].to_vec();
    }
    let (newest, oldest) = data.split_at((total % capacity) as usize);
    [oldest, newest].concat()
}

/// The last `count` lines of a text; a final newline ends a line and begins none.
pub fn last_lines(text: &[u8], count: usize) -> &[u8] {
    if count == 0 {
        return &[];
    }
    let body = text.strip_suffix(b"\n").unwrap_or(text);
    let breaks = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match breaks.map(|(at, _)| at).nth(count - 1) {
        Some(at) => &text[at + 1..],
        None => text,
    }
}

/// Where the bytes of log position `start` and on lie in the ring: at most two runs.
fn split(start: u64, bytes: &[u8], capacity: u64) -> [(u64, &[u8]); 2] {
    let position = start % capacity;
    let first = bytes.len().min((capacity - position) as usize);
    let (head, tail) = bytes.split_at(first);
    [(position, head), (0, tail)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_ring_keeps_the_newest_bytes(
            capacity in 1u64..40,
            writes in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..60), 0..12),
            cursor in 0u64..400,
        ) {
            let ring = Ring::create(tempfile::tempfile().unwrap(), capacity).unwrap();
            let mut log = Vec::new();
            for bytes in &writes {
                ring.append(bytes).unwrap();
                log.extend_from_slice(bytes);
            }
            let oldest = log.len().saturating_sub(capacity as usize);
            let mut content = vec![0; HEADER_BYTES + capacity as usize];
            ring.file.read_exact_at(&mut content, 0).unwrap();
            prop_assert_eq!(read(&content), &log[oldest..]);
            let from = (cursor as usize).clamp(oldest, log.len());
            prop_assert_eq!(ring.since(cursor).unwrap(), (log[from..].to_vec(), log.len() as u64));
        }

        #[test]
        fn any_content_is_read_without_panic(content in prop::collection::vec(any::<u8>(), 0..64)) {
            prop_assert!(read(&content).len() <= content.len().saturating_sub(HEADER_BYTES));
        }
    }

    #[test]
    fn a_ring_is_continued_after_adoption() {
        let file = tempfile::tempfile().unwrap();
        let ring = Ring::create(file.try_clone().unwrap(), 8).unwrap();
        ring.append(b"abcdef").unwrap();
        drop(ring);
        let ring = Ring::adopt(file).unwrap();
        ring.append(b"ghij").unwrap();
        assert_eq!(ring.since(0).unwrap(), (b"cdefghij".to_vec(), 10));
    }

    #[test]
    fn the_last_lines_are_cut_at_newlines() {
        let cases: [(&[u8], usize, &[u8]); 7] = [
            (b"a\nb\nc\n", 2, b"b\nc\n"),
            (b"a\nb\nc", 1, b"c"),
            (b"a\nb\n", 9, b"a\nb\n"),
            (b"a\nb\n", 0, b""),
            (b"", 3, b""),
            (b"\n\n", 1, b"\n"),
            (b"one", 1, b"one"),
        ];
        for (text, count, want) in cases {
            assert_eq!(last_lines(text, count), want, "{text:?} {count}");
        }
    }
}
