/// A line longer than this is passed on in pieces.
const LINE_BYTES_MAX: usize = 64 * 1024;

/// Cuts a byte stream into lines of text.
#[derive(Debug, Default)]
pub(super) struct Lines {
    partial: Vec<u8>,
    /// Whether the line at hand has been passed on in part, so that its end is not a blank line.
    continued: bool,
}

impl Lines {
    /// Takes bytes and hands every complete line to `each`, without its line end; a blank line is
    /// handed over as a newline.
    pub(super) fn push(&mut self, mut bytes: &[u8], mut each: impl FnMut(&str)) {
        while let Some(end) = bytes.iter().position(|byte| *byte == b'\n') {
            self.extend(&bytes[..end], &mut each);
            self.end_line(&mut each);
            bytes = &bytes[end + 1..];
        }
        self.extend(bytes, &mut each);
    }

    /// Hands over what came after the last line end.
    pub(super) fn finish(&mut self, mut each: impl FnMut(&str)) {
        if !self.partial.is_empty() {
            each(&String::from_utf8_lossy(&std::mem::take(&mut self.partial)));
        }
    }

    fn extend(&mut self, mut bytes: &[u8], each: &mut impl FnMut(&str)) {
        while self.partial.len() + bytes.len() > LINE_BYTES_MAX {
            let (now, later) = bytes.split_at(LINE_BYTES_MAX - self.partial.len());
            self.partial.extend_from_slice(now);
            bytes = later;
            let cut = character_boundary(&self.partial);
            let rest = self.partial.split_off(cut);
            each(&String::from_utf8_lossy(&self.partial));
            (self.partial, self.continued) = (rest, true);
        }
        self.partial.extend_from_slice(bytes);
    }

    fn end_line(&mut self, each: &mut impl FnMut(&str)) {
        let line = self.partial.strip_suffix(b"\r").unwrap_or(&self.partial);
        match (line.is_empty(), self.continued) {
            (true, true) => {}
            (true, false) => each("\n"),
            (false, _) => each(&String::from_utf8_lossy(line)),
        }
        self.partial.clear();
        self.continued = false;
    }
}

/// Where to cut so that no character is torn: before an incomplete one at the end, if any.
fn character_boundary(bytes: &[u8]) -> usize {
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

    fn cut(chunks: &[&[u8]]) -> Vec<String> {
        let (mut lines, mut out) = (Lines::default(), Vec::new());
        for chunk in chunks {
            lines.push(chunk, |line| out.push(line.to_owned()));
        }
        lines.finish(|line| out.push(line.to_owned()));
        out
    }

    #[test]
    fn streams_are_cut_at_line_ends() {
        let cases: [(&[&[u8]], &[&str]); 9] = [
            (&[b"a\nb\n"], &["a", "b"]),
            (&[b"a\nb"], &["a", "b"]),
            (&[b"a\r\nb\r\n"], &["a", "b"]),
            (&[b"a\r", b"\nb"], &["a", "b"]),
            (&[b"\n\na"], &["\n", "\n", "a"]),
            (&[b"\r\n"], &["\n"]),
            (&[b"50%\r100%\n"], &["50%\r100%"]),
            (&[b"\xc3", b"\xa9\n"], &["é"]),
            (&[b"x\xffy\n", b""], &["x\u{fffd}y"]),
        ];
        for (chunks, want) in cases {
            assert_eq!(cut(chunks), want, "{chunks:?}");
        }
    }

    #[test]
    fn a_long_line_comes_in_whole_characters_and_nothing_is_lost() {
        for length in [LINE_BYTES_MAX - 1, LINE_BYTES_MAX, 3 * LINE_BYTES_MAX + 1] {
            let text = format!("{}\n", "aé€😀".repeat(length / 10 + 1));
            let pieces = cut(&[text.as_bytes()]);
            assert!(pieces.iter().all(|piece| piece.len() <= LINE_BYTES_MAX && *piece != "\n"));
            assert_eq!(pieces.concat(), text.trim_end());
        }
        let exact = format!("{}\nz", "a".repeat(2 * LINE_BYTES_MAX));
        assert_eq!(cut(&[exact.as_bytes()]).last().map(String::as_str), Some("z"));
        assert!(!cut(&[exact.as_bytes()]).contains(&"\n".to_owned()));
    }
}
