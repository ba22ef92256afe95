use super::{Interpreter, extract::Body, failure::Failure, stream, wire::ExecuteRequest};
use atoll_guest::kernel::Execution;
use axum::{extract::State, response::Response};

const BOTH: &str = "Only one of context_id or language can be provided";

pub(super) async fn execute(
    State(interpreter): State<Interpreter>,
    Body(request): Body<ExecuteRequest>,
) -> Result<Response, Failure> {
    let given = |text: Option<String>| text.filter(|text| !text.is_empty());
    let kernels = interpreter.guest.kernels();
    let id = match (given(request.context_id), given(request.language)) {
        (Some(_), Some(_)) => return Err(Failure::Conflict(BOTH)),
        (Some(id), None) => kernels.find(&id)?.id,
        (None, language) => {
            let home = interpreter.home().await;
            kernels.default_for(&language.unwrap_or_default(), home)?.id
        }
    };
    // A kernel that can't be started is an answer of its own; one that is up costs nothing here.
    kernels.start(&id).await?;
    let env = request.env_vars.unwrap_or_default();
    let events = kernels.execute(&id, Execution { code: request.code, env }).await?;
    Ok(stream::response(events))
}
