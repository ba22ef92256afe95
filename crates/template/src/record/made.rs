//! What a build leads to: everything a sandbox made from it needs.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::{
    GuestDefaults, ImageSource, ReadyCheck, Result, SandboxSpec, SnapshotId, Source as CoreSource,
};
use serde::{Deserialize, Serialize};

/// The account that every template has.
const USER: &str = "user";
const USER_HOME: &str = "/home/user";
/// Pause between two tries of a ready command.
const READY_EVERY: Duration = Duration::from_millis(250);
/// Runs a start command in a login shell and outlives it: its end is not the sandbox's end.
const START: &str = r#"if command -v bash >/dev/null 2>&1; then bash -l -c "$1"; else sh -l -c "$1"; fi
exec tail -f /dev/null"#;
/// For images whose own program would end at once.
const STAY: &str = "exec tail -f /dev/null";
/// A start command without a ready command is given until something listens, one second at most.
const LISTENS: &str = "i=0; while [ $i -lt 20 ]; do \
    grep -qs ' 0A ' /proc/net/tcp /proc/net/tcp6 && exit 0; i=$((i+1)); sleep 0.05; done; exit 0";

/// Where the files come from.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// An image by name.
    Image(String),
    /// A snapshot by id.
    Snapshot(String),
}

/// Who, where and with what commands run.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting {
    /// Variables.
    pub env: BTreeMap<String, String>,
    /// Account name.
    pub user: String,
    /// That account's own folder.
    pub home: String,
    /// Where to start; the account's own folder when absent.
    pub workdir: Option<String>,
}

impl Default for Setting {
    fn default() -> Self {
        let (user, home) = (USER.to_owned(), USER_HOME.to_owned());
        Self { env: BTreeMap::new(), user, home, workdir: None }
    }
}

impl Setting {
    /// Where commands start.
    pub fn place(&self) -> &str {
        self.workdir.as_deref().unwrap_or(&self.home)
    }
}

/// What a build leads to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Its files.
    pub source: Source,
    /// Who, where and with what.
    pub setting: Setting,
    /// Run in every sandbox from its start on.
    pub start: Option<String>,
    /// Must succeed before a sandbox counts as running.
    pub ready: Option<String>,
    /// The image has a program of its own that must not decide how long a sandbox lives.
    pub foreign: bool,
}

impl Made {
    /// Just an image that the server brings along.
    pub fn of_image(image: &str) -> Self {
        let source = Source::Image(image.to_owned());
        let setting = Setting::default();
        Self { source, setting, start: None, ready: None, foreign: false }
    }

    /// A sandbox made from it, with `ready_time_max` for its ready command.
    ///
    /// # Errors
    /// `Invalid` when the snapshot's id is none.
    pub fn spec(&self, ready_time_max: Duration) -> Result<SandboxSpec> {
        let mut spec = SandboxSpec::new(match &self.source {
            Source::Image(reference) => {
                CoreSource::Image(ImageSource { reference: reference.clone(), auth: None })
            }
            Source::Snapshot(id) => CoreSource::Snapshot(SnapshotId::parse(id)?),
        });
        spec.env.clone_from(&self.setting.env);
        spec.guest = GuestDefaults {
            user: Some(self.setting.user.clone()),
            workdir: Some(self.setting.place().to_owned()),
        };
        spec.entrypoint = self.entrypoint();
        let ready = match (&self.ready, &self.start) {
            (Some(ready), _) => Some(ready.as_str()),
            (None, Some(_)) => Some(LISTENS),
            (None, None) => None,
        };
        spec.ready = ready.map(|command| ReadyCheck {
            command: command.to_owned(),
            every: READY_EVERY,
            within: ready_time_max,
        });
        Ok(spec)
    }

    fn entrypoint(&self) -> Vec<String> {
        let shell = |script: &str| vec!["/bin/sh".to_owned(), "-c".to_owned(), script.to_owned()];
        match &self.start {
            Some(start) => [shell(START), vec!["start".to_owned(), start.clone()]].concat(),
            None if self.foreign => shell(STAY),
            None => Vec::new(),
        }
    }
}
