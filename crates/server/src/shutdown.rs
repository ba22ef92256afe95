//! The wish to stop.

use tokio::signal::unix::{SignalKind, signal};

/// Returns when the process is told to stop: `SIGTERM`, or `SIGINT` from a keyboard.
///
/// # Errors
/// When the kernel refuses to report signals.
pub async fn signalled() -> std::io::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    tokio::select! {
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
    Ok(())
}
