//! Templates that the server brings along.

use std::time::Duration;

use atoll_core::{Error, ErrorKind, Result, Timestamp};
use tokio::sync::watch;

use crate::ids;
use crate::record::{Build, Made, Status, Tag, Template};
use crate::reference::DEFAULT_TAG;

/// How far a built-in template is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Progress {
    /// Being made; what is done right now.
    Building(String),
    /// Sandboxes can be made from it.
    Ready,
    /// It could not be made; why.
    Failed(String),
}

/// A template that belongs to nobody and that everybody may use.
#[derive(Clone, Debug)]
pub struct BuiltIn {
    /// Its main name.
    pub name: String,
    /// Other names.
    pub aliases: Vec<String>,
    /// The image that it stands for.
    pub image: String,
    /// How far it is.
    pub state: watch::Receiver<Progress>,
}

impl BuiltIn {
    /// One that is there from the beginning.
    pub fn ready(name: &str, image: &str) -> Self {
        // A channel whose sender is gone keeps its last value.
        let (_, state) = watch::channel(Progress::Ready);
        Self { name: name.to_owned(), aliases: Vec::new(), image: image.to_owned(), state }
    }

    pub(crate) fn answers_to(&self, name: &str) -> bool {
        self.name == name
            || self.aliases.iter().any(|alias| alias == name)
            || ids::built_in_template(&self.name) == name
    }

    /// Waits until it is ready.
    pub(crate) async fn wait(&self, patience: Duration) -> Result<()> {
        let mut state = self.state.clone();
        let done = |progress: &Progress| !matches!(progress, Progress::Building(_));
        // An error means that whoever made it is gone; the last word is what counts then.
        let _settled =
            tokio::time::timeout(patience, state.wait_for(done)).await.map(|r| r.is_ok());
        let progress = self.state.borrow().clone();
        match progress {
            Progress::Ready => Ok(()),
            Progress::Building(doing) => {
                let message = format!(
                    "template '{}' is still being made ready on this server ({doing}); try again later",
                    self.name
                );
                Err(Error::new(ErrorKind::Unavailable, message).with_reason("TEMPLATE_BUILDING"))
            }
            Progress::Failed(why) => {
                let message = format!(
                    "template '{}' could not be made ready on this server: {why}",
                    self.name
                );
                Err(Error::new(ErrorKind::Unavailable, message).with_reason("TEMPLATE_FAILED"))
            }
        }
    }

    /// It, as a template like any other.
    pub(crate) fn template(&self) -> Template {
        let epoch = Timestamp::from_micros(0);
        let tag = Tag { build: ids::built_in_build(&self.name), created_at: epoch };
        let names = std::iter::once(&self.name).chain(&self.aliases).cloned().collect();
        Template {
            id: ids::built_in_template(&self.name),
            tenant: None,
            names,
            public: true,
            tags: [(DEFAULT_TAG.to_owned(), tag)].into(),
            created_at: epoch,
            updated_at: epoch,
            build_count: 1,
            spawn_count: 0,
            last_spawned_at: None,
        }
    }

    /// Its only build.
    pub(crate) fn build(&self) -> Build {
        let epoch = Timestamp::from_micros(0);
        let status = match &*self.state.borrow() {
            Progress::Building(_) => Status::Building,
            Progress::Ready => Status::Ready,
            Progress::Failed(_) => Status::Error,
        };
        Build {
            id: ids::built_in_build(&self.name),
            template: ids::built_in_template(&self.name),
            tenant: None,
            tags: vec![DEFAULT_TAG.to_owned()],
            status,
            begun: true,
            reason: None,
            cpu_count: None,
            memory_mib: None,
            created_at: epoch,
            updated_at: epoch,
            finished_at: (status == Status::Ready).then_some(epoch),
            made: Some(Made::of_image(&self.image)),
        }
    }
}
