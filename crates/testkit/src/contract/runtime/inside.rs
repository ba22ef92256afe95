//! Cases that look from inside a sandbox, for runtimes where programs really run.

use std::time::Duration;

use atoll_control::Port;
use atoll_core::lifecycle::Failure;
use atoll_core::{
    Action, GuestDefaults, Keep, Observed, ReadyCheck, Sandbox, SandboxId, Source, TemplateOrigin,
    Wish,
};
use atoll_engine::seam::RuntimeError;

use super::{STAY, Subject, claimed};
use crate::{eventually, http, sample};

/// Runs every case.
pub(super) async fn run(subject: &Subject) {
    a_claim_changes_what_commands_start_from(subject).await;
    a_default_user_is_made_where_the_image_has_none(subject).await;
    a_sandbox_runs_when_its_check_succeeds(subject).await;
    a_check_that_fails_is_told_with_its_output(subject).await;
    every_start_has_an_identity_of_its_own(subject).await;
    limits_are_told_with_the_usage(subject).await;
}

/// What a command prints.
async fn output(subject: &Subject, id: &SandboxId, command: &str) -> String {
    let stream = subject.runtime.connect(id, Port::Agent).await.expect("the agent is reached");
    let body = format!(r#"{{"command":"{command}"}}"#);
    let (status, events) = http::post(stream, "/command", &body).await;
    assert_eq!(status, 200, "{events}");
    let texts = events.split(r#""type":"stdout","text":""#).skip(1);
    let lines: Vec<&str> = texts.filter_map(|rest| rest.split('"').next()).collect();
    lines.join("\n").replace("\\n", "\n").trim().to_owned()
}

async fn a_claim_changes_what_commands_start_from(subject: &Subject) {
    let mut first = subject.sandbox(STAY);
    first.stock_of = Some("pool".to_owned());
    first.spec.env.insert("WHO".to_owned(), "stock".to_owned());
    assert_eq!(subject.apply(&first, Action::Create).await, Observed::Running);
    assert!(subject.runtime.is_untouched(&first).await);
    let look = "echo $WHO:$E2B_SANDBOX:$E2B_SANDBOX_ID:$E2B_TEMPLATE_ID:$PWD";
    assert!(output(subject, &first.id, look).await.starts_with("stock::::"));
    let mut next = claimed(&first);
    next.spec.guest = GuestDefaults { user: None, workdir: Some("/tmp".to_owned()) };
    next.spec.template =
        Some(TemplateOrigin { id: "tpl".to_owned(), alias: None, build: "b".to_owned() });
    assert_eq!(subject.apply(&next, Action::Create).await, Observed::Running);
    let expected = format!("claimer:true:{}:tpl:/tmp", next.id);
    assert_eq!(output(subject, &next.id, look).await, expected);
    // Nobody but the server says what commands start from.
    let stream = subject.runtime.connect(&next.id, Port::Agent).await.expect("it is reached");
    let (status, _) = http::post(stream, "/atoll/configure", r#"{"env":{"WHO":"me"}}"#).await;
    assert_eq!(status, 404);
    assert_eq!(output(subject, &next.id, look).await, expected);
    subject.remove(&next).await;

    // Stock that has ended meanwhile is no end of whoever claims it.
    let dead = Sandbox { stock_of: Some("pool".to_owned()), ..subject.sandbox("exit 0") };
    subject.apply(&dead, Action::Create).await;
    eventually("it has ended", async || {
        matches!(subject.observe(&dead.id).await, Observed::Exited(_)).then_some(())
    })
    .await;
    let next = Sandbox { spec: subject.sandbox(STAY).spec, ..claimed(&dead) };
    assert_eq!(subject.apply(&next, Action::Create).await, Observed::Running);
    subject.remove(&next).await;
}

async fn a_default_user_is_made_where_the_image_has_none(subject: &Subject) {
    let mut sandbox = subject.sandbox(STAY);
    sandbox.spec.guest = GuestDefaults { user: Some("visitor".to_owned()), workdir: None };
    assert_eq!(subject.apply(&sandbox, Action::Create).await, Observed::Running);
    let look = "id -un; echo $HOME; touch ~/mine; echo ~/*";
    let seen = output(subject, &sandbox.id, look).await;
    assert_eq!(seen, "visitor\n/home/visitor\n/home/visitor/mine");
    subject.remove(&sandbox).await;
}

fn check(command: &str, within: Duration) -> Option<ReadyCheck> {
    Some(ReadyCheck { command: command.to_owned(), every: Duration::from_millis(50), within })
}

async fn a_sandbox_runs_when_its_check_succeeds(subject: &Subject) {
    let mut sandbox = subject.sandbox("sleep 0.3; echo up > /tmp/up; sleep 1000");
    sandbox.spec.ready = check("grep up /tmp/up", Duration::from_secs(60));
    assert_eq!(subject.apply(&sandbox, Action::Create).await, Observed::Running);
    assert_eq!(output(subject, &sandbox.id, "cat /tmp/up").await, "up");
    subject.remove(&sandbox).await;
}

async fn a_check_that_fails_is_told_with_its_output(subject: &Subject) {
    let mut sandbox = subject.sandbox(STAY);
    sandbox.spec.ready = check("echo not yet; exit 4", Duration::from_secs(2));
    let failed = subject.runtime.apply(&sandbox, Action::Create).await;
    let Err(RuntimeError(Failure { diagnostic, transient: false })) = failed else {
        panic!("it counts as running: {failed:?}")
    };
    assert_eq!(diagnostic.reason, "READY_CHECK_FAILED");
    assert!(diagnostic.message.contains("not yet"), "{diagnostic:?}");
    subject.remove(&sandbox).await;
}

/// Its `boot_id` (nothing where a launcher shows none), machine id and host name.
async fn identity(subject: &Subject, id: &SandboxId) -> [String; 3] {
    let look = "cat /proc/sys/kernel/random/boot_id || echo; cat /etc/machine-id; hostname";
    let seen = output(subject, id, look).await;
    let lines: Vec<String> = seen.lines().map(str::to_owned).collect();
    let [.., machine, host] = lines.as_slice() else { panic!("{seen}") };
    let boot = if lines.len() > 2 { lines[0].clone() } else { String::new() };
    [boot, machine.clone(), host.clone()]
}

async fn every_start_has_an_identity_of_its_own(subject: &Subject) {
    let mut one = subject.create(STAY).await;
    let first = identity(subject, &one.id).await;
    let machine = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    assert_ne!(first[0], machine.trim(), "the machine's own");
    assert_eq!((first[1].len(), first[2].as_str()), (32, one.id.as_str()));

    let snapshot = atoll_core::SnapshotId::parse(&subject.fresh_name()).expect("an id");
    subject.runtime.snapshot(&one.id, &snapshot).await.expect("it is taken");
    let mut fork = subject.sandbox(STAY);
    fork.spec.source = Source::Snapshot(snapshot.clone());
    assert_eq!(subject.apply(&fork, Action::Create).await, Observed::Running);
    let other = identity(subject, &fork.id).await;
    for (mine, theirs) in first.iter().zip(&other).filter(|(mine, _)| !mine.is_empty()) {
        assert_ne!(mine, theirs);
    }
    subject.remove(&fork).await;
    subject.runtime.remove_snapshot(&snapshot).await.expect("nothing uses it");

    one.life.began(Action::Create, sample::NOW);
    one.life.observe(&Observed::Running, sample::NOW);
    one.life.request(Wish::Pause(Keep::Files), sample::NOW).expect("it runs");
    assert_eq!(subject.apply(&one, Action::Pause).await, Observed::Paused);
    assert_eq!(subject.apply(&one, Action::Resume).await, Observed::Running);
    let again = identity(subject, &one.id).await;
    assert_eq!(first[1..], again[1..], "it is the same machine");
    assert!(first[0].is_empty() || first[0] != again[0], "but another boot");
    subject.remove(&one).await;
}

async fn limits_are_told_with_the_usage(subject: &Subject) {
    const MEMORY: u64 = 512 << 20;
    let mut sandbox = subject.sandbox(STAY);
    sandbox.spec.resources.memory_bytes = Some(MEMORY);
    sandbox.spec.resources.cpu_millis = Some(1500);
    assert_eq!(subject.apply(&sandbox, Action::Create).await, Observed::Running);
    let usage = subject.runtime.usage(&sandbox.id).await.expect("usage is known");
    assert_eq!((usage.memory_limit_bytes, usage.cpu_limit_millis), (MEMORY, 1500));
    assert!(usage.cache_bytes <= usage.memory_bytes, "{usage:?}");
    assert!(0 < usage.disk_used_bytes && usage.disk_used_bytes <= usage.disk_total_bytes);
    subject.remove(&sandbox).await;
}
