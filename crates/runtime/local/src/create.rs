//! Making one sandbox.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use atoll_core::{Observed, Resources, Sandbox, Source};
use atoll_engine::seam::{Event, RuntimeError};
use atoll_image::{Auth, Progress};
use sha2::{Digest, Sha256};

use crate::client::is_nobody;
use crate::files::{read_json, write_json};
use crate::live::Live;
use crate::plan::{self, Base, Plan, Shape};
use crate::protocol::{CgroupDirs, Door, Launch, Launcher, files};
use crate::runtime::{END_TIMEOUT, Local};
use crate::wanted::Wanted;
use crate::{agent, random, volumes};

/// Bytes of the word that opens an agent's defaults.
const KEY_BYTES: usize = 16;

impl Local {
    /// The files a sandbox starts from; may take as long as a pull.
    pub(crate) async fn base(&self, sandbox: &Sandbox) -> Result<Base, RuntimeError> {
        match &sandbox.spec.source {
            Source::Snapshot(id) => {
                let file = self.layout.snapshot(id.as_str()).join(plan::FILE);
                read_json(&file).map_err(|error| {
                    RuntimeError::permanent(
                        "SNAPSHOT_NOT_FOUND",
                        &format!("the files of snapshot {id} can't be read: {error}"),
                        "list the snapshots and choose one that is ready",
                    )
                })
            }
            Source::Image(image) => {
                let auth = image
                    .auth
                    .as_ref()
                    .map(|a| Auth { username: a.username.clone(), password: a.password.clone() });
                if auth.is_none()
                    && let Some(found) = self.images.cached(&image.reference)
                {
                    return Ok(Base::of_image(&found));
                }
                let told = std::sync::Mutex::new(String::new());
                let progress = |progress: Progress| self.tell_progress(sandbox, &told, progress);
                let pulled = self.images.ensure(&image.reference, auth.as_ref(), &progress).await;
                pulled.map(|image| Base::of_image(&image)).map_err(|e| image_failure(&e))
            }
        }
    }

    /// Builds and starts it on top of `base`. Runs to its end once begun.
    pub(crate) async fn build(
        self: Arc<Self>,
        sandbox: Arc<Sandbox>,
        base: Base,
        wanted: Wanted,
    ) -> Result<Observed, RuntimeError> {
        let _alone = self.lock(&sandbox.id).await;
        if wanted.is_over() {
            return Ok(Observed::Absent);
        }
        if let Some(fitting) = self.fit(&sandbox).await? {
            return Ok(fitting);
        }
        // Whatever an interrupted attempt, or a sandbox of another shape, left is in the way.
        self.tear_down(sandbox.id.as_str()).await?;
        self.start(&sandbox, base).await
    }

    /// Starts it on what its folder has. The caller holds its lock.
    pub(crate) async fn start(
        self: &Arc<Self>,
        sandbox: &Sandbox,
        base: Base,
    ) -> Result<Observed, RuntimeError> {
        let launch = self.prepared(sandbox, base).await.map_err(|e| start_failure(&e))?;
        let patience = self.config.start_timeout;
        let launched =
            self.spawner.launch(launch, patience).await.map_err(|e| launch_failure(&e))?;
        launched.map_err(|message| start_failure(&io::Error::other(message)))?;
        let id = sandbox.id.as_str();
        let live = self.adopt(id).map_err(|e| start_failure(&e))?;
        match live {
            Some(live) => {
                let up = self.wait_up(sandbox, &live).await;
                if sandbox.stock_of.is_some() {
                    // Whoever claims it shall not wait for a file.
                    live.plan();
                }
                up
            }
            // It ended before we could take hold of it.
            None => {
                let seen = self.seen(id).await?;
                self.tell(Event::Seen(sandbox.id.clone(), seen.clone()));
                Ok(seen)
            }
        }
    }

    /// Waits until the sandbox is up or over.
    pub(crate) async fn wait_up(
        &self,
        sandbox: &Sandbox,
        live: &Live,
    ) -> Result<Observed, RuntimeError> {
        let id = sandbox.id.as_str();
        tokio::select! {
            answered = tokio::time::timeout(self.patience(sandbox), live.wait_answer()) => {
                match answered {
                    Ok(Ok(Ok(()))) => Ok(Observed::Running),
                    Ok(Ok(Err(problem))) => Err(RuntimeError::permanent(
                        "READY_CHECK_FAILED",
                        &problem,
                        "mend the template's ready command or what it looks for, or let it wait longer",
                    )),
                    // An agent that goes away in mid-answer is about to end: its sockets close
                    // a moment before the process does.
                    Ok(Err(error)) => match tokio::time::timeout(END_TIMEOUT, live.wait_ended()).await {
                        Ok(_) => Ok(self.ended(id, live).await),
                        Err(_) => Err(start_failure(&error)),
                    },
                    Err(_) => Err(RuntimeError::permanent(
                        "AGENT_SILENT",
                        "the sandbox was started but its agent did not answer in time",
                        "is the machine overloaded? Try again, or raise the start timeout",
                    )),
                }
            }
            _ = live.wait_ended() => Ok(self.ended(id, live).await),
        }
    }

    /// How long it may take to come up: the agent first, then its check, then what is warmed.
    fn patience(&self, sandbox: &Sandbox) -> Duration {
        const WARMING: Duration = Duration::from_secs(120);
        let check = sandbox.spec.ready.as_ref().map_or(Duration::ZERO, |check| check.within);
        let warming = if sandbox.stock_of.is_some() { WARMING } else { Duration::ZERO };
        self.config.start_timeout + check + warming
    }

    async fn ended(&self, id: &str, live: &Live) -> Observed {
        Observed::Exited(live.exit(self.cgroups.counted(id).oom_kills).await)
    }

    fn resources(&self, sandbox: &Sandbox) -> Resources {
        let (asked, default) = (sandbox.spec.resources, self.config.default_resources);
        Resources {
            cpu_millis: asked.cpu_millis.or(default.cpu_millis),
            memory_bytes: asked.memory_bytes.or(default.memory_bytes),
            pids: asked.pids.or(default.pids),
        }
    }

    /// What can't be changed once it runs.
    pub(crate) fn shape(&self, sandbox: &Sandbox) -> io::Result<Shape> {
        let resources = self.resources(sandbox);
        let launcher = match self.oci_program(&sandbox.spec.isolation) {
            None => Launcher::Native,
            Some(program) => Launcher::Oci {
                program,
                memory_bytes: resources.memory_bytes,
                cpu_millis: resources.cpu_millis,
                pids: resources.pids,
            },
        };
        let mounts = volumes::binds(&self.config, &self.volumes, sandbox)?;
        Ok(Shape::of(sandbox, resources, mounts, launcher))
    }

    /// Its folders, groups and plan, and the order to launch it.
    async fn prepared(self: &Arc<Self>, sandbox: &Sandbox, base: Base) -> io::Result<Launch> {
        let (this, sandbox) = (Arc::clone(self), sandbox.clone());
        // A volume is not removed between being found and being in the plan.
        let _volumes = self.volumes.gate.read().await;
        let prepared = tokio::task::spawn_blocking(move || {
            let id = sandbox.id.as_str();
            let dir = this.layout.sandbox(id);
            let (shape, key) = (this.shape(&sandbox)?, random::hex(KEY_BYTES)?);
            let launch = this.launch_of(&sandbox, &dir, &base, &shape, &key)?;
            let launcher = shape.launcher.clone();
            let tenant = sandbox.tenant.as_str().to_owned();
            let plan = Plan { base, launcher, shape: Some(shape), tenant, key };
            this.prepare(id, &dir, &plan, this.resources(&sandbox)).map(|()| launch)
        });
        prepared.await.map_err(io::Error::other)?
    }

    /// Folders and groups. Fine with folders that are there: a sandbox that is resumed has some.
    fn prepare(&self, id: &str, dir: &Path, plan: &Plan, resources: Resources) -> io::Result<()> {
        std::fs::create_dir_all(dir.join(files::ROOT))?;
        write_json(&dir.join(plan::FILE), plan)?;
        std::fs::write(dir.join(files::BOOT_ID), format!("{}\n", random::uuid()?))?;
        for (number, tree) in plan.base.trees.iter().enumerate() {
            let writable = plan::writable(dir, number);
            for folder in ["upper", "work"] {
                std::fs::create_dir_all(writable.join(folder))?;
            }
            let stage = dir.join(files::LAYERS).join(number.to_string());
            std::fs::create_dir_all(stage.join("w"))?;
            for depth in 0..tree.lowers.len() {
                std::fs::create_dir_all(stage.join(depth.to_string()))?;
            }
        }
        self.cgroups.create(id, resources)
    }

    fn launch_of(
        &self,
        sandbox: &Sandbox,
        dir: &Path,
        base: &Base,
        shape: &Shape,
        key: &str,
    ) -> io::Result<Launch> {
        let id = sandbox.id.as_str();
        let launcher = shape.launcher.clone();
        let door = launcher.is_gvisor().then(Door::new).transpose()?;
        let hostname = id.to_owned();
        Ok(Launch {
            id: id.to_owned(),
            dir: dir.to_owned(),
            launcher,
            roots: base.roots(dir),
            mounts: shape.mounts.clone(),
            files: self.written_files(&hostname),
            hostname,
            agent: self.config.agent.clone(),
            agent_config: agent::config(sandbox, &base.defaults, key, door.as_ref()),
            door,
            cgroups: CgroupDirs {
                unified: self.cgroups.unified(id),
                v1: self.cgroups.v1(id),
                v2_limits: self.cgroups.limits_on_v2(),
                oci_path: self.cgroups.oci_path(id),
            },
            network: shape.network,
            shm_bytes: self.config.shm_bytes,
            log_bytes: self.config.log_bytes,
        })
    }

    /// Files that tell a sandbox its names and its resolvers.
    fn written_files(&self, hostname: &str) -> BTreeMap<String, String> {
        let resolvers = self.config.network.resolvers.iter();
        let resolv: String = resolvers.map(|r| format!("nameserver {r}\n")).collect();
        let hosts = format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost\n");
        BTreeMap::from([
            ("/etc/resolv.conf".to_owned(), resolv),
            ("/etc/hosts".to_owned(), hosts),
            ("/etc/hostname".to_owned(), format!("{hostname}\n")),
            ("/etc/machine-id".to_owned(), format!("{}\n", machine_id(hostname))),
        ])
    }

    /// Tells of a pull in steps a person can follow: only when the text changes.
    fn tell_progress(
        &self,
        sandbox: &Sandbox,
        told: &std::sync::Mutex<String>,
        progress: Progress,
    ) {
        /// Steps of a download that are told.
        const STEPS: u64 = 10;
        let step = (progress.bytes_done * STEPS).checked_div(progress.bytes_total).unwrap_or(0);
        let text = match progress.layers_total {
            0 => "looking the image up in its registry".to_owned(),
            total => format!(
                "pulling the image: {} of {total} layers, {} %",
                progress.layers_done,
                step * 100 / STEPS
            ),
        };
        let mut told = told.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        if *told != text {
            self.tell(Event::Note(sandbox.id.clone(), text.clone()));
            *told = text;
        }
    }
}

/// The same for the same sandbox at every start, and no other's.
fn machine_id(id: &str) -> String {
    let digest = Sha256::digest(format!("machine-id of sandbox {id}"));
    digest.iter().take(16).map(|byte| format!("{byte:02x}")).collect()
}

fn image_failure(error: &atoll_image::Error) -> RuntimeError {
    use atoll_image::ErrorKind;
    let message = error.to_string();
    let permanent = |reason, advice| RuntimeError::permanent(reason, &message, advice);
    match error.kind() {
        ErrorKind::Unreachable => permanent(
            "IMAGE_REGISTRY_UNREACHABLE",
            "check the image's name and that this machine reaches its registry",
        ),
        ErrorKind::Unauthorized => permanent(
            "IMAGE_PULL_UNAUTHORIZED",
            "give the registry's username and password with the image",
        ),
        ErrorKind::NotFound => {
            permanent("IMAGE_NOT_FOUND", "check the image's name, tag and platform")
        }
        ErrorKind::Invalid | ErrorKind::TooLarge => {
            permanent("IMAGE_INVALID", "push the image again, or use another one")
        }
        ErrorKind::NoSpace => {
            permanent("IMAGE_NO_SPACE", "free disk space in the data folder, then create again")
        }
        ErrorKind::Internal => {
            permanent("IMAGE_PULL_FAILED", "look at the server's log, then create again")
        }
    }
}

/// A spawner that died under the request is replaced, and the next attempt begins anew.
fn launch_failure(error: &io::Error) -> RuntimeError {
    if is_nobody(error) {
        return RuntimeError::transient(
            "SPAWNER_LOST",
            &format!("the process that starts sandboxes ended: {error}"),
            "it is started again, and so is the sandbox",
        );
    }
    start_failure(error)
}

pub(crate) fn start_failure(error: &io::Error) -> RuntimeError {
    let message = format!("the sandbox could not be started: {error}");
    if error.kind() == io::ErrorKind::StorageFull {
        return RuntimeError::permanent(
            "DISK_FULL",
            &message,
            "free disk space in the data folder, then create again",
        );
    }
    RuntimeError::permanent("START_FAILED", &message, "run `atoll doctor` on the server's machine")
}
