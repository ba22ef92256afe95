//! Inside a sandbox: the code interpreter API over [`atoll_guest::kernel`].
//!
//! Callers are trusted: whoever forwards to this has checked their tokens.

mod contexts;
mod execute;
mod extract;
mod failure;
mod stream;
mod wire;

use atoll_guest::Guest;
use axum::{
    Json, Router,
    routing::{delete, get, post},
};
use std::{path::Path, sync::Arc};
use tokio::sync::OnceCell;

/// Where code starts, in images that have it.
const HOME: &str = "/home/user";
/// The contexts that clients expect to find in a fresh sandbox.
pub const DEFAULT_LANGUAGES: [&str; 2] = ["python", "javascript"];

/// What all handlers share.
#[derive(Clone)]
struct Interpreter {
    guest: Arc<Guest>,
    home: Arc<OnceCell<Option<&'static str>>>,
}

/// All routes of the code interpreter API.
pub fn router(guest: Arc<Guest>) -> Router {
    let interpreter = Interpreter { guest, home: Arc::default() };
    Router::new()
        .route("/health", get(health))
        .route("/execute", post(execute::execute))
        .route("/contexts", get(contexts::list).post(contexts::create))
        .route("/contexts/{id}", delete(contexts::remove))
        .route("/contexts/{id}/restart", post(contexts::restart))
        .with_state(interpreter)
}

/// Starts the kernels of the default contexts that the image has; answers when a first execution
/// would find them up and warm.
pub async fn warm_up(guest: &Arc<Guest>) -> atoll_guest::Result<()> {
    let interpreter = Interpreter { guest: Arc::clone(guest), home: Arc::default() };
    let languages = interpreter.default_languages().await;
    interpreter.guest.kernels().prestart(&languages, interpreter.home().await).await
}

async fn health() -> Json<&'static str> {
    Json("OK")
}

impl Interpreter {
    /// Where contexts start that name no directory; the sandbox's own place when absent.
    async fn home(&self) -> Option<&'static str> {
        let look = async || {
            let is_there = self.guest.file_operation(None, || Ok(Path::new(HOME).is_dir())).await;
            is_there.is_ok_and(|is_there| is_there).then_some(HOME)
        };
        *self.home.get_or_init(look).await
    }

    /// The default contexts count from the beginning; their kernels start when used.
    async fn count_defaults(&self) -> atoll_guest::Result<()> {
        let (languages, home) = (self.default_languages().await, self.home().await);
        for language in languages {
            self.guest.kernels().default_for(language, home)?;
        }
        Ok(())
    }

    /// Those of the default contexts that this image has a kernel for.
    async fn default_languages(&self) -> Vec<&'static str> {
        let mut languages = Vec::new();
        for language in DEFAULT_LANGUAGES {
            if self.guest.kernels().has(language).await {
                languages.push(language);
            }
        }
        languages
    }
}
