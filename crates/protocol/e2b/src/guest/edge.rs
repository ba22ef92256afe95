//! What concerns every route: the path's slashes, other origins, and what is not served.

use super::{
    connect::{Code, Failure},
    rest::Refusal,
};
use axum::{
    extract::Request,
    http::{HeaderValue, Method, StatusCode, Uri, header, uri::PathAndQuery},
    middleware::Next,
    response::{IntoResponse, Response},
};

const ANY: HeaderValue = HeaderValue::from_static("*");
/// Browsers may keep an answer about what is allowed for this long.
const ALLOWED_SECONDS: HeaderValue = HeaderValue::from_static("7200");

/// Joins repeated slashes: a base URL that ends with one makes two.
pub(super) fn tidy_slashes(uri: &Uri) -> Option<Uri> {
    let path = uri.path();
    if !path.contains("//") {
        return None;
    }
    let mut tidy = String::with_capacity(path.len());
    for c in path.chars() {
        if c != '/' || !tidy.ends_with('/') {
            tidy.push(c);
        }
    }
    if let Some(query) = uri.query() {
        tidy.push('?');
        tidy.push_str(query);
    }
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = Some(PathAndQuery::try_from(tidy).ok()?);
    Uri::from_parts(parts).ok()
}

/// Lets pages of any origin call; what they may do, the token decides.
pub(super) async fn allow_origins(request: Request, next: Next) -> Response {
    let is_question = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response = match is_question {
        true => StatusCode::NO_CONTENT.into_response(),
        false => next.run(request).await,
    };
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, ANY);
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, ANY);
    if is_question {
        headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ANY);
        // The star does not stand for this one.
        let names = HeaderValue::from_static("*, Authorization");
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, names);
        headers.insert(header::ACCESS_CONTROL_MAX_AGE, ALLOWED_SECONDS);
    }
    response
}

/// Answers what is not served, in the manner of what was asked for.
pub(super) async fn no_route(request: Request) -> Response {
    let path = request.uri().path();
    let problem = format!("{} {path} is not served here", request.method());
    match is_call(path) {
        true => Failure::new(Code::Unimplemented, problem)
            .with_status(StatusCode::NOT_FOUND)
            .into_response(),
        false => Refusal::new(StatusCode::NOT_FOUND, problem).into_response(),
    }
}

/// Answers a method that a route does not have.
pub(super) async fn no_method(request: Request) -> Response {
    let path = request.uri().path();
    let problem = format!("{path} does not take {}", request.method());
    let status = StatusCode::METHOD_NOT_ALLOWED;
    match is_call(path) {
        true => Failure::new(Code::Unimplemented, problem).with_status(status).into_response(),
        false => Refusal::new(status, problem).into_response(),
    }
}

fn is_call(path: &str) -> bool {
    path.starts_with("/process.") || path.starts_with("/filesystem.")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repeated_slashes_are_one_but_not_in_the_query() {
        let tidied = |uri: &str| tidy_slashes(&uri.parse().unwrap()).map(|uri| uri.to_string());
        assert_eq!(tidied("/a/b?c=//d"), None);
        assert_eq!(tidied("//a///b?c=//d").as_deref(), Some("/a/b?c=//d"));
        assert_eq!(tidied("//").as_deref(), Some("/"));
    }
}
