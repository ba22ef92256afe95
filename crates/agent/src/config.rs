//! What a launcher tells the agent.

use crate::door::Port;
use serde::Deserialize;
use std::{collections::BTreeMap, time::Duration};

/// What a launcher tells the agent about its sandbox; unknown members are ignored.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Config {
    /// The sandbox's id.
    pub(crate) id: String,
    /// The program to run beside serving, with its arguments; empty for none.
    pub(crate) entrypoint: Vec<String>,
    /// What the entrypoint and commands start from.
    #[serde(flatten)]
    pub(crate) defaults: Defaults,
    /// What must succeed before the sandbox counts as up.
    pub(crate) ready: Option<Check>,
    /// It is made for stock: whatever takes long to start is started before anybody waits for it.
    pub(crate) warm: bool,
    /// Whoever says this may give the sandbox other defaults; nobody may when it is empty.
    pub(crate) key: String,
    /// A secret that every caller must present.
    pub(crate) access_token: Option<String>,
    /// Where to listen when the launcher can't hand a socket over.
    pub(crate) door: Option<Port>,
}

/// What the entrypoint and commands start from. Given anew when somebody claims the sandbox.
#[derive(Debug, Default, Deserialize, PartialEq, Eq)]
#[serde(default)]
pub(crate) struct Defaults {
    /// The sandbox's variables.
    pub(crate) env: BTreeMap<String, String>,
    /// Where the entrypoint and commands start.
    pub(crate) cwd: Option<String>,
    /// Who the entrypoint runs as, and commands that name nobody: `name`, `uid`, `uid:gid` or
    /// `name:group`.
    pub(crate) user: Option<String>,
    /// Somebody chose user and directory: make them where the image lacks them.
    pub(crate) make: bool,
}

/// A command that is tried until it succeeds.
#[derive(Debug, Deserialize, PartialEq, Eq)]
pub(crate) struct Check {
    /// For the shell.
    pub(crate) command: String,
    every_ms: u64,
    within_ms: u64,
}

impl Check {
    /// Wait between tries; never so short that trying is all the sandbox does.
    pub(crate) fn every(&self) -> Duration {
        Duration::from_millis(self.every_ms).max(Duration::from_millis(20))
    }

    /// Patience in all.
    pub(crate) fn within(&self) -> Duration {
        Duration::from_millis(self.within_ms)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_may_be_missing_null_or_unknown() {
        let text = r#"{"id":"s1","entrypoint":["tail","-f","/dev/null"],"env":{"A":"b"},
            "cwd":null,"user":null,"later":{"x":1}}"#;
        let config: Config = serde_json::from_str(text).unwrap();
        assert_eq!(config.entrypoint, ["tail", "-f", "/dev/null"]);
        assert_eq!(config.defaults.env["A"], "b");
        assert_eq!((config.defaults.cwd, config.defaults.user), (None, None));
        assert_eq!(serde_json::from_str::<Config>("{}").unwrap(), Config::default());
    }
}
