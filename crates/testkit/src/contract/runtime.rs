//! What every runtime does.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use atoll_control::Port;
use atoll_core::{Action, ErrorKind, Keep, Observed, Sandbox, SandboxId, SnapshotId, Source, Wish};
use atoll_engine::Runtime;
use atoll_engine::seam::Event;
use tokio::sync::{Mutex, mpsc};

use crate::{eventually, http, sample};

mod inside;

/// A port that nothing in the suite listens on.
const CLOSED_PORT: u16 = 4;
/// The port of the one case that listens.
const OPEN_PORT: u16 = 8099;
const LOG_BYTES: usize = 4096;

/// The runtime under test and what the suite may expect of it.
pub struct Subject {
    runtime: Arc<dyn Runtime>,
    image: String,
    /// Programs really run; the image has `sh`, `cat`, `sleep` and `python3`.
    real: bool,
    events: Mutex<Option<mpsc::Receiver<Event>>>,
    made: AtomicU32,
}

impl Subject {
    /// A runtime nobody else uses, and an image it can make sandboxes of.
    pub fn new(runtime: Arc<dyn Runtime>, image: &str, real: bool) -> Self {
        let events = Mutex::new(runtime.events());
        Self { runtime, image: image.to_owned(), real, events, made: AtomicU32::new(0) }
    }

    fn fresh_name(&self) -> String {
        let number = self.made.fetch_add(1, Ordering::Relaxed);
        format!("contract{}x{number}", std::process::id())
    }

    fn sandbox(&self, script: &str) -> Sandbox {
        let mut sandbox = sample::sandbox(&self.fresh_name(), "contract");
        sandbox.spec = sample::spec(&self.image);
        sandbox.spec.entrypoint = ["sh", "-c", script].map(str::to_owned).to_vec();
        sandbox
    }

    async fn apply(&self, sandbox: &Sandbox, action: Action) -> Observed {
        let outcome = self.runtime.apply(sandbox, action).await;
        outcome.unwrap_or_else(|error| panic!("{action:?} of {}: {error:?}", sandbox.id))
    }

    async fn create(&self, script: &str) -> Sandbox {
        let sandbox = self.sandbox(script);
        assert_eq!(self.apply(&sandbox, Action::Create).await, Observed::Running);
        sandbox
    }

    async fn remove(&self, sandbox: &Sandbox) {
        assert_eq!(self.apply(sandbox, Action::Remove).await, Observed::Absent);
    }

    async fn observe(&self, id: &SandboxId) -> Observed {
        self.runtime.observe(id).await.expect("it can be observed")
    }

    async fn lists(&self, id: &SandboxId) -> bool {
        let listed = self.runtime.list().await.expect("it can be listed");
        listed.iter().any(|(there, _)| there == id)
    }

    async fn log_of(&self, id: &SandboxId, expected: &str) {
        eventually("the log holds what the entrypoint printed", async || {
            let log = self.runtime.logs(id, LOG_BYTES).await.ok()?;
            String::from_utf8_lossy(&log.bytes).contains(expected).then_some(())
        })
        .await;
    }
}

const STAY: &str = "sleep 1000";

/// Runs every case; answers with the names of those that this subject can't show.
///
/// # Panics
/// When a case fails.
pub async fn run(subject: Subject) -> Vec<&'static str> {
    let subject = &subject;
    a_created_sandbox_runs_and_its_agent_answers(subject).await;
    creating_twice_is_creating_once(subject).await;
    pausing_and_resuming_twice_are_fine(subject).await;
    removing_twice_is_fine_and_leaves_nothing(subject).await;
    a_paused_sandbox_can_be_removed(subject).await;
    a_pause_that_keeps_files_alone_starts_anew(subject).await;
    stock_becomes_what_its_new_record_says(subject).await;
    stock_of_another_shape_is_replaced_in_place(subject).await;
    an_exit_is_told_with_its_code(subject).await;
    the_log_holds_the_entrypoints_output(subject).await;
    a_snapshot_keeps_files_for_new_sandboxes(subject).await;
    a_closed_port_is_named_as_such(subject).await;
    an_unknown_sandbox_is_absent(subject).await;
    orphans_can_be_removed(subject).await;
    usage_is_counted(subject).await;
    if !subject.real {
        return vec!["a_port_opened_inside_is_reachable"];
    }
    a_port_opened_inside_is_reachable(subject).await;
    inside::run(subject).await;
    Vec::new()
}

async fn ping(subject: &Subject, id: &SandboxId) -> u16 {
    let stream = subject.runtime.connect(id, Port::Agent).await.expect("the agent is reached");
    http::get(stream, "/ping").await
}

async fn a_created_sandbox_runs_and_its_agent_answers(subject: &Subject) {
    let sandbox = subject.sandbox(STAY);
    subject.runtime.check(&sandbox).await.expect("a plain sandbox is acceptable");
    assert_eq!(subject.apply(&sandbox, Action::Create).await, Observed::Running);
    assert_eq!(subject.observe(&sandbox.id).await, Observed::Running);
    assert_eq!(ping(subject, &sandbox.id).await, 200);
    subject.remove(&sandbox).await;
}

async fn creating_twice_is_creating_once(subject: &Subject) {
    let sandbox = subject.create(STAY).await;
    assert_eq!(subject.apply(&sandbox, Action::Create).await, Observed::Running);
    assert_eq!(ping(subject, &sandbox.id).await, 200);
    let listed = subject.runtime.list().await.expect("it can be listed");
    assert_eq!(listed.iter().filter(|(id, _)| *id == sandbox.id).count(), 1);
    subject.remove(&sandbox).await;
}

async fn pausing_and_resuming_twice_are_fine(subject: &Subject) {
    if !subject.runtime.capabilities().pause {
        return;
    }
    let sandbox = subject.create(STAY).await;
    for (action, expected) in [
        (Action::Pause, Observed::Paused),
        (Action::Pause, Observed::Paused),
        (Action::Resume, Observed::Running),
        (Action::Resume, Observed::Running),
    ] {
        assert_eq!(subject.apply(&sandbox, action).await, expected);
        assert_eq!(subject.observe(&sandbox.id).await, expected);
    }
    assert_eq!(ping(subject, &sandbox.id).await, 200);
    subject.remove(&sandbox).await;
}

async fn removing_twice_is_fine_and_leaves_nothing(subject: &Subject) {
    let sandbox = subject.create(STAY).await;
    assert!(subject.lists(&sandbox.id).await);
    subject.remove(&sandbox).await;
    subject.remove(&sandbox).await;
    assert_eq!(subject.observe(&sandbox.id).await, Observed::Absent);
    assert!(!subject.lists(&sandbox.id).await);
    let never_made = subject.sandbox(STAY);
    subject.remove(&never_made).await;
}

async fn a_paused_sandbox_can_be_removed(subject: &Subject) {
    if !subject.runtime.capabilities().pause {
        return;
    }
    let sandbox = subject.create(STAY).await;
    assert_eq!(subject.apply(&sandbox, Action::Pause).await, Observed::Paused);
    subject.remove(&sandbox).await;
    assert!(!subject.lists(&sandbox.id).await);
}

async fn a_pause_that_keeps_files_alone_starts_anew(subject: &Subject) {
    if !subject.runtime.capabilities().pause {
        return;
    }
    let script = "cat /tmp/mark; echo kept > /tmp/mark; echo written; sleep 1000";
    let mut sandbox = subject.create(script).await;
    subject.log_of(&sandbox.id, "written\n").await;
    let life = &mut sandbox.life;
    life.began(Action::Create, sample::NOW);
    life.observe(&Observed::Running, sample::NOW);
    life.request(Wish::Pause(Keep::Files), sample::NOW).expect("it runs");
    for (action, expected) in [
        (Action::Pause, Observed::Paused),
        (Action::Pause, Observed::Paused),
        (Action::Resume, Observed::Running),
        (Action::Resume, Observed::Running),
    ] {
        assert_eq!(subject.apply(&sandbox, action).await, expected);
        assert_eq!(subject.observe(&sandbox.id).await, expected);
        assert!(subject.lists(&sandbox.id).await);
    }
    assert_eq!(ping(subject, &sandbox.id).await, 200);
    subject.log_of(&sandbox.id, "kept\n").await;
    assert_eq!(subject.apply(&sandbox, Action::Pause).await, Observed::Paused);
    subject.remove(&sandbox).await;
    assert!(!subject.lists(&sandbox.id).await);
}

/// The record of whoever claimed `stock`.
fn claimed(stock: &Sandbox) -> Sandbox {
    let mut sandbox = sample::sandbox(stock.id.as_str(), "claimer");
    sandbox.spec = stock.spec.clone();
    sandbox.spec.env.insert("WHO".to_owned(), "claimer".to_owned());
    sandbox.access_token = "ffeeddccbbaa99887766554433221100".to_owned();
    sandbox
}

async fn stock(subject: &Subject, script: &str) -> Sandbox {
    let stock = Sandbox { stock_of: Some("pool".to_owned()), ..subject.sandbox(script) };
    assert_eq!(subject.apply(&stock, Action::Create).await, Observed::Running);
    stock
}

async fn stock_becomes_what_its_new_record_says(subject: &Subject) {
    let stock = stock(subject, "echo once; sleep 1000").await;
    let claimed = claimed(&stock);
    for _ in 0..2 {
        assert_eq!(subject.apply(&claimed, Action::Create).await, Observed::Running);
        assert_eq!(ping(subject, &claimed.id).await, 200);
    }
    assert!(!subject.runtime.is_untouched(&stock).await, "it knows its owner's secrets");
    subject.log_of(&claimed.id, "once\n").await;
    subject.remove(&claimed).await;
    assert!(!subject.lists(&claimed.id).await);
}

async fn stock_of_another_shape_is_replaced_in_place(subject: &Subject) {
    let stock = stock(subject, STAY).await;
    let mut claimed = claimed(&stock);
    claimed.spec.entrypoint = ["sh", "-c", "echo replaced; sleep 1000"].map(str::to_owned).to_vec();
    assert_eq!(subject.apply(&claimed, Action::Create).await, Observed::Running);
    assert_eq!(ping(subject, &claimed.id).await, 200);
    subject.log_of(&claimed.id, "replaced\n").await;
    let listed = subject.runtime.list().await.expect("it can be listed");
    assert_eq!(listed.iter().filter(|(id, _)| *id == claimed.id).count(), 1);
    subject.remove(&claimed).await;
}

async fn an_exit_is_told_with_its_code(subject: &Subject) {
    let sandbox = subject.sandbox("exit 3");
    let first = subject.apply(&sandbox, Action::Create).await;
    assert!(matches!(first, Observed::Running | Observed::Exited(_)), "{first:?}");
    let exited = |seen: &Observed| matches!(seen, Observed::Exited(exit) if exit.code == 3);
    eventually("the exit is seen", async || {
        exited(&subject.observe(&sandbox.id).await).then_some(())
    })
    .await;
    let mut events = subject.events.lock().await;
    let events = events.as_mut().expect("the first caller gets the events");
    eventually("the exit is told", async || {
        let event = events.try_recv().ok()?;
        matches!(event, Event::Seen(id, seen) if id == sandbox.id && exited(&seen)).then_some(())
    })
    .await;
    subject.remove(&sandbox).await;
}

async fn the_log_holds_the_entrypoints_output(subject: &Subject) {
    let sandbox = subject.create("echo hello from inside; sleep 1000").await;
    subject.log_of(&sandbox.id, "hello from inside\n").await;
    let tail = subject.runtime.logs(&sandbox.id, 5).await.expect("the log can be read");
    assert!(tail.bytes.len() <= 5 && tail.truncated, "{tail:?}");
    subject.remove(&sandbox).await;
    let over = subject.sandbox("echo last words; exit 0");
    subject.apply(&over, Action::Create).await;
    subject.log_of(&over.id, "last words\n").await;
    subject.remove(&over).await;
}

async fn a_snapshot_keeps_files_for_new_sandboxes(subject: &Subject) {
    if !subject.runtime.capabilities().snapshot {
        return;
    }
    let runtime = &subject.runtime;
    let first = subject.create("echo kept > /tmp/mark; echo done; sleep 1000").await;
    subject.log_of(&first.id, "done\n").await;
    let snapshot = SnapshotId::parse(&subject.fresh_name()).expect("fresh names are ids");
    runtime.snapshot(&first.id, &snapshot).await.expect("the snapshot is taken");
    assert!(runtime.snapshots().await.expect("they can be listed").contains(&snapshot));
    assert_eq!(ping(subject, &first.id).await, 200, "it goes on running");
    subject.remove(&first).await;

    let mut second = subject.sandbox("cat /tmp/mark; sleep 1000");
    second.spec.source = Source::Snapshot(snapshot.clone());
    assert_eq!(subject.apply(&second, Action::Create).await, Observed::Running);
    subject.log_of(&second.id, "kept\n").await;
    let refused = runtime.remove_snapshot(&snapshot).await.map_err(|error| error.kind());
    assert_eq!(refused, Err(ErrorKind::Conflict), "it is in use");
    subject.remove(&second).await;
    for _ in 0..2 {
        runtime.remove_snapshot(&snapshot).await.expect("removing it twice is fine");
    }
    assert!(!runtime.snapshots().await.expect("they can be listed").contains(&snapshot));
}

async fn a_closed_port_is_named_as_such(subject: &Subject) {
    let sandbox = subject.create(STAY).await;
    let error = subject.runtime.connect(&sandbox.id, Port::Tcp(CLOSED_PORT)).await.err();
    let error = error.expect("nothing listens there");
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, Some("PORT_CLOSED")));
    subject.remove(&sandbox).await;
}

async fn an_unknown_sandbox_is_absent(subject: &Subject) {
    let id = subject.sandbox(STAY).id;
    let runtime = &subject.runtime;
    assert_eq!(subject.observe(&id).await, Observed::Absent);
    let kinds = [
        runtime.connect(&id, Port::Agent).await.err().map(|error| error.kind()),
        runtime.logs(&id, LOG_BYTES).await.err().map(|error| error.kind()),
        runtime.usage(&id).await.err().map(|error| error.kind()),
    ];
    assert_eq!(kinds, [Some(ErrorKind::NotFound); 3]);
}

async fn orphans_can_be_removed(subject: &Subject) {
    let sandbox = subject.create(STAY).await;
    for _ in 0..2 {
        subject.runtime.remove_orphan(&sandbox.id).await.expect("removing it twice is fine");
    }
    assert_eq!(subject.observe(&sandbox.id).await, Observed::Absent);
    assert!(!subject.lists(&sandbox.id).await);
}

async fn usage_is_counted(subject: &Subject) {
    let sandbox = subject.create(STAY).await;
    let usage = subject.runtime.usage(&sandbox.id).await.expect("usage is known");
    assert!(usage.pids >= 1 && usage.memory_bytes > 0, "{usage:?}");
    subject.remove(&sandbox).await;
}

async fn a_port_opened_inside_is_reachable(subject: &Subject) {
    let script = format!("exec python3 -m http.server {OPEN_PORT} --bind 127.0.0.1");
    let sandbox = subject.create(&script).await;
    let stream = eventually("the port is open", async || {
        subject.runtime.connect(&sandbox.id, Port::Tcp(OPEN_PORT)).await.ok()
    })
    .await;
    assert_eq!(http::get(stream, "/").await, 200);
    subject.remove(&sandbox).await;
}
