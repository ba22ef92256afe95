use std::collections::VecDeque;

/// Output kept for replay.
const KEPT_BYTES: u64 = 1 << 20;
/// Small writes are joined up to this size, so that the bookkeeping stays small too.
const JOINED_BYTES_MAX: usize = 16 * 1024;

/// Which stream printed something.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    /// Standard output, or a terminal.
    Stdout,
    /// Standard error behind pipes.
    Stderr,
}

/// A run of output of one stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// Position of its first byte in the whole output.
    pub offset: u64,
    /// Who printed it.
    pub stream: Stream,
    /// The bytes.
    pub bytes: Vec<u8>,
}

/// The last bytes of an endless output, with their streams.
#[derive(Debug, Default)]
pub(super) struct History {
    pieces: VecDeque<Piece>,
    total: u64,
    kept: u64,
}

impl History {
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    /// The nearest position that is still kept.
    pub(super) fn clamp(&self, position: u64) -> u64 {
        position.clamp(self.total - self.kept, self.total)
    }

    pub(super) fn push(&mut self, stream: Stream, bytes: &[u8]) {
        match self.pieces.back_mut() {
            Some(last)
                if last.stream == stream && last.bytes.len() + bytes.len() <= JOINED_BYTES_MAX =>
            {
                last.bytes.extend_from_slice(bytes);
            }
            _ => {
                let piece = Piece { offset: self.total, stream, bytes: bytes.to_vec() };
                self.pieces.push_back(piece);
            }
        }
        self.total += bytes.len() as u64;
        self.kept += bytes.len() as u64;
        while self.kept > KEPT_BYTES {
            let Some(oldest) = self.pieces.pop_front() else { break };
            self.kept -= oldest.bytes.len() as u64;
        }
    }

    /// The rest of the piece that holds `position`, or of the oldest one after it.
    pub(super) fn piece(&self, position: u64) -> Option<Piece> {
        let position = self.clamp(position);
        let end = |piece: &Piece| piece.offset + piece.bytes.len() as u64;
        let found = self.pieces.get(self.pieces.partition_point(|piece| end(piece) <= position))?;
        let bytes = found.bytes[(position - found.offset) as usize..].to_vec();
        Some(Piece { offset: position, stream: found.stream, bytes })
    }

    /// Everything from `position` on, with the position it really begins at.
    pub(super) fn since(&self, position: u64) -> (u64, Vec<u8>) {
        let start = self.clamp(position);
        let mut bytes = Vec::with_capacity((self.total - start) as usize);
        while let Some(piece) = self.piece(start + bytes.len() as u64) {
            bytes.extend_from_slice(&piece.bytes);
        }
        (start, bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn what_is_kept_is_the_end_of_the_output(
            writes in prop::collection::vec((any::<bool>(), 1usize..90_000), 1..40),
            position in 0u64..3_000_000,
        ) {
            let (mut history, mut all) = (History::default(), Vec::new());
            for (index, (error, length)) in writes.iter().enumerate() {
                let bytes = vec![index as u8; *length];
                history.push(if *error { Stream::Stderr } else { Stream::Stdout }, &bytes);
                all.extend_from_slice(&bytes);
            }
            let (start, bytes) = history.since(position);
            prop_assert!(history.kept <= KEPT_BYTES);
            prop_assert_eq!(history.total(), all.len() as u64);
            prop_assert_eq!(&bytes, &all[start as usize..]);
            prop_assert!(start >= position.min(all.len() as u64));
        }
    }

    #[test]
    fn pieces_keep_their_stream() {
        let mut history = History::default();
        history.push(Stream::Stdout, b"ab");
        history.push(Stream::Stdout, b"c");
        history.push(Stream::Stderr, b"d");
        let piece =
            |offset, stream, bytes: &[u8]| Some(Piece { offset, stream, bytes: bytes.to_vec() });
        assert_eq!(history.piece(1), piece(1, Stream::Stdout, b"bc"));
        assert_eq!(history.piece(3), piece(3, Stream::Stderr, b"d"));
        assert_eq!(history.piece(4), None);
    }
}
