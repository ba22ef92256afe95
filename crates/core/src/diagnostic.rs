//! Why a sandbox is not as wished, in words that help.

/// Longest text a diagnostic keeps, because parts of it may come from inside a sandbox.
const TEXT_CHARS_MAX: usize = 2000;

/// What went wrong, as a program reads it and as a person reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Diagnostic {
    /// Stable upper-case word, such as `IMAGE_PULL_FAILED`.
    pub reason: String,
    /// What happened.
    pub message: String,
    /// What to do about it.
    pub recommendation: String,
}

impl Diagnostic {
    /// A diagnostic with its texts cut to a bounded length and stripped of control characters.
    pub fn new(reason: &str, message: &str, recommendation: &str) -> Self {
        Self {
            reason: reason.to_owned(),
            message: bounded(message),
            recommendation: bounded(recommendation),
        }
    }
}

fn bounded(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .take(TEXT_CHARS_MAX)
        .collect::<String>()
        .trim()
        .to_owned()
}
