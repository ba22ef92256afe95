//! `atoll logs`.

use std::process::ExitCode;

use crate::client::Client;
use crate::error::Error;
use crate::output;

/// Prints what the entrypoint printed, byte for byte.
pub(super) async fn run(client: &Client, id: &str, tail: Option<usize>) -> Result<ExitCode, Error> {
    let log = client.logs(id).await?;
    output::bytes(tail.map_or(&log, |lines| last_lines(&log, lines)))?;
    Ok(ExitCode::SUCCESS)
}

/// The last `count` lines; one without its newline at the end counts too.
fn last_lines(log: &[u8], count: usize) -> &[u8] {
    let body = log.strip_suffix(b"\n").unwrap_or(log);
    let ends = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    match (count, ends.map(|(at, _)| at).nth(count.saturating_sub(1))) {
        (0, _) => &[],
        (_, Some(at)) => &log[at + 1..],
        (_, None) => log,
    }
}

#[cfg(test)]
mod tests {
    use super::last_lines;

    #[test]
    fn lines_are_counted_from_the_end() {
        let log = b"a\nb\n\nc\n";
        let expected: [&[u8]; 6] =
            [b"", b"c\n", b"\nc\n", b"b\n\nc\n", b"a\nb\n\nc\n", b"a\nb\n\nc\n"];
        for (count, lines) in expected.iter().enumerate() {
            assert_eq!(last_lines(log, count), *lines, "{count}");
        }
        assert_eq!(last_lines(b"a\nb", 1), b"b");
        assert_eq!(last_lines(b"", 3), b"");
    }
}
