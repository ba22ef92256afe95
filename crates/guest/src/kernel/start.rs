//! Bringing a kernel up: its process, its connections, and the first word with it.

use super::{
    language,
    live::{Guard, Live, Tail},
    message::{Key, Session},
    place::{self, Place},
    spec::{self, Spec},
    zmtp::{Incoming, Kind, Socket},
};
use crate::{
    Error, Result,
    command::Pipe,
    environment::{Environment, Variables},
    guest::Shared,
    process::{Exit, Launch, Spawned, Wiring},
};
use serde_json::json;
use std::{
    fs, io,
    net::Ipv4Addr,
    os::fd::OwnedFd,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};
use tokio::{
    net::TcpStream,
    time::{Instant, sleep, timeout, timeout_at},
};

/// A kernel that says nothing for so long will not come.
const START_MAX: Duration = Duration::from_secs(60);
/// A port that somebody else took between its choice and its use is worth another try.
const STARTS_MAX: usize = 2;
const CONNECT_EVERY: Duration = Duration::from_millis(5);
/// How long a subscription may need to arrive before its effect is looked for again.
const SUBSCRIBED_WITHIN: Duration = Duration::from_millis(100);
const PROBE_MAX: Duration = Duration::from_secs(20);

/// Starts a kernel for a language in a directory and waits until it answers.
///
/// Errors: [`Error::Invalid`] when the image has none for this language, or the directory is not
/// one; what the kernel itself printed when it does not come up.
pub(super) async fn start(shared: &Arc<Shared>, language: &str, cwd: &Path) -> Result<Live> {
    let environment = shared.settings.current();
    let env = composed(shared, &environment).await;
    let spec = find(shared, language, &env, &environment).await?;
    let mut tried = 1;
    loop {
        match bring_up(shared, &environment, &spec, &env, cwd).await {
            Ok(mut live) => {
                live.applied = env;
                return Ok(live);
            }
            Err(refused @ Error::Invalid { .. }) => return Err(refused),
            Err(failed) if tried == STARTS_MAX => return Err(failed),
            Err(_) => tried += 1,
        }
    }
}

/// Everything that processes of the sandbox's user see now.
pub(super) async fn composed(shared: &Shared, environment: &Arc<Environment>) -> Variables {
    let environment = Arc::clone(environment);
    let compose = move || environment.compose(environment.user(), &Variables::new());
    shared.start_blocking(compose).await
}

async fn find(
    shared: &Arc<Shared>,
    language: &str,
    env: &Variables,
    environment: &Arc<Environment>,
) -> Result<Spec> {
    let (name, seen) = (language.to_owned(), env.clone());
    if let Some(found) = shared.start_blocking(move || spec::find(&name, &seen)).await {
        return Ok(found);
    }
    if language == "python" && has_package(shared, env, environment).await {
        return Ok(spec::fallback());
    }
    Err(Error::invalid("language", language::remedy(language)))
}

/// Whether the image's Python can be a kernel although nothing announces it.
async fn has_package(shared: &Arc<Shared>, env: &Variables, environment: &Environment) -> bool {
    let argv = ["python3", "-c", "import ipykernel_launcher"].map(str::to_owned).to_vec();
    let identity = environment.user().cloned();
    let launch =
        Launch { argv, env: env.clone(), cwd: "/".into(), identity, wiring: Wiring::Merged };
    let reaper = shared.reaper.clone();
    let Ok(probe) = shared.start_blocking(move || launch.spawn(&reaper)).await else {
        return false;
    };
    match timeout(PROBE_MAX, probe.exit).await {
        Ok(Ok(status)) => status.success(),
        _ => {
            shared.reaper.signal_group(probe.pid, libc::SIGKILL);
            false
        }
    }
}

async fn bring_up(
    shared: &Arc<Shared>,
    environment: &Arc<Environment>,
    spec: &Spec,
    env: &Variables,
    cwd: &Path,
) -> Result<Live> {
    let place = shared.as_user(Place::create).await?;
    let folder = place.folder();
    let spawned = spawn(shared, environment, spec, env, cwd, place.file()).await;
    let met = match spawned {
        Ok(spawned) => meet(shared, spec, place, spawned).await,
        Err(refused) => Err(refused),
    };
    if met.is_err() {
        discard(shared, folder).await;
    }
    met
}

/// Removes a kernel's folder, with the rights of whom it belongs to.
pub(super) async fn discard(shared: &Shared, folder: PathBuf) {
    let remove = move || {
        place::remove(&folder);
        Ok(())
    };
    // What stays behind is a small file in a temporary place.
    shared.as_user(remove).await.ok();
}

async fn spawn(
    shared: &Arc<Shared>,
    environment: &Environment,
    spec: &Spec,
    env: &Variables,
    cwd: &Path,
    file: PathBuf,
) -> Result<Spawned> {
    let file = file.to_string_lossy();
    let argv = spec.argv.iter().map(|word| word.replace("{connection_file}", &file)).collect();
    let mut env = env.clone();
    env.extend(spec.env.clone());
    let cwd = enterable(shared, cwd, environment.cwd()).await?;
    let identity = environment.user().cloned();
    let launch = Launch { argv, env, cwd, identity, wiring: Wiring::Merged };
    let reaper = shared.reaper.clone();
    shared.start_blocking(move || launch.spawn(&reaper)).await
}

/// The directory asked for. One that exists but is closed to the sandbox's user gives way to the
/// usual one: clients ask for places like `/root` and expect a kernel all the same.
async fn enterable(shared: &Arc<Shared>, cwd: &Path, usual: &Path) -> Result<PathBuf> {
    let (asked, usual) = (cwd.to_owned(), usual.to_owned());
    let check = move || match fs::metadata(asked.join(".")) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(usual),
        _ => Ok(asked),
    };
    shared.as_user(check).await
}

async fn meet(shared: &Arc<Shared>, spec: &Spec, place: Place, spawned: Spawned) -> Result<Live> {
    let Spawned { pid, mut exit, stdout, .. } = spawned;
    let tail = Tail::default();
    tokio::spawn(drain(stdout, tail.clone()));
    let session = Session::new(Key::new(&place.secret));
    let talk = async {
        let control = connect(place.control, Kind::Dealer).await?;
        let iopub = connect(place.iopub, Kind::Subscriber).await?;
        let mut live = Live {
            pid,
            shell: connect(place.shell, Kind::Dealer).await?,
            iopub,
            control,
            session,
            exit: None,
            takes_interrupts: spec.takes_interrupts,
            applied: Variables::new(),
            own_variables: spec.env.keys().cloned().collect(),
            folder: place.folder(),
            guard: Guard::new(pid, place.folder(), shared.reaper.clone()),
        };
        introduce(&mut live).await?;
        Ok::<Live, io::Error>(live)
    };
    let problem = tokio::select! {
        met = timeout(START_MAX, talk) => match met {
            Ok(Ok(mut live)) => {
                live.exit = Some(exit);
                return Ok(live);
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("it did not answer within {} s", START_MAX.as_secs()),
        },
        status = &mut exit => ended(status),
    };
    // Whatever is left of it must not stay behind.
    shared.reaper.signal_group(pid, libc::SIGKILL);
    let source = io::Error::other(format!("{problem}{}", tail.said()));
    Err(Error::System { action: "start the kernel", source })
}

fn ended(status: <Exit as Future>::Output) -> String {
    match status {
        Ok(status) => format!("it ended with {status}"),
        Err(_) => "it ended".to_owned(),
    }
}

/// Keeps what a kernel prints past its channels, for the case that it does not come up.
async fn drain(output: Option<OwnedFd>, tail: Tail) {
    let mut pipe = Pipe::open(output);
    while pipe.is_open() {
        tail.push(&pipe.read().await);
    }
}

/// Connects as soon as the kernel listens.
async fn connect(port: u16, kind: Kind) -> io::Result<Socket> {
    loop {
        match TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await {
            // A connection to itself is what TCP makes when both ends happen to be one port.
            Ok(stream) if stream.local_addr()? != stream.peer_addr()? => {
                return Socket::open(stream, kind).await;
            }
            Err(error) if error.kind() != io::ErrorKind::ConnectionRefused => return Err(error),
            _ => sleep(CONNECT_EVERY).await,
        }
    }
}

/// Asks the kernel who it is until both the answer and its echo on the publishing channel have
/// come: only then is the subscription known to have arrived.
async fn introduce(live: &mut Live) -> io::Result<()> {
    loop {
        let (id, frames) = live.session.request("kernel_info_request", &json!({}));
        send(&mut live.shell, &frames).await?;
        while !is_about(live.shell.receive().await?, &live.session, &id) {}
        let until = Instant::now() + SUBSCRIBED_WITHIN;
        while let Ok(published) = timeout_at(until, live.iopub.receive()).await {
            if is_about(published?, &live.session, &id) {
                return Ok(());
            }
        }
    }
}

fn is_about(incoming: Incoming, session: &Session, id: &str) -> bool {
    match incoming {
        Incoming::Message(frames) => session.read(&frames).is_some_and(|m| m.parent_id == id),
        Incoming::TooLarge => false,
    }
}

/// Sends a message's frames.
pub(super) async fn send(socket: &mut Socket, frames: &[Vec<u8>]) -> io::Result<()> {
    let parts: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    socket.send(&parts).await
}
