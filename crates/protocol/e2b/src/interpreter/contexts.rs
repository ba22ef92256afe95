use super::{
    Interpreter,
    extract::Body,
    failure::Failure,
    wire::{Context, NewContext},
};
use axum::{
    Json,
    extract::{Path, State},
};

pub(super) async fn create(
    State(interpreter): State<Interpreter>,
    Body(wanted): Body<NewContext>,
) -> Result<Json<Context>, Failure> {
    let home = interpreter.home().await;
    interpreter.count_defaults().await?;
    let cwd = wanted.cwd.as_deref().filter(|cwd| !cwd.is_empty()).or(home);
    let language = wanted.language.unwrap_or_default();
    let info = interpreter.guest.kernels().open(&language, cwd).await?;
    Ok(Json(info.into()))
}

/// All contexts, oldest first.
pub(super) async fn list(
    State(interpreter): State<Interpreter>,
) -> Result<Json<Vec<Context>>, Failure> {
    interpreter.count_defaults().await?;
    Ok(Json(interpreter.guest.kernels().list().into_iter().map(Context::from).collect()))
}

pub(super) async fn restart(
    State(interpreter): State<Interpreter>,
    Path(id): Path<String>,
) -> Result<Json<()>, Failure> {
    Ok(Json(interpreter.guest.kernels().restart(&id).await?))
}

pub(super) async fn remove(
    State(interpreter): State<Interpreter>,
    Path(id): Path<String>,
) -> Result<Json<()>, Failure> {
    Ok(Json(interpreter.guest.kernels().close(&id).await?))
}
