//! Which content encoding an answer has.

/// The encodings that answers can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Encoding {
    Identity,
    Gzip,
}

/// The encoding for a header `Accept-Encoding`; nothing when none fits.
///
/// Gzip must be asked for: as the only coding, ranked above `identity`, or with that forbidden. A
/// list such as `gzip, deflate` is what HTTP libraries send by themselves, and between processes of
/// one machine compressing costs more than it saves.
pub(super) fn choose(accept: Option<&str>) -> Option<Encoding> {
    let codings: Vec<(String, f32)> =
        accept.unwrap_or_default().split(',').filter_map(read).collect();
    let rank = |name: &str| codings.iter().find(|(coding, _)| coding == name).map(|(_, q)| *q);
    let others = rank("*");
    let gzip = rank("gzip").or_else(|| rank("x-gzip")).or(others).unwrap_or(0.0);
    let identity = rank("identity").or(others.filter(|q| *q == 0.0));
    match identity {
        Some(q) if q <= 0.0 => (gzip > 0.0).then_some(Encoding::Gzip),
        Some(q) if gzip > q => Some(Encoding::Gzip),
        Some(_) => Some(Encoding::Identity),
        None if codings.len() == 1 && others.is_none() && gzip > 0.0 => Some(Encoding::Gzip),
        None => Some(Encoding::Identity),
    }
}

/// One element: a coding and its rank from 0 to 1.
fn read(element: &str) -> Option<(String, f32)> {
    let mut parts = element.split(';').map(str::trim);
    let coding = parts.next().filter(|coding| !coding.is_empty())?.to_ascii_lowercase();
    let rank = parts.find_map(|part| part.strip_prefix("q=").or(part.strip_prefix("Q=")));
    let rank = rank.map_or(Some(1.0), |rank| rank.trim().parse().ok());
    Some((coding, rank.filter(|rank| (0.0..=1.0).contains(rank))?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gzip_must_be_asked_for() {
        let (gzip, identity) = (Some(Encoding::Gzip), Some(Encoding::Identity));
        let cases = [
            ("", identity),
            ("gzip", gzip),
            ("GZIP;q=0.5", gzip),
            ("gzip, deflate", identity),
            ("gzip, deflate, br", identity),
            ("identity;q=0.5, gzip", gzip),
            ("gzip;q=0.5, identity", identity),
            ("gzip, identity;q=0", gzip),
            ("gzip, *;q=0", gzip),
            ("*", identity),
            ("br", identity),
            ("deflate, identity;q=0", None),
            ("*;q=0", None),
            ("identity;q=0", None),
            ("gzip;q=0", identity),
            ("gzip;q=x", identity),
        ];
        for (header, want) in cases {
            assert_eq!(choose(Some(header)), want, "{header:?}");
        }
        assert_eq!(choose(None), identity);
    }
}
