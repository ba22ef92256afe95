//! The `WWW-Authenticate` header by which a registry says how to prove who one is.

use reqwest::header::HeaderMap;

#[cfg(test)]
mod tests;

/// How a registry wants to be authenticated to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Challenge {
    /// Username and password with every request.
    Basic,
    /// A token from another server.
    Bearer {
        /// URL of the token server.
        realm: String,
        /// Audience of the token.
        service: Option<String>,
    },
}

impl Challenge {
    /// The strongest challenge of a response that is understood.
    pub(super) fn from_headers(headers: &HeaderMap) -> Option<Self> {
        let mut found = None;
        for value in headers.get_all("www-authenticate") {
            let Ok(text) = value.to_str() else { continue };
            match parse(text) {
                bearer @ Some(Self::Bearer { .. }) => return bearer,
                basic @ Some(Self::Basic) => found = basic,
                None => {}
            }
        }
        found
    }
}

fn parse(text: &str) -> Option<Challenge> {
    let (scheme, parameters) = text.trim().split_once(' ').unwrap_or((text.trim(), ""));
    if scheme.eq_ignore_ascii_case("basic") {
        return Some(Challenge::Basic);
    }
    if !scheme.eq_ignore_ascii_case("bearer") {
        return None;
    }
    let (mut realm, mut service) = (None, None);
    let mut rest = parameters;
    while let Some((name, value, after)) = parameter(rest) {
        match name.to_ascii_lowercase().as_str() {
            "realm" => realm = Some(value),
            "service" => service = Some(value),
            _ => {}
        }
        rest = after;
    }
    Some(Challenge::Bearer { realm: realm?, service })
}

/// Splits `name="value", rest` or `name=value, rest`.
fn parameter(text: &str) -> Option<(&str, String, &str)> {
    let text = text.trim_start_matches([' ', ',']);
    let (name, rest) = text.split_once('=')?;
    let Some(quoted) = rest.strip_prefix('"') else {
        let end = rest.find(',').unwrap_or(rest.len());
        return Some((name.trim(), rest[..end].trim().to_owned(), &rest[end..]));
    };
    let mut value = String::new();
    let mut characters = quoted.char_indices();
    while let Some((at, character)) = characters.next() {
        match character {
            '"' => return Some((name.trim(), value, &quoted[at + 1..])),
            '\\' => value.push(characters.next()?.1),
            other => value.push(other),
        }
    }
    None
}
