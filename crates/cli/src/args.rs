//! What can be typed.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};

/// Isolated sandboxes in milliseconds, driven by the OpenSandbox SDKs or from here.
#[derive(Parser)]
#[command(name = "atoll", version, max_term_width = 100)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    pub command: Command,
    #[command(flatten)]
    pub connection: Connection,
    /// How answers are printed.
    #[arg(short, long, global = true, default_value = "table", value_name = "FORMAT")]
    pub output: Output,
}

/// For people or for programs.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Output {
    /// Columns and plain words.
    Table,
    /// JSON.
    Json,
}

/// Which server, and as whom.
#[derive(Args)]
pub(crate) struct Connection {
    /// The server.
    #[arg(long, global = true, env = "ATOLL_URL", default_value = "http://127.0.0.1:8080")]
    pub url: String,
    /// API key; a server on this machine keeps its own in DATA_DIR/api-key.
    #[arg(long, global = true, env = "ATOLL_API_KEY", hide_env_values = true)]
    pub api_key: Option<String>,
    /// Where a server on this machine keeps its data.
    #[arg(long, global = true, env = "ATOLL_DATA_DIR", value_name = "DIR")]
    pub data_dir: Option<PathBuf>,
}

#[derive(Subcommand)]
pub(crate) enum Command {
    /// Run the server.
    Serve(Serve),
    /// Check whether this machine can run sandboxes.
    Doctor,
    #[command(flatten)]
    Verb(Verb),
}

/// How to serve; everything else is in the configuration file.
#[derive(Args)]
pub(crate) struct Serve {
    /// Address and port; port 0 takes a free one. Overrides the configuration.
    #[arg(long, value_name = "ADDRESS")]
    pub listen: Option<SocketAddr>,
    /// Configuration file (TOML).
    #[arg(long, env = "ATOLL_CONFIG", value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// What a client can do.
#[derive(Subcommand)]
pub(crate) enum Verb {
    /// Make a sandbox, run one command in it, remove it.
    Run(Run),
    /// Make a sandbox and print its id.
    Create(Create),
    /// List sandboxes, newest first.
    Ls(List),
    /// Show one sandbox with its timeline.
    Get {
        /// The sandbox.
        id: String,
    },
    /// Run a command in a sandbox.
    Exec(Exec),
    /// Print what the sandbox's entrypoint printed.
    Logs {
        /// The sandbox.
        id: String,
        /// Lines from the end; all that is kept when absent.
        #[arg(long)]
        tail: Option<usize>,
    },
    /// Copy a file into or out of a sandbox; `-` is stdin or stdout.
    Cp {
        /// FILE, `-` or ID:/path.
        from: String,
        /// FILE, `-` or ID:/path.
        to: String,
    },
    /// Freeze sandboxes.
    Pause(Ids),
    /// Thaw sandboxes.
    Resume(Ids),
    /// Remove sandboxes.
    Rm(Ids),
    /// Warm pools: sandboxes made before anybody asks.
    #[command(subcommand)]
    Pool(PoolVerb),
}

/// What can be done with warm pools; needs a key of the operator's tenant.
#[derive(Subcommand)]
pub(crate) enum PoolVerb {
    /// Declare a pool or change it; it is filled at once.
    Set {
        /// Its name; creations may ask for it.
        name: String,
        /// What its sandboxes are made from; the template of the pool's own name when absent.
        #[arg(long)]
        template: Option<String>,
        /// Sandboxes to keep ready; 0 empties it.
        #[arg(long)]
        size: u64,
    },
    /// List pools and how they do.
    Ls,
    /// Forget a pool and remove its sandboxes.
    Rm {
        /// The pool.
        name: String,
    },
}

/// One or more sandboxes.
#[derive(Args)]
pub(crate) struct Ids {
    /// The sandboxes.
    #[arg(required = true)]
    pub ids: Vec<String>,
}

/// What a new sandbox is made of.
#[derive(Args)]
pub(crate) struct Shape {
    /// Image; `base` needs no registry.
    pub image: String,
    /// Variable of every command; a name alone takes the value from here.
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Label for filters.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
    /// Cores, such as 0.5 or 500m.
    #[arg(long, default_value = "1")]
    pub cpu: String,
    /// Memory, such as 512Mi.
    #[arg(long, default_value = "512Mi")]
    pub memory: String,
    /// Seconds until the sandbox removes itself; 0 for never, where the server allows it.
    #[arg(long, default_value_t = 600, value_name = "SECONDS")]
    pub timeout: u64,
}

#[derive(Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub shape: Shape,
    /// Leave the sandbox running afterwards and print its id.
    #[arg(long)]
    pub keep: bool,
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Create {
    #[command(flatten)]
    pub shape: Shape,
    /// Program run beside the agent; its end is the sandbox's end.
    #[arg(last = true)]
    pub entrypoint: Vec<String>,
}

#[derive(Args)]
pub(crate) struct List {
    /// Only in this state, such as Running; may be repeated.
    #[arg(long)]
    pub state: Vec<String>,
    /// Only with this label; may be repeated.
    #[arg(short, long, value_name = "KEY=VALUE")]
    pub label: Vec<String>,
}

#[derive(Args)]
pub(crate) struct Exec {
    /// The sandbox.
    pub id: String,
    /// Folder to run in.
    #[arg(short = 'w', long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// Variable of the command; a name alone takes the value from here.
    #[arg(short, long, value_name = "NAME[=VALUE]")]
    pub env: Vec<String>,
    /// Seconds after which the command is stopped.
    #[arg(long, value_name = "SECONDS")]
    pub timeout: Option<u64>,
    /// The command.
    #[arg(last = true, required = true)]
    pub command: Vec<String>,
}

#[cfg(test)]
mod tests {
    use clap::{CommandFactory, Parser};

    use super::{Arguments, Command, Verb};

    #[test]
    fn the_grammar_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn everything_after_two_dashes_is_the_command() {
        let words = ["atoll", "run", "base", "-e", "A=1", "--", "ls", "-l", "--keep"];
        let parsed = Arguments::try_parse_from(words).unwrap();
        let Command::Verb(Verb::Run(run)) = parsed.command else { panic!("not run") };
        assert_eq!(run.command, ["ls", "-l", "--keep"]);
        assert!(!run.keep);
        assert_eq!(run.shape.env, ["A=1"]);
        assert!(
            Arguments::try_parse_from(["atoll", "run", "base"]).is_err(),
            "a command is needed"
        );
    }
}
