use super::{
    Target,
    encoding::{self, Encoding},
    media_type,
    range::{self, Wanted},
};
use crate::guest::rest::Refusal;
use atoll_guest::{
    Error, Guest,
    files::{self, Download},
};
use axum::{
    body::Body,
    http::{HeaderMap, HeaderValue, StatusCode, header},
    response::{IntoResponse, Response},
};
use flate2::{Compression, write::GzEncoder};
use futures_util::stream::{self, Stream};
use std::{io::Write, path::Path, sync::Arc};

const CHUNK_BYTES: usize = 256 * 1024;
/// What is looked at to tell text from other bytes.
const SNIFFED_BYTES: usize = 512;

pub(super) async fn download(target: Target, headers: HeaderMap) -> Result<Response, Refusal> {
    let Target { caller, path } = target;
    let path = caller.path(path.as_deref().unwrap_or_default())?;
    let accept = headers.get(header::ACCEPT_ENCODING).and_then(|value| value.to_str().ok());
    let encoding = encoding::choose(accept).ok_or_else(|| {
        let message = "Accept-Encoding allows neither identity nor gzip; allow one of them";
        Refusal::new(StatusCode::NOT_ACCEPTABLE, message)
    })?;
    let at = path.clone();
    let open = move || {
        let file = files::open(&at)?;
        let beginning = file.read(0, SNIFFED_BYTES)?;
        Ok((file, beginning))
    };
    let (file, beginning) = caller.guest.file_operation(None, open).await?;
    let media_type = media_type::guess(&path, &beginning);
    let mut response = content(caller.guest, file, &headers, encoding);
    describe(response.headers_mut(), &path, media_type);
    Ok(response)
}

fn describe(headers: &mut HeaderMap, path: &Path, media_type: &'static str) {
    headers.insert(header::VARY, HeaderValue::from_static("Accept-Encoding"));
    headers.entry(header::CONTENT_TYPE).or_insert(HeaderValue::from_static(media_type));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let quoted: String = name
        .chars()
        .map(|c| if (c.is_ascii_graphic() || c == ' ') && !"\"\\".contains(c) { c } else { '_' })
        .collect();
    headers.insert(header::CONTENT_DISPOSITION, value(format!("inline; filename=\"{quoted}\"")));
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).expect("only visible ASCII is put into it")
}

/// The answer with as much of the file as is wanted.
fn content(guest: Arc<Guest>, file: Download, asked: &HeaderMap, encoding: Encoding) -> Response {
    let (size, modified_at) = (file.size, file.modified_at);
    let wanted = range::decide(asked, size, modified_at);
    let mut response = match wanted {
        Wanted::Unchanged => StatusCode::NOT_MODIFIED.into_response(),
        Wanted::Changed => {
            Refusal::new(StatusCode::PRECONDITION_FAILED, "the file has changed").into_response()
        }
        Wanted::OutOfRange => {
            let mut refusal = Refusal::from(Error::OutOfRange { size }).into_response();
            refusal.headers_mut().insert(header::CONTENT_RANGE, value(format!("bytes */{size}")));
            refusal
        }
        Wanted::Part(start, end) => {
            let mut part = plain(guest, file, start, end);
            *part.status_mut() = StatusCode::PARTIAL_CONTENT;
            let covered = value(format!("bytes {start}-{}/{size}", end - 1));
            part.headers_mut().insert(header::CONTENT_RANGE, covered);
            part
        }
        Wanted::Whole if encoding == Encoding::Gzip => {
            let pieces = compressed(pieces(guest, file, 0, size));
            let mut whole = Response::new(Body::from_stream(pieces));
            let gzip = HeaderValue::from_static("gzip");
            whole.headers_mut().insert(header::CONTENT_ENCODING, gzip);
            whole
        }
        Wanted::Whole => plain(guest, file, 0, size),
    };
    let modified = httpdate::fmt_http_date(range::whole_seconds(modified_at));
    response.headers_mut().insert(header::LAST_MODIFIED, value(modified));
    response
}

fn plain(guest: Arc<Guest>, file: Download, start: u64, end: u64) -> Response {
    let mut response = Response::new(Body::from_stream(pieces(guest, file, start, end)));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(end - start));
    headers.insert(header::ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    response
}

/// The bytes `start..end` of a file; a file that shrinks meanwhile ends the stream with an error.
fn pieces(
    guest: Arc<Guest>,
    file: Download,
    start: u64,
    end: u64,
) -> impl Stream<Item = Result<Vec<u8>, Error>> + Send {
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

/// The same bytes compressed; a piece is small enough to be compressed between two awaits.
fn compressed(
    pieces: impl Stream<Item = Result<Vec<u8>, Error>> + Send,
) -> impl Stream<Item = Result<Vec<u8>, Error>> + Send {
    use futures_util::StreamExt;
    let encoder = Some(GzEncoder::new(Vec::new(), Compression::fast()));
    let state = (Box::pin(pieces), encoder);
    stream::try_unfold(state, |(mut pieces, encoder)| async move {
        let Some(mut encoder) = encoder else { return Ok(None) };
        let failed = |source| Error::System { action: "compress the file", source };
        match pieces.next().await.transpose()? {
            Some(piece) => {
                encoder.write_all(&piece).map_err(failed)?;
                let ready = std::mem::take(encoder.get_mut());
                Ok(Some((ready, (pieces, Some(encoder)))))
            }
            None => Ok(Some((encoder.finish().map_err(failed)?, (pieces, None)))),
        }
    })
}
