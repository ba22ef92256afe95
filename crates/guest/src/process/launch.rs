use crate::{
    Error, Identity, Result,
    environment::Variables,
    process::{Exit, Reaper},
    sys,
};
use std::{
    fs, io,
    os::{
        fd::OwnedFd,
        unix::{fs::PermissionsExt, process::CommandExt},
    },
    path::{Path, PathBuf},
    process::{Command, Stdio},
};

/// The longest single argument that the kernel takes, including its terminator.
const ARGUMENT_BYTES_MAX: usize = 128 * 1024;
/// Commands are killed before the agent when the sandbox runs out of memory.
const OOM_SCORE_ADJUST: &str = "500";

/// A process to be started.
#[derive(Debug)]
pub struct Launch {
    /// What to run: the program as the caller wrote it, then its arguments.
    pub argv: Vec<String>,
    /// The complete environment.
    pub env: Variables,
    /// The directory to start in.
    pub cwd: PathBuf,
    /// Who to run as; the agent's own identity when absent.
    pub identity: Option<Identity>,
    /// How the standard streams are connected.
    pub wiring: Wiring,
}

/// What the process reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Input {
    /// Nothing.
    Null,
    /// A pipe that the agent holds.
    Pipe,
}

/// How the standard streams are connected.
#[derive(Debug)]
pub enum Wiring {
    /// Separate pipes for stdout and stderr.
    Split(Input),
    /// One pipe for stdout and stderr, in the order written.
    Merged,
    /// All three are this terminal.
    Terminal(OwnedFd),
}

/// A started process.
#[derive(Debug)]
pub struct Spawned {
    /// Its pid, which is also its process group.
    pub pid: i32,
    /// How it will end.
    pub exit: Exit,
    /// The writing end of its stdin, if piped.
    pub stdin: Option<OwnedFd>,
    /// Its stdout, or both streams when merged.
    pub stdout: Option<OwnedFd>,
    /// Its stderr, when separate.
    pub stderr: Option<OwnedFd>,
}

impl Launch {
    /// Starts the process in a group of its own. Blocks until it has been executed.
    ///
    /// Errors: [`Error::Invalid`] for a bad directory or argument; the kernel's refusal of the
    /// program itself as [`Error::File`] or [`Error::Missing`].
    pub fn spawn(self, reaper: &Reaper) -> Result<Spawned> {
        self.check_arguments()?;
        check_cwd(&self.cwd)?;
        let program = resolve_program(&self.argv[0], &self.env, &self.cwd)?;
        let mut command = Command::new(&program);
        // With an absolute program and no pre_exec hook the library takes its posix_spawn path,
        // which does not copy the agent's page tables.
        command.arg0(&self.argv[0]).args(&self.argv[1..]);
        command.env_clear().envs(&self.env);
        // A static program has no posix_spawn that changes the directory, so it is changed only
        // where it differs from the agent's own.
        if std::env::current_dir().map_or(true, |own| own != self.cwd) {
            command.current_dir(&self.cwd);
        }
        let failed = |source| Error::file("run", &program, source);
        let merged = wire(&mut command, self.wiring).map_err(failed)?;
        if let Some(identity) = &self.identity {
            sys::run_as(&mut command, identity);
        }
        let (mut child, exit) = reaper.watch(|| command.spawn()).map_err(failed)?;
        let pid = child.id() as i32;
        fs::write(format!("/proc/{pid}/oom_score_adj"), OOM_SCORE_ADJUST).ok();
        Ok(Spawned {
            pid,
            exit,
            stdin: child.stdin.take().map(OwnedFd::from),
            stdout: merged.or_else(|| child.stdout.take().map(OwnedFd::from)),
            stderr: child.stderr.take().map(OwnedFd::from),
        })
    }

    fn check_arguments(&self) -> Result<()> {
        if self.argv.first().is_none_or(String::is_empty) {
            return Err(Error::invalid("argv", "the program is empty; name one"));
        }
        for argument in &self.argv {
            if argument.contains('\0') {
                return Err(Error::invalid("command", "contains a NUL byte; remove it"));
            }
            if argument.len() >= ARGUMENT_BYTES_MAX {
                let problem = format!(
                    "{} bytes are more than the {ARGUMENT_BYTES_MAX} that Linux takes in one \
                     argument; upload a script and run that",
                    argument.len()
                );
                return Err(Error::invalid("command", problem));
            }
        }
        Ok(())
    }
}

/// Connects the standard streams; answers the reading end when both outputs share one pipe.
fn wire(command: &mut Command, wiring: Wiring) -> io::Result<Option<OwnedFd>> {
    match wiring {
        Wiring::Split(input) => {
            let stdin = if input == Input::Pipe { Stdio::piped() } else { Stdio::null() };
            command.stdin(stdin).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
            Ok(None)
        }
        Wiring::Merged => {
            let (reader, writer) = io::pipe()?;
            let both = writer.try_clone()?;
            command.stdin(Stdio::null()).stdout(writer).stderr(both).process_group(0);
            Ok(Some(reader.into()))
        }
        Wiring::Terminal(slave) => {
            command.stdin(slave.try_clone()?).stdout(slave.try_clone()?).stderr(slave);
            sys::own_terminal(command);
            Ok(None)
        }
    }
}

fn check_cwd(cwd: &Path) -> Result<()> {
    let problem = match fs::metadata(cwd) {
        Ok(found) if found.is_dir() => return Ok(()),
        Ok(_) => "is not a directory".to_owned(),
        Err(error) => error.to_string(),
    };
    Err(Error::invalid("cwd", format!("{}: {problem}; name an existing directory", cwd.display())))
}

/// Finds the program as a shell would: by `PATH` unless the name has a slash.
pub fn resolve_program(name: &str, env: &Variables, cwd: &Path) -> Result<PathBuf> {
    if name.contains('/') {
        return Ok(cwd.join(name));
    }
    let path = env.get("PATH").map_or("", String::as_str);
    let mut refused = None;
    for directory in path.split(':') {
        let candidate = cwd.join(directory).join(name);
        match fs::metadata(&candidate) {
            Ok(found) if found.is_file() && found.permissions().mode() & 0o111 != 0 => {
                return Ok(candidate);
            }
            Ok(found) if found.is_file() => refused = Some(candidate),
            _ => {}
        }
    }
    match refused {
        Some(path) => {
            let source = io::Error::from(io::ErrorKind::PermissionDenied);
            Err(Error::File { action: "run", path, source })
        }
        None => Err(Error::Missing { path: name.into() }),
    }
}

/// The words that run shell text: bash where the image has it, else sh.
pub fn shell(env: &Variables) -> &'static str {
    let usual = ["/bin/bash", "/usr/bin/bash", "/usr/local/bin/bash"];
    if let Some(found) = usual.into_iter().find(|path| Path::new(path).exists()) {
        return found;
    }
    let elsewhere = resolve_program("bash", env, Path::new("/"));
    if elsewhere.is_ok() { "bash" } else { "/bin/sh" }
}

impl Launch {
    /// The words that run `text` in a shell.
    pub fn shell_argv(env: &Variables, text: &str) -> Vec<String> {
        vec![shell(env).to_owned(), "-c".to_owned(), text.to_owned()]
    }
}
