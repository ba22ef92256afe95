//! What happens to every request, whichever door it goes to.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;

use atoll_e2b::lifecycle::{self as e2b, DoorState as E2bState};
use axum::Json;
use axum::extract::{Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{Method, StatusCode, Uri};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt as _;
use serde_json::json;
use tokio::time::Instant;

use crate::data_dir::random_hex;
use crate::metrics::Metrics;

mod leftover;

pub(crate) use leftover::leftover;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const REQUEST_ID_CHARS_MAX: usize = 128;

/// Where sandboxes are asked for, in every door, and how success looks there.
const CREATIONS: [&str; 3] = ["/v1/sandboxes", "/v2/sandboxes", "/sandboxes"];
const CREATED: [StatusCode; 2] = [StatusCode::ACCEPTED, StatusCode::CREATED];

/// Every answer carries the id that the request had, or a new one.
pub(crate) async fn request_id(mut request: Request, next: Next) -> Response {
    let sent = request.headers().get(REQUEST_ID).filter(|id| is_plain(id)).cloned();
    let id = sent.unwrap_or_else(|| {
        HeaderValue::try_from(random_hex(16)).expect("hexadecimal digits are a header value")
    });
    request.headers_mut().insert(REQUEST_ID, id.clone());
    let mut response = next.run(request).await;
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

fn is_plain(id: &HeaderValue) -> bool {
    let bytes = id.as_bytes();
    !bytes.is_empty()
        && bytes.len() <= REQUEST_ID_CHARS_MAX
        && bytes.iter().all(u8::is_ascii_graphic)
}

/// Counts answers, and times creations.
pub(crate) async fn count(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let door = door_of(request.uri().path());
    let creates = request.method() == Method::POST && CREATIONS.contains(&request.uri().path());
    let began = Instant::now();
    let response = next.run(request).await;
    metrics.answered(door, response.status().as_u16());
    if creates && CREATED.contains(&response.status()) {
        metrics.created(began.elapsed());
    }
    response
}

/// First segments of the E2B API's paths.
const E2B_ROOTS: [&str; 13] = [
    "sandboxes",
    "v2",
    "v3",
    "templates",
    "default-templates",
    "snapshots",
    "volumes",
    "volumecontent",
    "secrets",
    "teams",
    "api-keys",
    "access-tokens",
    "files",
];

fn door_of(path: &str) -> &'static str {
    let mut parts = path.split('/').skip(1);
    match (parts.next(), parts.next(), parts.nth(1)) {
        (Some("v1"), Some("route" | "signed"), _)
        | (Some("v1"), Some("sandboxes"), Some("proxy")) => "data",
        (Some("v1"), _, _) => "opensandbox",
        (Some("atoll"), _, _) => "native",
        (Some("kruise"), Some("api"), _) => "e2b",
        (Some("kruise"), _, _) => "data",
        (Some(first), _, _) if E2B_ROOTS.contains(&first) => "e2b",
        _ => "other",
    }
}

/// A bug in one request is that request's answer, and nobody else's business.
pub(crate) async fn catch_panic(
    State(metrics): State<Arc<Metrics>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path().to_owned();
    match AssertUnwindSafe(next.run(request)).catch_unwind().await {
        Ok(response) => response,
        Err(_) => {
            metrics.panicked();
            tracing::error!(door = door_of(&path), "a request handler panicked");
            answer(
                StatusCode::INTERNAL_SERVER_ERROR,
                "GENERAL::UNKNOWN_ERROR",
                "the server made a mistake with this request; its log says more",
                None,
            )
        }
    }
}

/// Lets web pages of any origin call the API; they need the key all the same. Preflights to
/// services inside sandboxes are for those services to answer.
pub(crate) async fn cors(State(e2b): State<E2bState>, request: Request, next: Next) -> Response {
    let Some(origin) = request.headers().get(header::ORIGIN).cloned() else {
        return next.run(request).await;
    };
    let is_data = door_of(request.uri().path()) == "data"
        || e2b::is_data_path(&e2b.config, request.headers(), request.uri());
    let asked = request.headers().get(header::ACCESS_CONTROL_REQUEST_HEADERS).cloned();
    let is_preflight = request.method() == Method::OPTIONS
        && request.headers().contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let mut response =
        if is_preflight && !is_data { preflight(asked) } else { next.run(request).await };
    let headers = response.headers_mut();
    if is_data {
        // Whoever knows the way into a sandbox may read it; cookies are no way in.
        let anyone = HeaderValue::from_static("*");
        headers.entry(header::ACCESS_CONTROL_ALLOW_ORIGIN).or_insert(anyone);
        return response;
    }
    headers.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    headers.append(header::VARY, HeaderValue::from_static("Origin"));
    let yes = HeaderValue::from_static("true");
    headers.insert(header::ACCESS_CONTROL_ALLOW_CREDENTIALS, yes);
    let exposed = HeaderValue::from_static("OPEN-SANDBOX-ORIGIN, X-Request-ID");
    headers.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, exposed);
    response
}

fn preflight(asked: Option<HeaderValue>) -> Response {
    let methods = HeaderValue::from_static("DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT");
    let mut response = StatusCode::OK.into_response();
    let headers = response.headers_mut();
    headers.insert(header::ACCESS_CONTROL_ALLOW_METHODS, methods);
    headers.insert(header::ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    if let Some(asked) = asked {
        headers.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, asked);
    }
    response
}

/// A path that no door has.
pub(crate) async fn no_route(uri: Uri) -> Response {
    if door_of(uri.path()) == "e2b" {
        return e2b::no_route().await.into_response();
    }
    let message = "there is no such route; the OpenSandbox API is under /v1, the E2B API under \
                   /sandboxes, /v2 and /v3";
    answer(StatusCode::NOT_FOUND, "NOT_FOUND", message, Some("Not Found"))
}

/// A route that exists for other methods.
pub(crate) async fn wrong_method(uri: Uri) -> Response {
    if door_of(uri.path()) == "e2b" {
        return e2b::wrong_method().await.into_response();
    }
    let message = "this route exists, but not for this method";
    let detail = Some("Method Not Allowed");
    answer(StatusCode::METHOD_NOT_ALLOWED, "METHOD_NOT_ALLOWED", message, detail)
}

fn answer(status: StatusCode, code: &str, message: &str, detail: Option<&str>) -> Response {
    let mut body = json!({"code": code, "message": message});
    if let Some(detail) = detail {
        body["detail"] = detail.into();
    }
    (status, Json(body)).into_response()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::sync::Arc;

    use axum::Router;
    use axum::body::Body;
    use axum::http::{Request, StatusCode};
    use axum::middleware::from_fn_with_state;
    use axum::routing::get;
    use tower::ServiceExt as _;

    use super::{catch_panic, door_of};
    use crate::metrics::Metrics;

    #[tokio::test]
    async fn a_panic_is_one_request_s_answer_and_is_counted() {
        let metrics = Arc::new(Metrics::default());
        let broken = || async { if true { panic!("a bug") } else { "fine" } };
        let router = Router::new()
            .route("/", get(broken))
            .layer(from_fn_with_state(metrics.clone(), catch_panic));
        for _ in 0..2 {
            let request = Request::get("/").body(Body::empty()).unwrap();
            let response = router.clone().oneshot(request).await.unwrap();
            assert_eq!(response.status(), StatusCode::INTERNAL_SERVER_ERROR);
        }
        let text = metrics.render(&BTreeMap::new(), &Default::default(), &[]);
        assert!(text.contains("atoll_bugs_total 2"), "{text}");
    }

    #[test]
    fn paths_belong_to_doors() {
        for (path, door) in [
            ("/v1/sandboxes", "opensandbox"),
            ("/v1/sandboxes/a/proxy/80/x", "data"),
            ("/v1/sandboxes/a/endpoints/80", "opensandbox"),
            ("/v1/route/a.b/80", "data"),
            ("/v1/signed/t/80/x", "data"),
            ("/atoll/v1/sandboxes/a", "native"),
            ("/v2/sandboxes", "e2b"),
            ("/kruise/api/sandboxes", "e2b"),
            ("/kruise/a/80/x", "data"),
            ("/health", "other"),
            ("/", "other"),
        ] {
            assert_eq!(door_of(path), door, "{path}");
        }
    }
}
