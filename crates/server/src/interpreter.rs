//! The image `code-interpreter`: made once on this machine, in the background.

use std::path::PathBuf;

use atoll_image::Addition;
use atoll_template::{BuiltIn, Progress};
use tokio::sync::watch;

use crate::config::{Config, RuntimeKind};

/// What the image and the template are called, and what E2B's clients call it.
const NAME: &str = "code-interpreter";
const ALIAS: &str = "code-interpreter-v1";

/// How far it is, for those who want sandboxes of it.
pub(crate) struct Interpreter {
    image: watch::Receiver<Addition>,
    template: watch::Receiver<Progress>,
}

impl Interpreter {
    /// Takes what an earlier server has made, or begins to make it.
    pub(crate) fn start(config: &Config) -> Self {
        let begin = Addition::Building("not begun".to_owned());
        let (image_told, image) = watch::channel(begin);
        let (template_told, template) = watch::channel(Progress::Building("not begun".to_owned()));
        let telling = Telling { image: image_told, template: template_told };
        let default = || config.data_dir.join(NAME);
        let folder = config.code_interpreter.folder.clone().unwrap_or_else(default);
        let tree = folder.join(atoll_interpreter_image::recipe_digest());
        // A simulated runtime mounts nothing, so that there is nothing to make.
        if tree.is_dir() || config.runtime.kind == RuntimeKind::Sim {
            telling.ready(tree);
        } else if config.code_interpreter.build {
            tokio::spawn(make(telling, tree));
        } else {
            telling.failed("its building is switched off: set code_interpreter.build = true");
        }
        Self { image, template }
    }

    /// The image's name and how far it is.
    pub(crate) fn image(&self) -> (String, watch::Receiver<Addition>) {
        (NAME.to_owned(), self.image.clone())
    }

    /// The template that stands for the image.
    pub(crate) fn template(&self) -> BuiltIn {
        BuiltIn {
            name: NAME.to_owned(),
            aliases: vec![ALIAS.to_owned()],
            image: NAME.to_owned(),
            state: self.template.clone(),
        }
    }
}

/// Tells the image store and the templates the same.
struct Telling {
    image: watch::Sender<Addition>,
    template: watch::Sender<Progress>,
}

impl Telling {
    fn building(&self, doing: &str) {
        tracing::info!(image = NAME, "{doing}");
        self.image.send_replace(Addition::Building(doing.to_owned()));
        self.template.send_replace(Progress::Building(doing.to_owned()));
    }

    fn ready(&self, tree: PathBuf) {
        let env = atoll_interpreter_image::environment();
        self.image.send_replace(Addition::Ready { tree, env });
        self.template.send_replace(Progress::Ready);
    }

    fn failed(&self, why: &str) {
        self.image.send_replace(Addition::Failed(why.to_owned()));
        self.template.send_replace(Progress::Failed(why.to_owned()));
    }
}

async fn make(telling: Telling, tree: PathBuf) {
    let made = async {
        if let Some(folder) = tree.parent() {
            tokio::fs::create_dir_all(folder).await?;
        }
        atoll_interpreter_image::build(&tree, |doing| telling.building(doing)).await?;
        Ok::<(), Box<dyn std::error::Error + Send + Sync>>(())
    };
    match made.await {
        Ok(()) => {
            tracing::info!(image = NAME, "ready");
            telling.ready(tree);
        }
        Err(error) => {
            tracing::warn!(image = NAME, %error, "can't be built");
            telling.failed(&format!("{error}; mend that and restart the server"));
        }
    }
}
