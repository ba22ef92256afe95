use serde_json::{Map, Value};

/// What an execution delivers; nothing more comes when the channel closes.
#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    /// The kernel has taken the code up, as its so many-eth.
    Accepted {
        /// Executions of this kernel, this one included.
        count: u64,
    },
    /// Text that was printed.
    Stdout(Text),
    /// Text that was printed as errors.
    Stderr(Text),
    /// A value that was shown.
    Shown {
        /// It is the value of the code itself, not one shown along the way.
        is_main: bool,
        /// The value by media type.
        data: Map<String, Value>,
    },
    /// The code failed.
    Failed {
        /// The kind of error.
        name: String,
        /// What it says.
        value: String,
        /// Where it happened, in lines for a reader.
        traceback: Vec<String>,
    },
    /// The kernel ended under the execution; the next one gets a new kernel.
    Died {
        /// How it ended.
        reason: String,
    },
    /// The context was restarted or deleted under the execution.
    CutOff,
}

/// A piece of output.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Text {
    /// What was printed.
    pub text: String,
    /// When, in RFC 3339; as the kernel says.
    pub at: String,
}
