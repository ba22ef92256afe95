//! `~` and `$VAR` in path arguments.

use std::path::{Path, PathBuf};

/// Expands a leading `~`, then `$NAME` and `${NAME}` (unset names become empty), and resolves the
/// result against `cwd` when it is relative.
pub fn expand(path: &str, cwd: &Path, lookup: impl Fn(&str) -> Option<String>) -> PathBuf {
    let mut out = String::with_capacity(path.len());
    let mut rest = path;
    if rest == "~" || rest.starts_with("~/") {
        out.push_str(&lookup("HOME").unwrap_or_else(|| "/".to_owned()));
        rest = &rest[1..];
    }
    while let Some(dollar) = rest.find('$') {
        out.push_str(&rest[..dollar]);
        rest = &rest[dollar..];
        let (name, after) = variable(&rest[1..]);
        match name {
            Some(name) => out.push_str(&lookup(name).unwrap_or_default()),
            None => out.push('$'),
        }
        rest = after;
    }
    out.push_str(rest);
    cwd.join(out)
}

/// Splits a variable reference (after its `$`) from what follows it; no name means a plain `$`.
fn variable(text: &str) -> (Option<&str>, &str) {
    if let Some(inner) = text.strip_prefix('{') {
        return match inner.find('}') {
            Some(end) if is_name(&inner[..end]) => (Some(&inner[..end]), &inner[end + 1..]),
            _ => (None, text),
        };
    }
    let end = text.find(|c: char| !(c.is_ascii_alphanumeric() || c == '_')).unwrap_or(text.len());
    if is_name(&text[..end]) { (Some(&text[..end]), &text[end..]) } else { (None, text) }
}

fn is_name(text: &str) -> bool {
    !text.is_empty()
        && !text.starts_with(|c: char| c.is_ascii_digit())
        && text.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_expand_like_a_shell_word() {
        let cases = [
            ("/plain", "/plain"),
            ("rel/file", "/start/rel/file"),
            ("~", "/home/ann"),
            ("~/x", "/home/ann/x"),
            ("~ann/x", "/start/~ann/x"),
            ("/a/~", "/a/~"),
            ("$HOME/x", "/home/ann/x"),
            ("/a/${DIR}b", "/a/someb"),
            ("/a/$DIRb", "/a/"),
            ("/a/$", "/a/$"),
            ("/a/$1", "/a/$1"),
            ("/a/${no", "/a/${no"),
            ("/a/$$DIR", "/a/$some"),
            ("", "/start/"),
        ];
        let lookup = |name: &str| match name {
            "HOME" => Some("/home/ann".to_owned()),
            "DIR" => Some("some".to_owned()),
            _ => None,
        };
        for (given, want) in cases {
            assert_eq!(expand(given, Path::new("/start"), lookup), PathBuf::from(want), "{given}");
        }
    }
}
