//! The entrypoint's output, as kept in the ring that the agent fills.

use atoll_control::LogTail;
use atoll_guest::ring;

/// What a ring holds, oldest first. Its bytes come from inside a sandbox: nothing is believed.
pub(crate) fn from_ring(ring: &[u8]) -> LogTail {
    let written = ring
        .first_chunk::<{ ring::HEADER_BYTES }>()
        .map_or(0, |header| u64::from_le_bytes(*header));
    let bytes = ring::read(ring);
    let truncated = written > bytes.len() as u64;
    LogTail { bytes, truncated }
}

/// At most the last `bytes_max` bytes.
pub(crate) fn tail(mut log: LogTail, bytes_max: usize) -> LogTail {
    let extra = log.bytes.len().saturating_sub(bytes_max);
    log.bytes.drain(..extra);
    log.truncated |= extra > 0;
    log
}
