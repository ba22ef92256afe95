//! What every command starts from, replaceable while the sandbox lives.

use crate::{
    Identity,
    environment::{Environment, Variables},
    sys,
};
use std::{
    path::PathBuf,
    sync::{Arc, PoisonError, RwLock},
};

/// What a sandbox is told about itself, at its start and whenever it is claimed anew.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    /// The sandbox's variables.
    pub env: Variables,
    /// Who commands run as unless they say otherwise; the agent's own identity when absent.
    pub user: Option<Identity>,
    /// Where commands start unless they say otherwise; absent when nobody chose a place.
    pub workdir: Option<PathBuf>,
}

/// The values in force. Whoever starts something takes [`Settings::current`] once and uses nothing
/// else, so that a replacement is seen whole or not at all.
#[derive(Debug)]
pub struct Settings {
    current: RwLock<Arc<Environment>>,
}

impl Settings {
    /// Puts the first values in force. Prepares the place of the file of variables, so it blocks
    /// for a moment.
    pub fn new(values: Values) -> Self {
        Self { current: RwLock::new(Arc::new(environment(values))) }
    }

    /// Puts other values in force for everything that starts from now on. Blocks for a moment.
    pub fn replace(&self, values: Values) {
        let next = Arc::new(environment(values));
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// What is in force now.
    pub fn current(&self) -> Arc<Environment> {
        Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner))
    }
}

fn environment(values: Values) -> Environment {
    let Values { env, user, workdir } = values;
    Environment::new(env, workdir, user.and_then(unless_own))
}

/// Drops an identity that is the agent's own: it needs no change, and its start stays fast.
pub(crate) fn unless_own(identity: Identity) -> Option<Identity> {
    let own = sys::effective_uid() == 0 && (identity.uid, identity.gid) == (0, 0);
    (!own).then_some(identity)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(name: &str, value: &str) -> Values {
        let env = Variables::from([
            (name.to_owned(), value.to_owned()),
            (crate::environment::FILE_VARIABLE.to_owned(), "/dev/null".to_owned()),
        ]);
        Values { env, ..Values::default() }
    }

    #[test]
    fn a_replacement_leaves_nothing_of_what_was_before() {
        let settings = Settings::new(values("A", "1"));
        let before = settings.current();
        let user = Identity { uid: 4321, gid: 4321, groups: Vec::new() };
        let workdir = Some(PathBuf::from("/tmp"));
        settings.replace(Values { user: Some(user.clone()), workdir, ..values("B", "2") });
        let after = settings.current();
        assert!(!after.variables().contains_key("A"));
        assert_eq!(after.variables()["B"], "2");
        assert_eq!((after.user(), after.cwd()), (Some(&user), "/tmp".as_ref()));
        assert_eq!((before.user(), before.cwd()), (None, "/".as_ref()));
        assert_eq!(before.variables()["A"], "1", "what has begun keeps what it began with");
    }
}
