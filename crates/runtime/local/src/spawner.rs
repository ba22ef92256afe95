//! The process that sandboxes are children of.
//!
//! It is single-threaded, because a copy of a threaded process may only exec, and it outlives the
//! server, because sandboxes must. It keeps what is costly to make (network namespaces, user
//! namespaces) ready, forks sandboxes into them, and writes down how each ended. It leaves by
//! itself when neither a server nor a sandbox needs it.

use std::process::ExitCode;

mod bootid;
mod child;
mod identity;
mod launch;
mod oci;
mod rootfs;
mod seccomp;
mod serve;

use crate::protocol::SpawnerConfig;
use crate::sys::process;

/// Runs the spawner until nobody needs it. Its standard input is the listening socket, its only
/// argument a [`SpawnerConfig`] as JSON.
///
/// Must be called before the process has a second thread.
pub fn main(config: &str) -> ExitCode {
    let config: SpawnerConfig = match serde_json::from_str(config) {
        Ok(config) => config,
        Err(error) => return complain(&format!("reading the configuration: {error}")),
    };
    match start(config).and_then(serve::Spawner::run) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => complain(&error.to_string()),
    }
}

fn start(config: SpawnerConfig) -> std::io::Result<serve::Spawner> {
    process::become_subreaper()?;
    process::raise_open_files()?;
    process::prctl(libc::PR_SET_PDEATHSIG, 0)?;
    // Mounts made here (for OCI runtimes) are nobody else's business, and vanish with us.
    process::unshare(libc::CLONE_NEWNS)?;
    crate::sys::mount::make_all_private()?;
    serve::Spawner::new(config)
}

fn complain(message: &str) -> ExitCode {
    use std::io::Write;
    // Standard error is the spawner's log file; if even that fails there is nobody to tell.
    let _unheard = writeln!(std::io::stderr(), "atoll spawner: {message}");
    ExitCode::FAILURE
}
