//! Doing the steps.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::{Failure, Work, copy, expand};
use crate::agent::{AgentError, Command, Outcome, Stream};
use crate::ids;
use crate::log::Level;
use crate::recipe::{Action, Step};

/// How long our own small commands may take.
const CHORE_TIME_MAX: Duration = Duration::from_secs(120);
/// Bytes read of what such a command prints.
const ANSWER_BYTES_MAX: usize = 256 * 1024;

/// Makes the account `$1` if there is none; says so.
const MAKE_USER: &str = r#"id -u "$1" >/dev/null 2>&1 && exit 0
useradd --create-home --shell /bin/bash "$1" 2>/dev/null || adduser -D "$1" || exit 1
echo made"#;
/// Lets the account `$1` become root.
const ALLOW_SUDO: &str = r#"set -e
file=/etc/sudoers.d/$(printf %s "$1" | tr . _)
mkdir -p /etc/sudoers.d
printf '%s ALL=(ALL:ALL) NOPASSWD: ALL\n' "$1" > "$file"
chmod 440 "$file""#;

/// A line of the account file.
struct Account {
    uid: u32,
    gid: u32,
    home: String,
}

impl Work {
    /// Does one step.
    pub(super) async fn act(&mut self, step: &Step) -> Result<(), Failure> {
        match &step.action {
            Action::Run { command, user } => self.run(command, user.as_deref()).await,
            Action::Copy { source, target, owner, mode, files } => {
                let owner = copy::owner(owner.as_deref().unwrap_or(&self.made.setting.user));
                let words =
                    [copy::source(source), target.clone(), owner, mode.clone().unwrap_or_default()];
                self.copy(files, words).await
            }
            Action::Env(pairs) => self.set_variables(pairs).await,
            Action::Workdir(path) => self.set_workdir(path).await,
            Action::User { name, sudo } => self.set_user(name, *sudo).await,
        }
    }

    async fn run(&mut self, command: &str, user: Option<&str>) -> Result<(), Failure> {
        let user = user.unwrap_or(&self.made.setting.user).to_owned();
        let doing = format!("failed to run command '{command}': command failed: ");
        let account = self.account(&user, &doing).await?;
        let cwd = self.made.setting.workdir.clone().unwrap_or_else(|| account.home.clone());
        let argv = [self.shell().await?, "-l", "-c", command].map(str::to_owned).to_vec();
        let command = Command {
            argv,
            cwd,
            env: self.variables(&user, &account),
            uid: account.uid,
            gid: account.gid,
            time_max: self.patience(self.shop.config.step_time_max)?,
        };
        self.changed = true;
        let (log, step) = (self.log.clone(), self.step.clone());
        let now = self.shop.now.clone();
        let mut heard = move |stream, line: &str| {
            let level = match stream {
                Stream::Out => Level::Info,
                Stream::Err => Level::Warn,
            };
            let (at_micros, message) = (now().as_micros(), line.to_owned());
            log.output(crate::log::LogEntry {
                at_micros,
                level,
                message,
                step: Some(step.clone()),
            });
        };
        let agent = self.builder().await?.agent.clone();
        let outcome = agent.run(&command, &mut heard).await;
        let outcome = outcome.map_err(|error| self.broken(&error))?;
        match outcome.problem {
            None => Ok(()),
            Some(problem) => {
                let shown: String = command.argv[3].chars().take(500).collect();
                Err(self.failure(format!("failed to run command '{shown}': {problem}")))
            }
        }
    }

    async fn copy(&mut self, files: &str, words: [String; 4]) -> Result<(), Failure> {
        let found = self.shop.uploads.find(&self.tenant, files, (self.shop.now)()).await;
        let found = found.map_err(self.because("finding the uploaded files"))?;
        let Some(archive) = found else {
            let message =
                format!("the files {files} were not uploaded, or are gone: upload them again");
            return Err(self.failure(message));
        };
        let unique = ids::hex(&ids::random::<8>());
        let (target, room) = (format!("/tmp/.atoll-{unique}.tar"), format!("/tmp/.atoll-{unique}"));
        let place = self.place().await?;
        self.changed = true;
        let agent = self.builder().await?.agent.clone();
        agent.upload(&archive, &target).await.map_err(|error| self.broken(&error))?;
        let arguments = [vec![target, room], words.to_vec(), vec![place]].concat();
        let time_max = self.patience(self.shop.config.step_time_max)?;
        self.chore("placing the files", &copy::script(), &arguments, time_max).await.map(drop)
    }

    async fn set_variables(&mut self, pairs: &[(String, String)]) -> Result<(), Failure> {
        let mut expanded = Vec::with_capacity(pairs.len());
        for (name, value) in pairs {
            expanded.push((name.clone(), self.expanded(value).await?));
        }
        self.made.setting.env.extend(expanded);
        Ok(())
    }

    async fn expanded(&mut self, value: &str) -> Result<String, Failure> {
        if expand::is_plain(value) {
            return Ok(value.to_owned());
        }
        let user = self.made.setting.user.clone();
        let account = self.account(&user, "").await?;
        let argv = [self.shell().await?, "-l", "-c", &expand::script(value)].map(str::to_owned);
        let command = Command {
            argv: argv.to_vec(),
            cwd: "/".to_owned(),
            env: self.variables(&user, &account),
            uid: account.uid,
            gid: account.gid,
            time_max: CHORE_TIME_MAX,
        };
        self.ask("expanding a value", &command).await
    }

    async fn set_workdir(&mut self, path: &str) -> Result<(), Failure> {
        let setting = &self.made.setting;
        let path = match path.strip_prefix('/') {
            Some(_) => path.to_owned(),
            None => format!("{}/{path}", setting.workdir.as_deref().unwrap_or_default()),
        };
        let script = format!("set -eu{}\nmake_folder \"$1\" \"$2\"", copy::MAKE_FOLDER);
        let arguments = [path.clone(), copy::owner(&setting.user)];
        self.changed = true;
        self.chore("making the folder", &script, &arguments, CHORE_TIME_MAX).await?;
        self.made.setting.workdir = Some(path);
        Ok(())
    }

    async fn set_user(&mut self, name: &str, sudo: bool) -> Result<(), Failure> {
        let arguments = [name.to_owned()];
        let said = self.chore("making the user", MAKE_USER, &arguments, CHORE_TIME_MAX).await?;
        self.changed |= said.lines().any(|line| line == "made");
        if sudo {
            self.changed = true;
            self.chore("allowing sudo", ALLOW_SUDO, &arguments, CHORE_TIME_MAX).await?;
        }
        let home = self.account(name, "").await?.home;
        let setting = &mut self.made.setting;
        (setting.user, setting.home) = (name.to_owned(), home);
        Ok(())
    }

    /// Where a relative path starts.
    async fn place(&mut self) -> Result<String, Failure> {
        if let Some(workdir) = &self.made.setting.workdir {
            return Ok(workdir.clone());
        }
        let user = self.made.setting.user.clone();
        Ok(self.account(&user, "").await?.home)
    }

    /// What a command sees.
    fn variables(&self, user: &str, account: &Account) -> BTreeMap<String, String> {
        let mut env = self.made.setting.env.clone();
        for (name, value) in [("HOME", &*account.home), ("USER", user), ("LOGNAME", user)] {
            env.entry(name.to_owned()).or_insert_with(|| value.to_owned());
        }
        env
    }

    /// The account of that name in the builder; `doing` begins the message when there is none.
    async fn account(&mut self, name: &str, doing: &str) -> Result<Account, Failure> {
        let script = r#"grep "^$1:" /etc/passwd || true"#;
        let said =
            self.chore("finding the user", script, &[name.to_owned()], CHORE_TIME_MAX).await?;
        let account = said.lines().find_map(|line| {
            let mut fields = line.split(':');
            let found = fields.next()? == name;
            let (_, uid, gid) = (fields.next()?, fields.next()?, fields.next()?);
            let (_, home) = (fields.next()?, fields.next()?);
            let home = if home.is_empty() { "/" } else { home }.to_owned();
            found.then(|| Some(Account { uid: uid.parse().ok()?, gid: gid.parse().ok()?, home }))?
        });
        account.ok_or_else(|| {
            // Clients look for these words.
            let refused = format!("{doing}unauthenticated: invalid username: '{name}'");
            self.failure(format!("{refused}; the image has no such user"))
        })
    }

    /// The program that runs commands: bash where there is one.
    async fn shell(&mut self) -> Result<&'static str, Failure> {
        if let Some(shell) = self.builder().await?.shell {
            return Ok(shell);
        }
        let said =
            self.chore("finding a shell", "command -v bash || true", &[], CHORE_TIME_MAX).await?;
        let shell = match said.trim() {
            "" => "/bin/sh",
            "/usr/bin/bash" => "/usr/bin/bash",
            _ => "/bin/bash",
        };
        self.builder().await?.shell = Some(shell);
        Ok(shell)
    }

    /// Runs a script of ours as root; answers what it printed.
    async fn chore(
        &mut self,
        doing: &str,
        script: &str,
        arguments: &[String],
        time_max: Duration,
    ) -> Result<String, Failure> {
        let words = ["/bin/sh", "-c", script, "atoll"].map(str::to_owned);
        let command = Command {
            argv: [&words[..], arguments].concat(),
            cwd: "/".to_owned(),
            env: BTreeMap::new(),
            uid: 0,
            gid: 0,
            time_max,
        };
        self.ask(doing, &command).await
    }

    /// Runs a command and answers what it printed.
    async fn ask(&mut self, doing: &str, command: &Command) -> Result<String, Failure> {
        let (mut said, mut complaint) = (String::new(), String::new());
        let mut heard = |stream, line: &str| {
            let to = match stream {
                Stream::Out => &mut said,
                Stream::Err => &mut complaint,
            };
            if to.len() + line.len() < ANSWER_BYTES_MAX {
                if !to.is_empty() {
                    to.push('\n');
                }
                to.push_str(line);
            }
        };
        let agent = self.builder().await?.agent.clone();
        let outcome = agent.run(command, &mut heard).await.map_err(|error| self.broken(&error))?;
        let Outcome { problem: Some(problem), .. } = outcome else { return Ok(said) };
        let complaint: String = complaint.chars().take(1000).collect();
        Err(self.failure(format!("{doing}: {problem}: {complaint}")))
    }

    fn broken(&self, error: &AgentError) -> Failure {
        self.failure(error.to_string())
    }

    /// How long something may take that may take `at_most`.
    fn patience(&self, at_most: Duration) -> Result<Duration, Failure> {
        let left = self.ends_at.saturating_duration_since(Instant::now());
        if left.is_zero() {
            let minutes = self.shop.config.build_time_max.as_secs() / 60;
            return Err(self.failure(format!("the build took longer than {minutes} minutes")));
        }
        Ok(left.min(at_most))
    }
}
