//! The file of variables: `KEY=VALUE` entries as people and clients write them.
//!
//! A plain value is the rest of its line, without a comment after white space. A quoted value may
//! span lines: single quotes take everything as it is, double quotes know backslash escapes, and
//! quoted and plain pieces may follow each other as in a shell word. Nothing is ever expanded, so
//! a value that a client wrote comes back as it was.

use std::iter::Peekable;

/// The longest `KEY=VALUE` that the kernel hands to a program; a longer one would make every
/// command fail, so it is left out.
const ENTRY_BYTES_MAX: usize = 128 * 1024 - 1;

/// Quotes that turn out not to be well formed, after which no more are tried: each may have been
/// looked for to the end of the file.
const BROKEN_QUOTES_MAX: usize = 64;

/// The variables of a file, in order; what is not an entry is skipped.
pub(super) fn parse(text: &str) -> Vec<(String, String)> {
    let mut entries = Vec::new();
    let (mut rest, mut broken) = (text, 0);
    while !rest.is_empty() {
        let (line, after) = rest.split_once('\n').unwrap_or((rest, ""));
        let Some((name, value)) = split_entry(line) else {
            rest = after;
            continue;
        };
        // A quoted value may go on behind this line.
        let tail = &rest[line.len() - value.len()..];
        let tail = tail.trim_start_matches([' ', '\t']);
        let is_quoted = tail.starts_with(['\'', '"']) && broken < BROKEN_QUOTES_MAX;
        let (value, after) = match is_quoted.then(|| quoted(tail)) {
            Some(Some(found)) => found,
            tried => {
                broken += usize::from(tried.is_some());
                (plain(value).to_owned(), after)
            }
        };
        if name.len() + 1 + value.len() < ENTRY_BYTES_MAX {
            entries.push((name.to_owned(), value));
        }
        rest = after;
    }
    entries
}

/// The name and the text behind `=`, for a line that is an entry.
fn split_entry(line: &str) -> Option<(&str, &str)> {
    let line = line.trim_start();
    let bare = line.strip_prefix("export").filter(|rest| rest.starts_with([' ', '\t']));
    let (name, value) = bare.unwrap_or(line).split_once('=')?;
    let name = name.trim();
    let is_name = !name.is_empty() && !name.starts_with('#') && !name.contains([' ', '\t']);
    is_name.then_some((name, value))
}

/// A value without quotes.
fn plain(value: &str) -> &str {
    let comment = [" #", "\t#"].iter().filter_map(|mark| value.find(mark)).min();
    value[..comment.unwrap_or(value.len())].trim()
}

/// A value that begins with a quote, and what follows its line; nothing when it is not well formed
/// and must be taken as plain.
fn quoted(text: &str) -> Option<(String, &str)> {
    let mut value = String::new();
    let mut chars = text.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '\'' => take_single(&mut chars, &mut value)?,
            '"' => take_double(&mut chars, &mut value)?,
            '\\' => value.push(chars.next().filter(|(_, c)| *c != '\n')?.1),
            c if c.is_whitespace() => return end_of_line(&text[at..]).map(|after| (value, after)),
            c => value.push(c),
        }
    }
    Some((value, ""))
}

fn take_single(
    chars: &mut Peekable<impl Iterator<Item = (usize, char)>>,
    value: &mut String,
) -> Option<()> {
    loop {
        match chars.next()?.1 {
            '\'' => return Some(()),
            c => value.push(c),
        }
    }
}

fn take_double(
    chars: &mut Peekable<impl Iterator<Item = (usize, char)>>,
    value: &mut String,
) -> Option<()> {
    loop {
        match chars.next()?.1 {
            '"' => return Some(()),
            '\\' => match chars.next()?.1 {
                'n' => value.push('\n'),
                'r' => value.push('\r'),
                't' => value.push('\t'),
                c @ ('\\' | '"' | '$' | '`') => value.push(c),
                '\n' => {}
                c => value.extend(['\\', c]),
            },
            c => value.push(c),
        }
    }
}

/// What follows the line, if nothing but space and a comment is left of it.
fn end_of_line(text: &str) -> Option<&str> {
    let (line, after) = text.split_once('\n').unwrap_or((text, ""));
    let left = line.trim_start();
    (left.is_empty() || left.starts_with('#')).then_some(after)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(text: &str, want: &[(&str, &str)]) {
        let found = parse(text);
        let found: Vec<(&str, &str)> =
            found.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        assert_eq!(found, want, "{text:?}");
    }

    #[test]
    fn plain_entries_are_lines() {
        check("A=1\nB=x=y\n\n# C=3\n D = 4 \r\n", &[("A", "1"), ("B", "x=y"), ("D", "4")]);
        check("broken\n=v\nexport A=two words # said\n", &[("A", "two words")]);
        check(r#"J={"a":"b c","d":1}"#, &[("J", r#"{"a":"b c","d":1}"#)]);
        check(
            "U=http://h/#part\nE=\nexportX=1",
            &[("U", "http://h/#part"), ("E", ""), ("exportX", "1")],
        );
        check(r"W=C:\new $HOME", &[("W", r"C:\new $HOME")]);
        check("not a name=1\nA b=2", &[]);
    }

    #[test]
    fn quoted_entries_are_taken_as_written() {
        check("A='a\nb' # two lines\nB=1", &[("A", "a\nb"), ("B", "1")]);
        check(r#"A='x "y" $Z \n #'"#, &[("A", r#"x "y" $Z \n #"#)]);
        check(r#"A="it's \"here\" \\ \n\t $HOME""#, &[("A", "it's \"here\" \\ \n\t $HOME")]);
        check(r#"A='it'"'"'s'"#, &[("A", "it's")]);
        check(r"A='it'\''s' ", &[("A", "it's")]);
        check("export A=\"\"\nB='x'", &[("A", ""), ("B", "x")]);
        check("A=\"C\\:\\d\"", &[("A", "C\\:\\d")]);
    }

    #[test]
    fn quotes_that_do_not_close_are_plain_text() {
        check("A='oops\nB=2\n", &[("A", "'oops"), ("B", "2")]);
        check("A=\"he said\" hello\nB=2", &[("A", "\"he said\" hello"), ("B", "2")]);
        check("A='\\", &[("A", "'\\")]);
        let long = format!("A={}\nB=2", "x".repeat(200_000));
        check(&long, &[("B", "2")]);
    }

    proptest! {
        #[test]
        fn what_a_client_quotes_comes_back(value in "[^\0]{0,40}", other in "[^\0']{0,40}") {
            let escaped = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
            let escaped = escaped.replace('\r', "\\r").replace('\t', "\\t");
            let text = format!("X=\"{escaped}\"\nY='{other}'\n");
            let want = vec![("X".to_owned(), value), ("Y".to_owned(), other)];
            prop_assert_eq!(parse(&text), want);
        }

        #[test]
        fn no_text_is_too_strange(text in "[\\PC\n'\"\\\\=# ]{0,80}") {
            for (name, _) in parse(&text) {
                prop_assert!(!name.is_empty() && !name.contains('='));
            }
        }
    }
}
