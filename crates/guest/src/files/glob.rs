use crate::{Error, Result};

/// Patterns longer than this are refused.
const PATTERN_CHARS_MAX: usize = 4096;

/// A file name pattern: `*`, `?`, `[a-z]`, `[!a]`, `\x`, and `**` across directories.
///
/// Without a slash it is matched against the last part of a path, otherwise against the whole path
/// below the search's root. `**` alone matches everything.
#[derive(Debug)]
pub struct Pattern {
    parts: Vec<Vec<Token>>,
    whole_path: bool,
}

#[derive(Debug, PartialEq)]
enum Token {
    Literal(char),
    AnyChar,
    AnyText,
    Class { negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Reads a pattern.
    pub fn parse(text: &str) -> Result<Self> {
        if text.chars().count() > PATTERN_CHARS_MAX {
            let problem = format!("longer than {PATTERN_CHARS_MAX} characters; shorten it");
            return Err(Error::invalid("pattern", problem));
        }
        let whole_path = text.contains('/');
        let text = if text.is_empty() { "**" } else { text.trim_start_matches('/') };
        let parts = text.split('/').map(parse_part).collect::<Result<_>>()?;
        Ok(Self { parts, whole_path })
    }

    /// Whether a path relative to the search's root matches.
    pub fn matches(&self, path: &str) -> bool {
        if self.whole_path {
            let parts: Vec<Vec<char>> =
                path.split('/').map(|part| part.chars().collect()).collect();
            return match_parts(&self.parts, &parts);
        }
        let name: Vec<char> = path.rsplit('/').next().unwrap_or(path).chars().collect();
        match_part(&self.parts[0], &name)
    }
}

fn parse_part(text: &str) -> Result<Vec<Token>> {
    let mut tokens = Vec::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        tokens.push(match c {
            '*' => Token::AnyText,
            '?' => Token::AnyChar,
            '\\' => Token::Literal(chars.next().unwrap_or('\\')),
            '[' => parse_class(&mut chars)?,
            c => Token::Literal(c),
        });
    }
    Ok(tokens)
}

fn parse_class(chars: &mut std::iter::Peekable<std::str::Chars<'_>>) -> Result<Token> {
    let negated = chars.next_if(|c| matches!(c, '!' | '^')).is_some();
    let mut ranges = Vec::new();
    loop {
        let unclosed = || Error::invalid("pattern", "a '[' is not closed; add ']' or write '\\['");
        let low = match chars.next().ok_or_else(unclosed)? {
            ']' if !ranges.is_empty() => return Ok(Token::Class { negated, ranges }),
            '\\' => chars.next().ok_or_else(unclosed)?,
            c => c,
        };
        let mut high = low;
        if chars.peek() == Some(&'-') {
            chars.next();
            match chars.peek() {
                Some(']') | None => ranges.push(('-', '-')),
                Some(c) => {
                    high = *c;
                    chars.next();
                }
            }
        }
        ranges.push((low, high));
    }
}

/// Greedy matching with one point to come back to: linear in pattern times text.
fn match_with_retry<P, T>(
    pattern: &[P],
    text: &[T],
    is_any: impl Fn(&P) -> bool,
    one: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut p, mut t) = (0, 0);
    let mut retry: Option<(usize, usize)> = None;
    while t < text.len() {
        if p < pattern.len() && is_any(&pattern[p]) {
            retry = Some((p, t));
            p += 1;
        } else if p < pattern.len() && one(&pattern[p], &text[t]) {
            (p, t) = (p + 1, t + 1);
        } else if let Some((star, consumed)) = retry {
            (p, t) = (star + 1, consumed + 1);
            retry = Some((star, consumed + 1));
        } else {
            return false;
        }
    }
    pattern[p..].iter().all(is_any)
}

fn match_parts(pattern: &[Vec<Token>], path: &[Vec<char>]) -> bool {
    let any_depth = |part: &Vec<Token>| matches!(part[..], [Token::AnyText, Token::AnyText]);
    match_with_retry(pattern, path, any_depth, |part, name| match_part(part, name))
}

fn match_part(pattern: &[Token], name: &[char]) -> bool {
    match_with_retry(pattern, name, |token| *token == Token::AnyText, Token::accepts)
}

impl Token {
    fn accepts(&self, c: &char) -> bool {
        match self {
            Self::Literal(literal) => literal == c,
            Self::AnyChar => true,
            Self::Class { negated, ranges } => {
                ranges.iter().any(|(low, high)| (low..=high).contains(&c)) != *negated
            }
            Self::AnyText => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_match_as_documented() {
        let cases = [
            ("**", "a/b.txt", true),
            ("", "a/b.txt", true),
            ("*.txt", "a/b.txt", true),
            ("*.txt", "a/b.txt.bak", false),
            ("b?.py", "x/b1.py", true),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]x]", "]", true),
            ("[a-]", "-", true),
            ("\\*", "*", true),
            ("\\*", "x", false),
            ("a/*.rs", "a/b.rs", true),
            ("a/*.rs", "a/c/b.rs", false),
            ("a/**/*.rs", "a/c/d/b.rs", true),
            ("a/**/*.rs", "a/b.rs", true),
            ("/a/*.rs", "a/b.rs", true),
            ("**/d", "a/b/d", true),
            ("**/d", "d", true),
            ("*a*a*a*a*b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa", false),
            ("né*", "néon", true),
        ];
        for (pattern, path, want) in cases {
            assert_eq!(Pattern::parse(pattern).unwrap().matches(path), want, "{pattern} on {path}");
        }
    }

    #[test]
    fn an_open_class_is_refused() {
        for text in ["[abc", "[", "[\\", "[a-"] {
            assert!(Pattern::parse(text).is_err(), "{text}");
        }
    }
}
