//! Downloads, streamed.

use super::{
    error::Failure,
    extract::{Caller, Parameters},
};
use atoll_guest::{
    Error, Guest,
    files::{self, Download},
};
use axum::{
    body::Body,
    extract::State,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use futures_util::stream;
use std::sync::Arc;

const CHUNK_BYTES: usize = 256 * 1024;

pub(super) async fn download(
    State(guest): State<Arc<Guest>>,
    Caller(identity): Caller,
    parameters: Parameters,
    headers: HeaderMap,
) -> Result<Response, Failure> {
    let path = parameters.required("path")?.to_owned();
    let (offset, limit) = (parameters.number("offset")?, parameters.number("limit")?);
    let range = headers.get(header::RANGE).and_then(|value| value.to_str().ok());
    let job = Arc::clone(&guest);
    if offset.is_some() || limit.is_some() {
        if range.is_some() {
            return Err(Failure::invalid(
                "offset and limit exclude the header Range; send one of them",
            ));
        }
        let read = move || files::lines(&job.expand(&path), offset.unwrap_or(1), limit);
        let window = guest.file_operation(identity, read).await?;
        return Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], window).into_response());
    }
    let name = path.rsplit('/').next().unwrap_or_default().to_owned();
    let open = move || files::open(&job.expand(&path));
    let file = guest.file_operation(identity, open).await?;
    respond(guest, file, range, &name).await
}

async fn respond(
    guest: Arc<Guest>,
    file: Download,
    range: Option<&str>,
    name: &str,
) -> Result<Response, Failure> {
    let size = file.size;
    let wanted = match range.and_then(|range| parse_range(range, size)) {
        Some(Err(())) => {
            let mut response = Failure::from(Error::OutOfRange { size }).into_response();
            response
                .headers_mut()
                .insert(header::CONTENT_RANGE, header_value(format!("bytes */{size}")));
            return Ok(response);
        }
        Some(Ok(wanted)) => Some(wanted),
        None => None,
    };
    let (start, end) = wanted.unwrap_or((0, size));
    let mut response = Response::new(Body::from_stream(chunks(guest, file, start, end)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    let quoted: String =
        name.chars().filter(|c| c.is_ascii_graphic() && !matches!(c, '"' | '\\')).collect();
    let disposition = header_value(format!("attachment; filename=\"{quoted}\""));
    headers.insert(header::CONTENT_DISPOSITION, disposition);
    if wanted.is_some() {
        let covered = header_value(format!("bytes {start}-{}/{size}", end - 1));
        headers.insert(header::CONTENT_RANGE, covered);
        *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    }
    Ok(response)
}

fn header_value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("only visible ASCII is put into it")
}

/// The bytes `start..end` of a file; a file that shrinks meanwhile ends the stream with an error.
fn chunks(
    guest: Arc<Guest>,
    file: Download,
    start: u64,
    end: u64,
) -> impl stream::Stream<Item = Result<Vec<u8>, Error>> {
    let file = Arc::new(file);
    stream::try_unfold(start, move |at| {
        let (guest, file) = (Arc::clone(&guest), Arc::clone(&file));
        async move {
            let length = (end - at).min(CHUNK_BYTES as u64) as usize;
            if length == 0 {
                return Ok(None);
            }
            let bytes = guest.file_operation(None, move || file.read(at, length)).await?;
            if bytes.is_empty() {
                return Err(Error::OutOfRange { size: at });
            }
            let next = at + bytes.len() as u64;
            Ok(Some((bytes, next)))
        }
    })
}

/// The half-open byte range that a header asks for. Nothing for headers to be ignored: another
/// unit, several ranges, or nonsense. An error for a range outside the file.
fn parse_range(header: &str, size: u64) -> Option<Result<(u64, u64), ()>> {
    let (first, last) = header.strip_prefix("bytes=")?.trim().split_once('-')?;
    let (first, last) = (first.trim(), last.trim());
    if first.is_empty() {
        let count: u64 = last.parse().ok()?;
        let start = size.saturating_sub(count);
        return Some(if start < size { Ok((start, size)) } else { Err(()) });
    }
    let start: u64 = first.parse().ok()?;
    let end = match last {
        "" => size,
        last => last.parse::<u64>().ok()?.checked_add(1)?.min(size),
    };
    Some(if start < size && start < end { Ok((start, end)) } else { Err(()) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_read_as_http_defines_them() {
        let cases = [
            ("bytes=0-4", Some(Ok((0, 5)))),
            ("bytes=5-", Some(Ok((5, 10)))),
            ("bytes=-3", Some(Ok((7, 10)))),
            ("bytes=-99", Some(Ok((0, 10)))),
            ("bytes=8-99", Some(Ok((8, 10)))),
            ("bytes=10-", Some(Err(()))),
            ("bytes=-0", Some(Err(()))),
            ("bytes=4-2", Some(Err(()))),
            ("bytes=0-1,3-4", None),
            ("lines=0-1", None),
            ("bytes=x-", None),
        ];
        for (header, want) in cases {
            assert_eq!(parse_range(header, 10), want, "{header}");
        }
        assert_eq!(parse_range("bytes=0-", 0), Some(Err(())));
    }
}
