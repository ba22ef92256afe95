//! `cargo xtask up`: from a fresh checkout to a running server.

use std::os::unix::process::CommandExt;

use anyhow::{Result, anyhow};

use crate::command::program;
use crate::{build, packages};

/// Builds, installs what is missing and becomes the server.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    packages::ensure(packages::SERVE)?;
    let programs = build::release()?;
    let mut serve = program(&programs.atoll, ["serve"]);
    let error = serve.args(arguments).exec();
    Err(anyhow!("can't start {}: {error}", programs.atoll.display()))
}
