//! Any bytes, cut into any pieces, are frames or a clear refusal; how they are cut changes nothing.

#![no_main]

use atoll_e2b::guest::frame::{Decoder, Frame, FrameError};
use libfuzzer_sys::fuzz_target;

const LIMIT: usize = 256;

fn decode<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<Frame>, Result<(), FrameError>) {
    let (mut decoder, mut frames) = (Decoder::new(LIMIT), Vec::new());
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next_frame() {
                Ok(Some(frame)) => {
                    assert!(frame.message.len() <= LIMIT, "longer than allowed");
                    frames.push(frame);
                }
                Ok(None) => break,
                Err(error) => return (frames, Err(error)),
            }
        }
    }
    (frames, decoder.finish())
}

fuzz_target!(|input: (u8, Vec<u8>)| {
    let (cut, bytes) = input;
    let whole = decode(std::iter::once(bytes.as_slice()));
    let pieces = decode(bytes.chunks(usize::from(cut).max(1)));
    assert_eq!(whole, pieces);
});
