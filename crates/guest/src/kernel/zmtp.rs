//! Just enough of ZMTP 3.0 to speak with a kernel: one peer, no encryption, DEALER and SUB.
//!
//! Written here because the whole need is one greeting, one command and a frame header, while the
//! existing client libraries bring socket patterns, reconnection and some twenty crates into the
//! agent that every sandbox holds in memory.

mod frame;

use bytes::{Bytes, BytesMut};
use frame::{Decoder, Item};
use std::io;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

pub(super) use frame::MESSAGE_BYTES_MAX;

const GREETING_BYTES: usize = 64;
const READ_BYTES: usize = 16 * 1024;

/// What this end is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// Asks and is answered.
    Dealer,
    /// Listens to everything that the peer publishes.
    Subscriber,
}

/// What a peer says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Incoming {
    /// One message, in its parts.
    Message(Vec<Bytes>),
    /// A message beyond the bound, which was thrown away.
    TooLarge,
}

/// A connection over which messages go both ways.
#[derive(Debug)]
pub(super) struct Socket {
    stream: TcpStream,
    buffer: BytesMut,
    decoder: Decoder,
}

impl Socket {
    /// Greets the peer at the other end and agrees with it on the kind.
    pub(super) async fn open(stream: TcpStream, kind: Kind) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let mut socket = Self { stream, buffer: BytesMut::new(), decoder: Decoder::default() };
        socket.stream.write_all(&greeting()).await?;
        let mut theirs = [0; GREETING_BYTES];
        socket.stream.read_exact(&mut theirs).await?;
        check_greeting(&theirs)?;
        socket.stream.write_all(&frame::ready(kind)).await?;
        match socket.item().await? {
            Item::Command(body) if body.starts_with(b"\x05READY") => {}
            _ => return Err(invalid("the peer did not say that it is ready")),
        }
        if kind == Kind::Subscriber {
            // A subscription to every topic: one, and an empty prefix.
            socket.send(&[b"\x01"]).await?;
        }
        Ok(socket)
    }

    /// Sends one message.
    pub(super) async fn send(&mut self, parts: &[&[u8]]) -> io::Result<()> {
        self.stream.write_all(&frame::encode(parts)).await
    }

    /// The next message. Safe to cancel.
    pub(super) async fn receive(&mut self) -> io::Result<Incoming> {
        loop {
            match self.item().await? {
                Item::Message(parts) => return Ok(Incoming::Message(parts)),
                Item::TooLarge => return Ok(Incoming::TooLarge),
                // Heartbeats are only sent to those who ask for them; nothing else is of use.
                Item::Command(_) => {}
            }
        }
    }

    async fn item(&mut self) -> io::Result<Item> {
        loop {
            if let Some(item) = self.decoder.decode(&mut self.buffer)? {
                return Ok(item);
            }
            self.buffer.reserve(READ_BYTES);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

/// Signature, version 3.0, the mechanism without encryption, and not being its server.
fn greeting() -> [u8; GREETING_BYTES] {
    let mut bytes = [0; GREETING_BYTES];
    (bytes[0], bytes[8], bytes[9], bytes[10]) = (0xFF, 1, 0x7F, 3);
    bytes[12..16].copy_from_slice(b"NULL");
    bytes
}

fn check_greeting(bytes: &[u8; GREETING_BYTES]) -> io::Result<()> {
    let mechanism = &bytes[12..32];
    let is_null = mechanism.starts_with(b"NULL\0");
    match (bytes[0], bytes[9], bytes[10]) {
        (0xFF, 0x7F, 3..) if is_null => Ok(()),
        _ => Err(invalid("the peer does not speak ZMTP 3 without encryption")),
    }
}

fn invalid(problem: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, problem)
}

#[cfg(test)]
mod tests;
