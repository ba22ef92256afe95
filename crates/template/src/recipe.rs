//! What a build shall do.

use atoll_core::{Error, RegistryAuth, Result};

/// Steps of one build.
const STEPS_MAX: usize = 500;
/// Bytes of one argument; Linux takes no longer one.
const ARGUMENT_BYTES_MAX: usize = 100 * 1024;
const NAME_CHARS_MAX: usize = 64;

/// What a build starts from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ground {
    /// An image, with what its registry asks for.
    Image(String, Option<RegistryAuth>),
    /// Another template.
    Template(String),
}

/// What one step does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Runs a command, as another user if one is named.
    Run {
        /// For the login shell.
        command: String,
        /// Instead of the user at this point.
        user: Option<String>,
    },
    /// Puts uploaded files somewhere.
    Copy {
        /// Path or pattern within the upload.
        source: String,
        /// Where to.
        target: String,
        /// `user` or `user:group`; the user at this point when absent.
        owner: Option<String>,
        /// Octal digits.
        mode: Option<String>,
        /// Name of the upload.
        files: String,
    },
    /// Sets variables.
    Env(Vec<(String, String)>),
    /// Sets the folder where commands start.
    Workdir(String),
    /// Sets the user.
    User {
        /// Account name; made when it isn't there.
        name: String,
        /// May become root without a password.
        sudo: bool,
    },
}

/// One step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// What it does.
    pub action: Action,
    /// Do it, and all after it, even if it was done before.
    pub force: bool,
    /// As it was written, for logs and for recognising it.
    words: Vec<String>,
}

/// A whole build.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// What it starts from.
    pub from: Ground,
    /// Do everything again.
    pub force: bool,
    /// What is done, in order.
    pub steps: Vec<Step>,
    /// Runs in every sandbox from its start on.
    pub start: Option<String>,
    /// Must succeed before a sandbox counts as running.
    pub ready: Option<String>,
}

impl Recipe {
    /// Checks what holds for the whole.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub fn check(&self) -> Result<()> {
        if self.steps.len() > STEPS_MAX {
            let problem = format!("{} are too many: at most {STEPS_MAX} work", self.steps.len());
            return Err(Error::invalid("steps", problem));
        }
        for (field, command) in [("startCmd", &self.start), ("readyCmd", &self.ready)] {
            if command.as_ref().is_some_and(|text| !is_argument(text)) {
                return Err(Error::invalid(field, unusable()));
            }
        }
        Ok(())
    }
}

impl Step {
    /// Reads the `number`th step, counted from 1.
    ///
    /// # Errors
    /// `Invalid`, naming the field.
    pub fn parse(
        number: usize,
        kind: &str,
        args: &[String],
        files: Option<&str>,
        force: bool,
    ) -> Result<Self> {
        let kind = kind.to_ascii_uppercase();
        let fail = |problem: String| {
            Error::invalid(&format!("steps[{}]", number.saturating_sub(1)), problem)
        };
        if args.iter().any(|argument| !is_argument(argument)) {
            return Err(fail(format!("{kind}: {}", unusable())));
        }
        let filled = |at: usize| args.get(at).filter(|text| !text.is_empty()).cloned();
        let needed = |at: usize, what: &str| {
            filled(at).ok_or_else(|| fail(format!("{kind} needs {what} as argument {}", at + 1)))
        };
        let action = match kind.as_str() {
            "RUN" => Action::Run { command: needed(0, "a command")?, user: filled(1) },
            "COPY" | "ADD" => Action::Copy {
                source: needed(0, "a source path")?,
                target: needed(1, "a target path")?,
                owner: filled(2),
                mode: filled(3),
                files: files.unwrap_or_default().to_owned(),
            },
            "ENV" | "ARG" => Action::Env(pairs(args).map_err(|p| fail(format!("{kind}: {p}")))?),
            "WORKDIR" => Action::Workdir(needed(0, "a path")?),
            "USER" => Action::User {
                name: needed(0, "a user name")?,
                sudo: args.get(1).is_some_and(|text| text == "true"),
            },
            _ => {
                let shown = crate::reference::shown(&kind);
                let problem =
                    format!("type '{shown}' is unknown: use RUN, COPY, ENV, WORKDIR or USER");
                return Err(fail(problem));
            }
        };
        check(&action).map_err(|problem| fail(format!("{kind}: {problem}")))?;
        let words = [&[kind], args].concat();
        Ok(Self { action, force, words })
    }

    /// As it was written; the values of variables are left out.
    pub(crate) fn text(&self) -> String {
        match &self.action {
            Action::Env(pairs) => {
                let names: Vec<&str> = pairs.iter().map(|(name, _)| name.as_str()).collect();
                format!("ENV {}", names.join(" "))
            }
            Action::Run { .. } | Action::Copy { .. } | Action::Workdir(_) | Action::User { .. } => {
                let words: Vec<&str> =
                    self.words.iter().map(String::as_str).filter(|word| !word.is_empty()).collect();
                words.join(" ")
            }
        }
    }

    /// What makes it the same step as another one.
    pub(crate) fn identity(&self) -> Vec<&str> {
        let files = match &self.action {
            Action::Copy { files, .. } => files.as_str(),
            Action::Run { .. } | Action::Env(_) | Action::Workdir(_) | Action::User { .. } => "",
        };
        self.words.iter().map(String::as_str).chain([files]).collect()
    }
}

fn check(action: &Action) -> Result<(), String> {
    match action {
        Action::Run { user, .. } => user.as_deref().map_or(Ok(()), check_user),
        Action::Copy { source, owner, mode, files, .. } => {
            if !is_hash(files) {
                return Err("filesHash is missing or is not 64 hex digits".to_owned());
            }
            if source.split('/').any(|part| part == "..") || source.starts_with('/') {
                return Err("the source must be relative and must not contain '..'".to_owned());
            }
            let digits =
                |mode: &String| mode.len() <= 4 && mode.bytes().all(|b| (b'0'..=b'7').contains(&b));
            if mode.as_ref().is_some_and(|mode| !digits(mode)) {
                return Err("the mode must be up to four octal digits, such as 0755".to_owned());
            }
            let parts = owner.as_deref().into_iter().flat_map(|owner| owner.splitn(2, ':'));
            parts.into_iter().try_for_each(check_user)
        }
        Action::Env(_) | Action::Workdir(_) => Ok(()),
        Action::User { name, .. } => check_user(name),
    }
}

/// Names end up in command lines and account files.
fn check_user(name: &str) -> Result<(), String> {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'_' | b'-' | b'.');
    let fits = (1..=NAME_CHARS_MAX).contains(&name.len());
    if fits && name.bytes().all(plain) && !name.starts_with(['-', '.']) {
        return Ok(());
    }
    Err(format!("'{}' is no user or group name", crate::reference::shown(name)))
}

fn pairs(args: &[String]) -> Result<Vec<(String, String)>, String> {
    if args.is_empty() || !args.len().is_multiple_of(2) {
        return Err("send names and values in turn".to_owned());
    }
    let is_name = |name: &str| {
        let plain = |b: u8| b.is_ascii_alphanumeric() || b == b'_';
        !name.is_empty() && name.bytes().all(plain) && !name.as_bytes()[0].is_ascii_digit()
    };
    let pair = |pair: &[String]| match is_name(&pair[0]) {
        true => Ok((pair[0].clone(), pair[1].clone())),
        false => Err(format!("'{}' is no variable name", crate::reference::shown(&pair[0]))),
    };
    args.chunks(2).map(pair).collect()
}

/// Whether `text` can name an upload.
pub(crate) fn is_hash(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

fn is_argument(text: &str) -> bool {
    text.len() <= ARGUMENT_BYTES_MAX && !text.contains('\0')
}

fn unusable() -> String {
    format!("must have no NUL byte and at most {ARGUMENT_BYTES_MAX} bytes; copy a script instead")
}

#[cfg(test)]
mod tests;
