//! Frames of a Connect stream: one byte of flags, four of length, then the message.

use bytes::{Buf, Bytes, BytesMut};

/// Flag of a compressed message.
pub const COMPRESSED: u8 = 1;
/// Flag of the last frame of a response.
pub const END_STREAM: u8 = 2;
/// What precedes every message.
pub const HEAD_BYTES: usize = 5;

/// One whole frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Its flags.
    pub flags: u8,
    /// Its message.
    pub message: Bytes,
}

/// Why bytes are not frames.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// A message is announced longer than allowed; nothing of it is kept.
    #[error("a message of {length} bytes is larger than the {limit} that are allowed")]
    TooLong {
        /// What its head says.
        length: usize,
        /// The bound.
        limit: usize,
    },
    /// The message is compressed, which was not agreed.
    #[error("the message is compressed; send it as identity")]
    Compressed,
    /// The flags mean nothing in a request.
    #[error("the flags {flags:#04x} have no meaning in a request; send 0")]
    UnknownFlags {
        /// As received.
        flags: u8,
    },
    /// The bytes ended inside a frame.
    #[error("the stream ended inside a frame, {missing} bytes early")]
    Incomplete {
        /// How many more were announced.
        missing: usize,
    },
}

/// Puts frames together from bytes that come in any pieces.
#[derive(Debug)]
pub struct Decoder {
    buffer: BytesMut,
    limit: usize,
}

impl Decoder {
    /// A decoder for messages up to `limit` bytes.
    pub fn new(limit: usize) -> Self {
        Self { buffer: BytesMut::new(), limit }
    }

    /// Takes more bytes. Take the frames out before pushing again: what is held is then less than
    /// one frame and one piece.
    pub fn push(&mut self, bytes: &[u8]) {
        self.buffer.extend_from_slice(bytes);
    }

    /// The next whole frame, if there is one. After an error the rest means nothing.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, FrameError> {
        let Some((flags, length)) = self.head() else { return Ok(None) };
        // Judged by the head alone, so that a lie about the length costs nothing.
        match flags {
            0 => {}
            flags if flags & COMPRESSED != 0 => return Err(FrameError::Compressed),
            flags => return Err(FrameError::UnknownFlags { flags }),
        }
        if length > self.limit {
            return Err(FrameError::TooLong { length, limit: self.limit });
        }
        if self.buffer.len() < HEAD_BYTES + length {
            return Ok(None);
        }
        self.buffer.advance(HEAD_BYTES);
        Ok(Some(Frame { flags, message: self.buffer.split_to(length).freeze() }))
    }

    /// Checks that the stream ended between two frames.
    pub fn finish(&self) -> Result<(), FrameError> {
        let wanted = match self.head() {
            Some((_, length)) => HEAD_BYTES + length,
            None if self.buffer.is_empty() => return Ok(()),
            None => HEAD_BYTES,
        };
        Err(FrameError::Incomplete { missing: wanted.saturating_sub(self.buffer.len()) })
    }

    fn head(&self) -> Option<(u8, usize)> {
        let head: [u8; HEAD_BYTES] = self.buffer.get(..HEAD_BYTES)?.try_into().ok()?;
        let [flags, length @ ..] = head;
        Some((flags, u32::from_be_bytes(length) as usize))
    }
}

/// Appends a frame.
pub fn write(into: &mut Vec<u8>, flags: u8, message: &[u8]) {
    let length = u32::try_from(message.len()).expect("answers are far shorter than 4 GiB");
    into.push(flags);
    into.extend_from_slice(&length.to_be_bytes());
    into.extend_from_slice(message);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(pieces: &[&[u8]], limit: usize) -> Result<Vec<Bytes>, FrameError> {
        let (mut decoder, mut messages) = (Decoder::new(limit), Vec::new());
        for piece in pieces {
            decoder.push(piece);
            while let Some(frame) = decoder.next_frame()? {
                messages.push(frame.message);
            }
        }
        decoder.finish().map(|()| messages)
    }

    #[test]
    fn broken_streams_are_told_apart() {
        assert_eq!(decode(&[], 9), Ok(vec![]));
        assert_eq!(decode(&[b"\0\0"], 9), Err(FrameError::Incomplete { missing: 3 }));
        assert_eq!(decode(&[b"\0\0\0\0\x02a"], 9), Err(FrameError::Incomplete { missing: 1 }));
        let long = FrameError::TooLong { length: 10, limit: 9 };
        assert_eq!(decode(&[b"\0\0\0\0\x0a"], 9), Err(long));
        assert_eq!(decode(&[b"\x01\0\0\0\0"], 9), Err(FrameError::Compressed));
        assert_eq!(decode(&[b"\x02\0\0\0\0"], 9), Err(FrameError::UnknownFlags { flags: 2 }));
        let huge = FrameError::TooLong { length: u32::MAX as usize, limit: 9 };
        assert_eq!(decode(&[b"\0\xff\xff\xff\xff"], 9), Err(huge));
    }

    proptest! {
        #[test]
        fn frames_survive_any_splitting(
            messages in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..8),
            cuts in prop::collection::vec(0usize..400, 0..8),
        ) {
            let mut bytes = Vec::new();
            messages.iter().for_each(|message| write(&mut bytes, 0, message));
            let mut cuts: Vec<usize> = cuts.into_iter().map(|cut| cut.min(bytes.len())).collect();
            cuts.extend([0, bytes.len()]);
            cuts.sort_unstable();
            let pieces: Vec<&[u8]> = cuts.windows(2).map(|ends| &bytes[ends[0]..ends[1]]).collect();
            let decoded = decode(&pieces, 40).unwrap();
            prop_assert_eq!(decoded, messages.into_iter().map(Bytes::from).collect::<Vec<_>>());
        }

        #[test]
        fn no_bytes_are_too_strange(bytes in prop::collection::vec(any::<u8>(), 0..64)) {
            let whole = decode(&[&bytes], 16);
            let single: Vec<&[u8]> = bytes.chunks(1).collect();
            prop_assert_eq!(whole, decode(&single, 16));
        }
    }
}
