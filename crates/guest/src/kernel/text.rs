use super::event::Text;
use jiff::Timestamp;

/// Text with the moment that its kernel gives, or now.
pub(super) fn said(text: String, at: String) -> Text {
    if at.is_empty() { now(text) } else { Text { text, at } }
}

/// Text of this moment.
pub(super) fn now(text: String) -> Text {
    Text { text, at: Timestamp::now().to_string() }
}

/// Turns bytes that may end inside a character into text.
#[derive(Debug, Default)]
pub(super) struct Characters {
    torn: Vec<u8>,
}

impl Characters {
    /// The whole characters so far; what is no text becomes U+FFFD.
    pub(super) fn push(&mut self, bytes: &[u8]) -> String {
        self.torn.extend_from_slice(bytes);
        let whole = whole_bytes(&self.torn);
        let rest = self.torn.split_off(whole);
        let text = String::from_utf8_lossy(&self.torn).into_owned();
        self.torn = rest;
        text
    }

    /// What is left at the end.
    pub(super) fn finish(&mut self) -> String {
        String::from_utf8_lossy(&std::mem::take(&mut self.torn)).into_owned()
    }
}

/// How many bytes there are before a character that has only begun.
fn whole_bytes(bytes: &[u8]) -> usize {
    let tail = bytes.len().saturating_sub(3);
    let start = bytes[tail..].iter().rposition(|byte| *byte >= 0xC0).map(|at| tail + at);
    match start {
        Some(at) if std::str::from_utf8(&bytes[at..]).is_err_and(|e| e.error_len().is_none()) => at,
        _ => bytes.len(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn cutting_changes_no_text(text in ".{0,40}", piece in 1usize..5) {
            let mut characters = Characters::default();
            let mut seen: String =
                text.as_bytes().chunks(piece).map(|chunk| characters.push(chunk)).collect();
            seen += &characters.finish();
            prop_assert_eq!(seen, text);
        }
    }
}
