//! Printing: columns for people, JSON for programs, and a closed pipe that is no surprise.

use std::io::Write;

use serde_json::Value;

use crate::error::Error;

/// Writes all of `text` to stdout.
pub(crate) fn text(text: &str) -> Result<(), Error> {
    bytes(text.as_bytes())
}

/// Writes all of `bytes` to stdout, at once.
pub(crate) fn bytes(bytes: &[u8]) -> Result<(), Error> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).map_err(Error::Output)
}

/// Writes one JSON value and a newline.
pub(crate) fn json(value: &Value) -> Result<(), Error> {
    text(&format!("{value:#}\n"))
}

/// Rows under their headings, each column as wide as its widest cell.
pub(crate) fn table(headings: &[&str], rows: &[Vec<String>]) -> String {
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.chain([headings[column].len()]).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..headings.len()).map(width).collect();
    let line = |cells: &mut dyn Iterator<Item = &str>| {
        let padded = cells.zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        format!("{}\n", padded.collect::<Vec<_>>().join("  ").trim_end())
    };
    let mut text = line(&mut headings.iter().copied());
    for row in rows {
        text.push_str(&line(&mut row.iter().map(String::as_str)));
    }
    text
}

/// Text from a server or a sandbox, without what could drive a terminal.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::{plain, table};

    #[test]
    fn columns_line_up_and_lines_have_no_tail() {
        let rows = [vec!["a".into(), "1".into()], vec!["long".into(), String::new()]];
        assert_eq!(table(&["ID", "N"], &rows), "ID    N\na     1\nlong\n");
    }

    #[test]
    fn terminals_are_not_driven_by_strangers() {
        assert_eq!(plain("a\x1b[31mb\n"), "a [31mb ");
    }
}
