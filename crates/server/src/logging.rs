//! Log lines.

use std::io::IsTerminal as _;

use tracing_subscriber::EnvFilter;

/// Writes log lines that `filter` lets pass to standard error. A filter that can't be read counts
/// as `info`; a second call changes nothing. Coloured for terminals only.
pub fn init_logging(filter: &str) {
    let filter = EnvFilter::try_new(filter).unwrap_or_else(|_| EnvFilter::new("info"));
    // Fails only when a subscriber is there already, as in tests.
    let _ = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(std::io::stderr().is_terminal())
        .try_init();
}
