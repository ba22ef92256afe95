//! Who calls: the user that Basic authentication or a parameter names.

use super::{
    connect::{Code, Failure},
    path::{self, PathError},
};
use atoll_guest::{Guest, accounts::Login};
use axum::http::{HeaderMap, header};
use base64::{Engine, prelude::BASE64_STANDARD};
use std::{path::PathBuf, sync::Arc};

/// A caller: the guest, and who to be in it.
#[derive(Debug)]
pub(super) struct Caller {
    pub(super) guest: Arc<Guest>,
    pub(super) login: Login,
    pub(super) headers: HeaderMap,
}

impl Caller {
    /// The caller of an RPC.
    pub(super) async fn identify(guest: Arc<Guest>, headers: &HeaderMap) -> Result<Self, Failure> {
        let name =
            basic_user(headers).map_err(|message| Failure::new(Code::Unauthenticated, message))?;
        Self::named(guest, name, headers).await
    }

    async fn named(
        guest: Arc<Guest>,
        name: Option<String>,
        headers: &HeaderMap,
    ) -> Result<Self, Failure> {
        let found = guest.login(name.clone()).await;
        let login = found.ok_or_else(|| {
            let name = name.unwrap_or_default();
            let message =
                format!("there is no user {name:?} in this sandbox; name one that exists");
            Failure::new(Code::Unauthenticated, message)
        })?;
        Ok(Self { guest, login, headers: headers.clone() })
    }

    /// The same for a request whose parameters may name the user.
    pub(super) async fn of_request(
        guest: Arc<Guest>,
        headers: &HeaderMap,
        username: Option<&str>,
    ) -> Result<Self, Failure> {
        match username.filter(|name| !name.is_empty()) {
            Some(name) => Self::named(guest, Some(name.to_owned()), headers).await,
            None => Self::identify(guest, headers).await,
        }
    }

    /// What a path argument means to this caller.
    pub(super) fn path(&self, path: &str) -> Result<PathBuf, PathError> {
        path::resolve(path, &self.login.home, self.guest.environment().workdir())
    }
}

impl From<PathError> for Failure {
    fn from(error: PathError) -> Self {
        Self::invalid(error.to_string())
    }
}

/// The user that the header names; the password says nothing, the server has checked the token.
fn basic_user(headers: &HeaderMap) -> Result<Option<String>, &'static str> {
    let Some(value) = headers.get(header::AUTHORIZATION) else { return Ok(None) };
    let wrong = "the header Authorization is not Basic with base64 of \"user:\"";
    let (scheme, rest) = value.to_str().ok().and_then(|v| v.split_once(' ')).ok_or(wrong)?;
    if !scheme.eq_ignore_ascii_case("basic") {
        // Somebody else's header, such as a proxy's.
        return Ok(None);
    }
    let decoded = BASE64_STANDARD.decode(rest.trim()).map_err(|_| wrong)?;
    let text = String::from_utf8(decoded).map_err(|_| wrong)?;
    let (user, _) = text.split_once(':').ok_or(wrong)?;
    Ok((!user.is_empty()).then(|| user.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_name_of_basic_authentication_counts() {
        let user = |value: &str| {
            basic_user(&HeaderMap::from_iter([(header::AUTHORIZATION, value.parse().unwrap())]))
                .ok()
        };
        let named = |name: &str| Some(Some(name.to_owned()));
        assert_eq!(basic_user(&HeaderMap::new()), Ok(None));
        assert_eq!(user("Basic cm9vdDo="), named("root"));
        assert_eq!(user("basic dXNlcjpzZWNyZXQ="), named("user"));
        assert_eq!(user("Basic Og=="), Some(None));
        assert_eq!(user("Bearer abc"), Some(None));
        assert_eq!(user("Basic !"), None);
        assert_eq!(user("Basic cm9vdA=="), None);
        assert_eq!(user("Basic"), None);
    }
}
