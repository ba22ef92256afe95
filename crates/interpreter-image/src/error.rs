use std::{io, path::PathBuf};

/// Why the tree could not be built.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A program that the build needs is missing.
    #[error("{program} is missing; install the package {package}")]
    Missing {
        /// The program.
        program: &'static str,
        /// The Debian package that brings it.
        package: &'static str,
    },
    /// A step's program failed.
    #[error("{step} failed with {status}: {said}")]
    Step {
        /// What was being done.
        step: &'static str,
        /// How the program ended.
        status: String,
        /// The end of what it said.
        said: String,
    },
    /// A step's program took too long.
    #[error("{step} took more than {minutes} minutes; is the package registry reachable?")]
    Slow {
        /// What was being done.
        step: &'static str,
        /// How long it may take.
        minutes: u64,
    },
    /// The folder can't be trusted to keep the tree.
    #[error("{} can't keep the tree: {problem}", path.display())]
    Folder {
        /// Which folder.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// A file could not be handled.
    #[error("cannot {action} {}", path.display())]
    File {
        /// What was tried.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// There is no kernel for this processor.
    #[error("there is no JavaScript kernel for processors of type {0}")]
    Processor(&'static str),
}
