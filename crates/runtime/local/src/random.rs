//! Names that nobody can guess.

use std::io;

/// `bytes` random bytes as lower-case hexadecimal digits.
pub(crate) fn hex(bytes: usize) -> io::Result<String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// A random UUID (version 4).
pub(crate) fn uuid() -> io::Result<String> {
    let mut random = [0; 16];
    getrandom::fill(&mut random).map_err(io::Error::other)?;
    random[6] = random[6] & 0x0f | 0x40;
    random[8] = random[8] & 0x3f | 0x80;
    let hex: String = random.iter().map(|byte| format!("{byte:02x}")).collect();
    let parts = [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]];
    Ok(parts.join("-"))
}

#[cfg(test)]
mod tests {
    #[test]
    fn a_uuid_says_that_it_is_random() {
        let one = super::uuid().unwrap();
        assert_ne!(one, super::uuid().unwrap());
        assert_eq!((one.len(), one.as_bytes()[14]), (36, b'4'), "{one}");
        assert!(b"89ab".contains(&one.as_bytes()[19]), "{one}");
    }
}
