//! What is in a volume, for whoever holds its token.

use atoll_control::{EntryKind, Ownership, Volume, VolumeEntry};
use atoll_core::{ErrorKind, TenantId};
use axum::Json;
use axum::body::Body as StreamBody;
use axum::extract::{FromRequestParts, Request, State};
use axum::http::request::Parts;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use futures_util::TryStreamExt as _;
use serde_json::{Value, json};
use tokio_util::io::{ReaderStream, StreamReader};

use super::error::ApiError;
use super::extract::{Body, path_part};
use super::form::Query;
use super::read::Object;
use super::state::DoorState;
use super::{auth, time};

const DEPTH_MAX: i64 = 64;
const MODE_MAX: i64 = 0o7777;

/// The volume that a request names and has the token of, and where in it.
pub(super) struct Place {
    volume: Volume,
    path: String,
    query: Query,
}

impl FromRequestParts<DoorState> for Place {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, door: &DoorState) -> Result<Self, ApiError> {
        let id = path_part(parts, "id").await;
        let unauthorized = |message: &str| ApiError::new(StatusCode::UNAUTHORIZED, message);
        let token = auth::bearer(&parts.headers)
            .ok_or_else(|| unauthorized("send the volume's token as Authorization: Bearer"))?;
        let volume = match door.volumes.volume_by_token(&id, token).await {
            Ok(volume) => volume,
            // The tenant's key opens its volumes too.
            Err(_) => by_key(door, &id, token)
                .await
                .ok_or_else(|| unauthorized("there is no such volume, or this is not its token"))?,
        };
        let query = Query::parse(parts.uri.query());
        let path = query.raw("path").unwrap_or("/").to_owned();
        if path.contains('\0') {
            return Err(ApiError::invalid("path", "must not contain NUL"));
        }
        Ok(Self { volume, path, query })
    }
}

async fn by_key(door: &DoorState, id: &str, key: &str) -> Option<Volume> {
    let tenant: TenantId = door.keys.tenant(Some(key), "Authorization").ok()?;
    door.volumes.volume(&tenant, id).await.ok()
}

impl Place {
    fn ownership(&self) -> Result<Ownership, ApiError> {
        let number = |name, max| Ok::<_, ApiError>(self.query.number(name, 0..=max)?.map(narrow));
        Ok(Ownership {
            uid: number("uid", i64::from(u32::MAX))?,
            gid: number("gid", i64::from(u32::MAX))?,
            mode: number("mode", MODE_MAX)?,
        })
    }
}

fn narrow(number: i64) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// A failure about an entry: one that is there already is a mistake of the request.
fn sorted(error: atoll_core::Error) -> ApiError {
    match error.kind() {
        ErrorKind::Conflict => ApiError::invalid("path", error.message()),
        _ => error.into(),
    }
}

/// `GET /volumecontent/{id}/path`.
pub(super) async fn entry(
    State(door): State<DoorState>,
    place: Place,
) -> Result<Json<Value>, ApiError> {
    let entry = door.volumes.entry(&place.volume, &place.path).await.map_err(sorted)?;
    Ok(Json(shown(&entry)))
}

/// `PATCH /volumecontent/{id}/path`.
pub(super) async fn change(
    State(door): State<DoorState>,
    place: Place,
    body: Body,
) -> Result<Json<Value>, ApiError> {
    let body = body.or_empty();
    let body = Object::body(&body)?;
    let number = |name: &str, max: i64| {
        let number = body.integer(name)?;
        if number.is_some_and(|number| !(0..=max).contains(&number)) {
            return Err(ApiError::invalid(name, format!("must be from 0 to {max}")));
        }
        Ok(number.map(narrow))
    };
    let ownership = Ownership {
        uid: number("uid", i64::from(u32::MAX))?,
        gid: number("gid", i64::from(u32::MAX))?,
        mode: number("mode", MODE_MAX)?,
    };
    let changed = door.volumes.change(&place.volume, &place.path, ownership).await;
    Ok(Json(shown(&changed.map_err(sorted)?)))
}

/// `DELETE /volumecontent/{id}/path`.
pub(super) async fn remove(
    State(door): State<DoorState>,
    place: Place,
) -> Result<StatusCode, ApiError> {
    door.volumes.remove_entry(&place.volume, &place.path).await.map_err(sorted)?;
    Ok(StatusCode::NO_CONTENT)
}

/// `GET /volumecontent/{id}/dir`.
pub(super) async fn entries(
    State(door): State<DoorState>,
    place: Place,
) -> Result<Json<Value>, ApiError> {
    let depth = narrow(place.query.number("depth", 1..=DEPTH_MAX)?.unwrap_or(1));
    let entries = door.volumes.entries(&place.volume, &place.path, depth).await.map_err(sorted)?;
    Ok(Json(entries.iter().map(shown).collect()))
}

/// `POST /volumecontent/{id}/dir`.
pub(super) async fn make_directory(
    State(door): State<DoorState>,
    place: Place,
) -> Result<Response, ApiError> {
    let (ownership, force) = (place.ownership()?, place.query.flag("force")?);
    let made = door.volumes.make_directory(&place.volume, &place.path, ownership, force).await;
    Ok((StatusCode::CREATED, Json(shown(&made.map_err(sorted)?))).into_response())
}

/// `GET /volumecontent/{id}/file`.
pub(super) async fn read(
    State(door): State<DoorState>,
    place: Place,
) -> Result<Response, ApiError> {
    let file = door.volumes.read_file(&place.volume, &place.path).await.map_err(sorted)?;
    let headers = [
        (header::CONTENT_TYPE, "application/octet-stream".to_owned()),
        (header::CONTENT_LENGTH, file.size.to_string()),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
    ];
    Ok((headers, StreamBody::from_stream(ReaderStream::new(file.bytes))).into_response())
}

/// `PUT /volumecontent/{id}/file`.
pub(super) async fn write(
    State(door): State<DoorState>,
    place: Place,
    request: Request,
) -> Result<Response, ApiError> {
    let (ownership, force) = (place.ownership()?, place.query.flag("force")?);
    let stream = request.into_body().into_data_stream().map_err(std::io::Error::other);
    let mut bytes = StreamReader::new(Box::pin(stream));
    let written =
        door.volumes.write_file(&place.volume, &place.path, ownership, force, &mut bytes).await;
    Ok((StatusCode::CREATED, Json(shown(&written.map_err(sorted)?))).into_response())
}

fn shown(entry: &VolumeEntry) -> Value {
    let kind = match entry.kind {
        EntryKind::File => "file",
        EntryKind::Directory => "directory",
        EntryKind::Symlink => "symlink",
        EntryKind::Other => "unknown",
    };
    let mut shown = json!({
        "name": entry.name,
        "type": kind,
        "path": entry.path,
        "size": entry.size,
        "mode": entry.mode,
        "uid": entry.uid,
        "gid": entry.gid,
        "atime": time::text(entry.atime),
        "mtime": time::text(entry.mtime),
        "ctime": time::text(entry.ctime),
    });
    if let Some(target) = &entry.target {
        shown["target"] = target.as_str().into();
    }
    shown
}
