//! The media type of a file, by its name and else by its first bytes.

use std::path::Path;

const OCTETS: &str = "application/octet-stream";
const TEXT: &str = "text/plain; charset=utf-8";

/// The type for a file's name, as browsers and clients know it.
pub(super) fn guess(path: &Path, beginning: &[u8]) -> &'static str {
    let extension = path.extension().and_then(|extension| extension.to_str());
    let extension = extension.unwrap_or_default().to_ascii_lowercase();
    match extension.as_str() {
        "avif" => "image/avif",
        "bmp" => "image/bmp",
        "css" => "text/css; charset=utf-8",
        "csv" => "text/csv; charset=utf-8",
        "gif" => "image/gif",
        "gz" => "application/gzip",
        "htm" | "html" => "text/html; charset=utf-8",
        "ico" => "image/vnd.microsoft.icon",
        "jpeg" | "jpg" => "image/jpeg",
        "js" | "mjs" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "md" => "text/markdown; charset=utf-8",
        "mp3" => "audio/mpeg",
        "mp4" => "video/mp4",
        "pdf" => "application/pdf",
        "png" => "image/png",
        "svg" => "image/svg+xml",
        "tar" => "application/x-tar",
        "txt" | "log" => TEXT,
        "wasm" => "application/wasm",
        "wav" => "audio/wav",
        "webm" => "video/webm",
        "webp" => "image/webp",
        "xml" => "text/xml; charset=utf-8",
        "zip" => "application/zip",
        _ if is_text(beginning) => TEXT,
        _ => OCTETS,
    }
}

/// Whether bytes look like text. The last character may have been cut off.
fn is_text(bytes: &[u8]) -> bool {
    let valid = match std::str::from_utf8(bytes) {
        Ok(text) => text,
        Err(error) if error.error_len().is_none() => {
            std::str::from_utf8(&bytes[..error.valid_up_to()]).unwrap_or_default()
        }
        Err(_) => return false,
    };
    valid.chars().all(|c| !c.is_control() || c.is_whitespace() || c == '\u{1b}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_come_first_then_content() {
        let guess = |path: &str, bytes: &[u8]| guess(Path::new(path), bytes);
        assert_eq!(guess("a.PNG", b"text"), "image/png");
        assert_eq!(guess("a.txt", &[0]), TEXT);
        assert_eq!(guess("a", b""), TEXT);
        assert_eq!(guess("a.unknown", b"words\n"), TEXT);
        assert_eq!(guess("a", &[0, 1, 2]), OCTETS);
        assert_eq!(guess("a", b"cut \xe2\x82"), TEXT);
        assert_eq!(guess("a", b"broken \xe2 x"), OCTETS);
    }
}
