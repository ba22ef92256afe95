//! What every `Control` promises to the doors.

use std::time::Duration;

use atoll_control::{Access, Control, Create, Filter, Paging, Port, SnapshotFilter};
use atoll_core::{
    Aging, Deadline, ErrorKind, Expiry, Keep, Phase, Sandbox, SandboxId, SnapshotState, Source,
    TenantId,
};

use crate::{eventually, http, sample};

const PATIENCE: Duration = Duration::from_secs(60);
const PAUSE: Expiry = Expiry::Pause(Keep::Memory);
const ALL: Paging = Paging { skip: 0, take: 1000 };

/// The control under test, an image it can make sandboxes of, and two tenants without sandboxes.
pub struct Subject<'a> {
    /// What is tested.
    pub control: &'a dyn Control,
    /// A plain image.
    pub image: &'a str,
    /// Who owns what the suite makes.
    pub tenant: TenantId,
    /// Somebody else.
    pub stranger: TenantId,
}

impl Subject<'_> {
    fn request(&self) -> Create {
        Create { spec: sample::spec(self.image), ..sample::create() }
    }

    async fn settled(&self, id: &SandboxId, phase: Phase) -> std::sync::Arc<Sandbox> {
        let waited = self.control.wait(&self.tenant, id, PATIENCE).await;
        let sandbox = waited.expect("it comes to rest");
        assert_eq!(sandbox.life.phase(), phase, "{:?}", sandbox.life.diagnostic());
        sandbox
    }

    async fn running(&self) -> SandboxId {
        let created = self.control.create(&self.tenant, self.request()).await;
        let id = created.expect("a plain sandbox is accepted").id.clone();
        self.settled(&id, Phase::Running).await;
        id
    }

    async fn kill(&self, id: &SandboxId) {
        self.control.kill(&self.tenant, id).await.expect("killing is always allowed");
        let kind = self.control.get(&self.tenant, id).await.err().map(|error| error.kind());
        assert_eq!(kind, Some(ErrorKind::NotFound), "from the answer on it is not found");
    }
}

/// Runs every case and leaves nothing behind.
///
/// # Panics
/// When a case fails.
pub async fn run(subject: &Subject<'_>) {
    a_running_sandbox_answers(subject).await;
    pausing_keeps_it_and_resuming_brings_it_back(subject).await;
    a_foreign_sandbox_is_not_found(subject).await;
    labels_and_deadlines_are_kept(subject).await;
    a_pause_may_keep_files_alone(subject).await;
    who_waits_for_a_sandbox_gets_one_that_runs(subject).await;
    copies_are_made_of_a_running_sandbox(subject).await;
    lists_are_newest_first(subject).await;
    a_snapshot_becomes_ready_and_makes_sandboxes(subject).await;
    let left = subject.control.list(&subject.tenant, &Filter::default(), ALL).await;
    assert_eq!(left.expect("lists work").total, 0, "the suite leaves nothing");
}

async fn a_running_sandbox_answers(subject: &Subject<'_>) {
    let id = subject.running().await;
    let control = subject.control;
    let token = control.get(&subject.tenant, &id).await.expect("it is there").access_token.clone();
    for access in [Access::Tenant(subject.tenant.clone()), Access::Token(token), Access::Signed] {
        let stream = control.connect(&access, &id, Port::Agent).await.expect("it is reached");
        assert_eq!(http::get(stream, "/ping").await, 200);
    }
    let wrong = Access::Token("wrong".to_owned());
    let kind = control.connect(&wrong, &id, Port::Agent).await.err().map(|error| error.kind());
    assert_eq!(kind, Some(ErrorKind::NotFound));
    subject.kill(&id).await;
}

async fn pausing_keeps_it_and_resuming_brings_it_back(subject: &Subject<'_>) {
    let (id, control, tenant) = (subject.running().await, subject.control, &subject.tenant);
    control
        .pause(tenant, &id, Keep::Memory, Aging::GoesOn)
        .await
        .expect("a running sandbox can be paused");
    subject.settled(&id, Phase::Paused).await;
    let again = control
        .pause(tenant, &id, Keep::Memory, Aging::GoesOn)
        .await
        .err()
        .map(|error| error.kind());
    assert_eq!(again, Some(ErrorKind::Conflict));
    let refused = control.connect(&Access::Signed, &id, Port::Agent).await.err();
    assert_eq!(refused.and_then(|error| error.reason()), Some("SANDBOX_PAUSED"));
    control.resume(tenant, &id, None).await.expect("a paused sandbox can be resumed");
    subject.settled(&id, Phase::Running).await;
    subject.kill(&id).await;
}

async fn a_foreign_sandbox_is_not_found(subject: &Subject<'_>) {
    let (id, control, stranger) = (subject.running().await, subject.control, &subject.stranger);
    let kinds = [
        control.get(stranger, &id).await.err(),
        control.pause(stranger, &id, Keep::Memory, Aging::GoesOn).await.err(),
        control.kill(stranger, &id).await.err(),
        control.logs(stranger, &id, 1).await.err(),
        control.usage(stranger, &id).await.err(),
        control.connect(&Access::Tenant(stranger.clone()), &id, Port::Agent).await.err(),
    ]
    .map(|error| error.map(|error| error.kind()));
    assert_eq!(kinds, [Some(ErrorKind::NotFound); 6]);
    subject.settled(&id, Phase::Running).await;
    subject.kill(&id).await;
}

async fn labels_and_deadlines_are_kept(subject: &Subject<'_>) {
    let (control, tenant) = (subject.control, &subject.tenant);
    let hour = Duration::from_secs(3600);
    let request = Create { lifetime: Some(hour), on_expiry: PAUSE, ..subject.request() };
    let sandbox = control.create(tenant, request).await.expect("it is accepted");
    let expected = Deadline { at: sandbox.created_at.saturating_add(hour), then: PAUSE };
    assert_eq!(sandbox.life.deadline(), Some(expected));
    let later = Deadline { at: expected.at.saturating_add(hour), then: Expiry::Kill };
    let patch = [("team".to_owned(), Some("blue".to_owned()))].into();
    control.set_deadline(tenant, &sandbox.id, Some(later)).await.expect("it is moved");
    control.patch_metadata(tenant, &sandbox.id, patch).await.expect("it is labelled");
    let sandbox = subject.settled(&sandbox.id, Phase::Running).await;
    assert_eq!(sandbox.life.deadline(), Some(later));
    assert_eq!(sandbox.spec.metadata.get("team").map(String::as_str), Some("blue"));
    subject.kill(&sandbox.id).await;
}

async fn a_pause_may_keep_files_alone(subject: &Subject<'_>) {
    let (id, control, tenant) = (subject.running().await, subject.control, &subject.tenant);
    control
        .pause(tenant, &id, Keep::Files, Aging::GoesOn)
        .await
        .expect("a running sandbox can be paused");
    let paused = subject.settled(&id, Phase::Paused).await;
    assert_eq!(paused.life.keep(), Keep::Files);
    control.resume(tenant, &id, None).await.expect("a paused sandbox can be resumed");
    subject.settled(&id, Phase::Running).await;
    let stream = control.connect(&Access::Signed, &id, Port::Agent).await.expect("it is reached");
    assert_eq!(http::get(stream, "/ping").await, 200);
    subject.kill(&id).await;
}

async fn who_waits_for_a_sandbox_gets_one_that_runs(subject: &Subject<'_>) {
    let (control, tenant) = (subject.control, &subject.tenant);
    let hour = Duration::from_secs(3600);
    let request = Create { lifetime: Some(hour), on_expiry: PAUSE, ..subject.request() };
    let made = control.create_and_wait(tenant, request, PATIENCE).await.expect("it is made");
    assert_eq!(made.life.phase(), Phase::Running, "{:?}", made.life.diagnostic());
    let expected = made.life.deadline().expect("it has a deadline");
    let moved = |by: Duration| Deadline { at: made.created_at.saturating_add(by), ..expected };
    for (to, then) in [(hour / 2, expected), (hour * 2, moved(hour * 2))] {
        let sandbox = control.extend(tenant, &made.id, moved(to)).await.expect("it is extended");
        assert_eq!(sandbox.life.deadline(), Some(then));
    }
    subject.kill(&made.id).await;
}

async fn copies_are_made_of_a_running_sandbox(subject: &Subject<'_>) {
    let (source, control, tenant) = (subject.running().await, subject.control, &subject.tenant);
    let copies = control.fork(tenant, &source, 2, None, &[]).await.expect("it can be copied");
    let ids: Vec<_> =
        copies.into_iter().map(|copy| copy.expect("each copy is made").id.clone()).collect();
    assert!(ids.len() == 2 && ids[0] != ids[1] && !ids.contains(&source), "{ids:?}");
    subject.kill(&source).await;
    for id in &ids {
        subject.settled(id, Phase::Running).await;
        subject.kill(id).await;
    }
    let shown = control.list_snapshots(tenant, &SnapshotFilter::default()).await;
    assert!(shown.expect("lists work").is_empty(), "what a fork needs is nobody's business");
}

async fn lists_are_newest_first(subject: &Subject<'_>) {
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.insert(0, subject.running().await);
    }
    let list = async |paging| {
        let page = subject.control.list(&subject.tenant, &Filter::default(), paging).await;
        let page = page.expect("lists work");
        (page.items.iter().map(|s| s.id.clone()).collect::<Vec<_>>(), page.total)
    };
    let (mut all, total) = list(ALL).await;
    let window = list(Paging { skip: 1, take: 1 }).await;
    assert_eq!(window, (vec![all[1].clone()], total));
    all.sort();
    ids.sort();
    assert_eq!((&all, total), (&ids, 3));
    for id in &ids {
        subject.kill(id).await;
    }
}

async fn a_snapshot_becomes_ready_and_makes_sandboxes(subject: &Subject<'_>) {
    let (source, control, tenant) = (subject.running().await, subject.control, &subject.tenant);
    let taken = control.snapshot(tenant, &source, Some("one".to_owned())).await;
    let id = taken.expect("a running sandbox can be kept").id.clone();
    eventually("the snapshot is ready", async || {
        let snapshot = control.get_snapshot(tenant, &id).await.expect("it is there");
        (snapshot.state == SnapshotState::Ready).then_some(())
    })
    .await;
    let filter = SnapshotFilter { sandbox: Some(source.clone()), name: Some("one".to_owned()) };
    assert_eq!(control.list_snapshots(tenant, &filter).await.expect("lists work").len(), 1);
    let mut request = subject.request();
    request.spec.source = Source::Snapshot(id.clone());
    let made = control.create(tenant, request).await.expect("it is accepted").id.clone();
    subject.settled(&made, Phase::Running).await;
    let refused = control.delete_snapshot(tenant, &id).await.err().map(|error| error.kind());
    assert_eq!(refused, Some(ErrorKind::Conflict), "it is in use");
    subject.kill(&made).await;
    subject.kill(&source).await;
    control.delete_snapshot(tenant, &id).await.expect("nobody uses it");
    eventually("the snapshot is gone", async || control.get_snapshot(tenant, &id).await.err())
        .await;
}
