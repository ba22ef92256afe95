use super::{Kind, invalid};
use bytes::{Buf, Bytes, BytesMut};
use std::io;

/// The largest message that is kept, all parts together.
pub(crate) const MESSAGE_BYTES_MAX: usize = 32 << 20;
/// More parts than any message of a kernel has.
const PARTS_MAX: usize = 256;
const COMMAND_BYTES_MAX: u64 = 4096;

const MORE: u8 = 1;
const LONG: u8 = 2;
const COMMAND: u8 = 4;

/// One thing that a peer sent.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Item {
    Message(Vec<Bytes>),
    TooLarge,
    Command(Bytes),
}

/// Cuts a byte stream into messages.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    parts: Vec<Bytes>,
    kept_bytes: usize,
    /// The message at hand exceeds the bound; its parts are dropped up to its end.
    dropping: bool,
    /// Bytes of the part at hand that are still to be dropped, and whether more parts follow.
    skip: Option<(u64, bool)>,
}

struct Header {
    flags: u8,
    header_bytes: usize,
    body_bytes: u64,
}

impl Decoder {
    /// Takes the next item out of the buffer; nothing while it is incomplete.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> io::Result<Option<Item>> {
        loop {
            if let Some((left, more)) = self.skip {
                let now = left.min(buffer.len() as u64);
                buffer.advance(now as usize);
                if now < left {
                    self.skip = Some((left - now, more));
                    return Ok(None);
                }
                self.skip = None;
                if !more {
                    return Ok(Some(self.finish()));
                }
            }
            let Some(Header { flags, header_bytes, body_bytes }) = header(buffer)? else {
                return Ok(None);
            };
            let more = flags & MORE != 0;
            if flags & COMMAND == 0 && !self.fits(body_bytes) {
                self.dropping = true;
                self.parts.clear();
                buffer.advance(header_bytes);
                self.skip = Some((body_bytes, more));
                continue;
            }
            // Both bounds lie far below what a usize holds.
            let body_bytes = body_bytes as usize;
            if buffer.len() - header_bytes < body_bytes {
                buffer.reserve(header_bytes + body_bytes - buffer.len());
                return Ok(None);
            }
            buffer.advance(header_bytes);
            let body = buffer.split_to(body_bytes).freeze();
            if flags & COMMAND != 0 {
                return Ok(Some(Item::Command(body)));
            }
            self.kept_bytes += body.len();
            self.parts.push(body);
            if !more {
                return Ok(Some(self.finish()));
            }
        }
    }

    fn fits(&self, body_bytes: u64) -> bool {
        let room = (MESSAGE_BYTES_MAX - self.kept_bytes) as u64;
        !self.dropping && body_bytes <= room && self.parts.len() < PARTS_MAX
    }

    fn finish(&mut self) -> Item {
        let Self { parts, dropping, .. } = std::mem::take(self);
        if dropping { Item::TooLarge } else { Item::Message(parts) }
    }
}

fn header(buffer: &[u8]) -> io::Result<Option<Header>> {
    let Some(flags) = buffer.first().copied() else { return Ok(None) };
    let is_command = flags & COMMAND != 0;
    if flags & !(MORE | LONG | COMMAND) != 0 || (is_command && flags & MORE != 0) {
        return Err(invalid("a frame has flags that do not exist"));
    }
    let (header_bytes, body_bytes) = if flags & LONG == 0 {
        let Some(size) = buffer.get(1) else { return Ok(None) };
        (2, u64::from(*size))
    } else {
        let Some(size) = buffer.get(1..9) else { return Ok(None) };
        (9, u64::from_be_bytes(size.try_into().expect("the slice has eight bytes")))
    };
    if is_command && body_bytes > COMMAND_BYTES_MAX {
        return Err(invalid("a command is too long"));
    }
    Ok(Some(Header { flags, header_bytes, body_bytes }))
}

/// One message on the wire.
pub(super) fn encode(parts: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(parts.iter().map(|part| part.len() + 9).sum());
    for (index, part) in parts.iter().enumerate() {
        let more = if index + 1 < parts.len() { MORE } else { 0 };
        push_frame(&mut bytes, more, part);
    }
    bytes
}

/// The command that says what this end is.
pub(super) fn ready(kind: Kind) -> Vec<u8> {
    let kind: &[u8] = match kind {
        Kind::Dealer => b"DEALER",
        Kind::Subscriber => b"SUB",
    };
    let mut body = b"\x05READY\x0bSocket-Type".to_vec();
    body.extend_from_slice(&(kind.len() as u32).to_be_bytes());
    body.extend_from_slice(kind);
    let mut bytes = Vec::new();
    push_frame(&mut bytes, COMMAND, &body);
    bytes
}

fn push_frame(bytes: &mut Vec<u8>, flags: u8, body: &[u8]) {
    match u8::try_from(body.len()) {
        Ok(size) => bytes.extend_from_slice(&[flags, size]),
        Err(_) => {
            bytes.push(flags | LONG);
            bytes.extend_from_slice(&(body.len() as u64).to_be_bytes());
        }
    }
    bytes.extend_from_slice(body);
}
