//! What every store does.

use std::time::Duration;

use atoll_core::{
    Action, Deadline, Exit, Expiry, GuestDefaults, ImageSource, Isolation, Keep, Mount,
    MountSource, Network, Observed, Phase, Platform, ReadyCheck, RegistryAuth, Resources, Sandbox,
    SnapshotState, Source, TemplateOrigin, Wish,
};
use atoll_engine::Store;
use atoll_engine::seam::{Change, Loaded};

use crate::sample::{self, NOW};

/// Runs every case, each over a store of its own that `make` made empty.
///
/// # Panics
/// When a case fails.
pub async fn run<S: Store>(mut make: impl AsyncFnMut() -> S) {
    a_new_store_is_empty(&make().await).await;
    everything_comes_back_as_it_was(&make().await).await;
    the_last_change_wins_and_dropping_twice_is_fine(&make().await).await;
    credentials_are_not_kept(&make().await).await;
    commits_at_once_lose_nothing(&make().await).await;
}

fn put(sandbox: &Sandbox) -> Change {
    Change::PutSandbox(Box::new(sandbox.clone()))
}

async fn load(store: &impl Store) -> Loaded {
    store.load().await.expect("records are read")
}

async fn commit(store: &impl Store, changes: Vec<Change>) {
    store.commit(changes).await.expect("records are written");
}

async fn a_new_store_is_empty(store: &impl Store) {
    let loaded = load(store).await;
    assert!(loaded.sandboxes.is_empty() && loaded.snapshots.is_empty());
}

async fn everything_comes_back_as_it_was(store: &impl Store) {
    let mut sandboxes: Vec<_> = Phase::ALL.iter().map(|phase| in_phase(*phase)).collect();
    sandboxes.push(with_everything());
    sandboxes.sort_by(|a, b| a.id.cmp(&b.id));
    let states = [
        SnapshotState::Creating,
        SnapshotState::Ready,
        SnapshotState::Failed("no room".to_owned()),
        SnapshotState::Deleting,
    ];
    let snapshots: Vec<_> = states
        .into_iter()
        .enumerate()
        .map(|(number, state)| {
            let mut snapshot = sample::snapshot(&format!("k{number}"), "s1", "t1");
            snapshot.name = (number > 1).then(|| "a name with \"quotes\" and ünïcode".to_owned());
            snapshot.hidden = number == 1;
            snapshot.state = state;
            snapshot
        })
        .collect();
    let mut changes: Vec<_> = sandboxes.iter().map(put).collect();
    changes.extend(snapshots.iter().map(|s| Change::PutSnapshot(Box::new(s.clone()))));
    commit(store, changes).await;
    let mut loaded = load(store).await;
    loaded.sandboxes.sort_by(|a, b| a.id.cmp(&b.id));
    loaded.snapshots.sort_by(|a, b| a.id.cmp(&b.id));
    assert_eq!(loaded.sandboxes, sandboxes);
    assert_eq!(loaded.snapshots, snapshots);
}

async fn the_last_change_wins_and_dropping_twice_is_fine(store: &impl Store) {
    let (kept, gone) = (sample::sandbox("kept", "t1"), sample::sandbox("gone", "t1"));
    let mut newer = kept.clone();
    newer.spec.metadata.insert("k".to_owned(), "v".to_owned());
    let drop_gone = || Change::DropSandbox(gone.id.clone());
    commit(store, vec![put(&kept), put(&gone), put(&newer), drop_gone()]).await;
    commit(store, vec![drop_gone()]).await;
    let pool = |size| sample::pool("p1", size);
    let put_pool = |size| Change::PutPool(Box::new(pool(size)));
    commit(store, vec![put_pool(1), Change::PutPool(Box::new(sample::pool("p2", 3)))]).await;
    let drop_pool = || Change::DropPool("p2".to_owned());
    commit(store, vec![put_pool(2), drop_pool(), drop_pool()]).await;
    let snapshot = sample::snapshot("k1", "kept", "t1");
    commit(store, vec![Change::PutSnapshot(Box::new(snapshot.clone()))]).await;
    commit(store, vec![Change::DropSnapshot(snapshot.id.clone())]).await;
    commit(store, vec![Change::DropSnapshot(snapshot.id)]).await;
    commit(store, Vec::new()).await;
    let loaded = load(store).await;
    assert_eq!(loaded.sandboxes, [newer]);
    assert_eq!(loaded.pools, [pool(2)]);
    assert!(loaded.snapshots.is_empty());
}

async fn credentials_are_not_kept(store: &impl Store) {
    let mut sandbox = sample::sandbox("s1", "t1");
    let auth = RegistryAuth { username: "user".to_owned(), password: "secret".to_owned() };
    let image = ImageSource { reference: "private".to_owned(), auth: Some(auth) };
    sandbox.spec.source = Source::Image(image);
    commit(store, vec![put(&sandbox)]).await;
    match &load(store).await.sandboxes[0].spec.source {
        Source::Image(image) => {
            assert_eq!((image.reference.as_str(), &image.auth), ("private", &None))
        }
        Source::Snapshot(_) => panic!("an image became a snapshot"),
    }
}

async fn commits_at_once_lose_nothing(store: &impl Store) {
    let sandboxes: Vec<_> = (0..8).map(|n| sample::sandbox(&format!("s{n}"), "t1")).collect();
    let [a, b] = [&sandboxes[..4], &sandboxes[4..]].map(|part| part.iter().map(put).collect());
    let (first, second) = tokio::join!(store.commit(a), store.commit(b));
    first.and(second).expect("both commits work");
    assert_eq!(load(store).await.sandboxes.len(), sandboxes.len());
}

fn in_phase(phase: Phase) -> Sandbox {
    let mut sandbox = sample::sandbox(&format!("{phase:?}").to_lowercase(), "t1");
    let life = &mut sandbox.life;
    let wish = |life: &mut atoll_core::Lifecycle, wish| {
        life.request(wish, NOW).expect("the wish is allowed in this phase");
    };
    if phase != Phase::Queued && phase != Phase::Gone {
        life.began(Action::Create, NOW);
    }
    if !matches!(phase, Phase::Queued | Phase::Gone | Phase::Starting) {
        life.observe(&Observed::Running, NOW);
    }
    match phase {
        Phase::Queued | Phase::Starting | Phase::Running => {}
        Phase::Pausing => wish(life, Wish::Pause(Keep::Files)),
        Phase::Paused | Phase::Resuming => {
            wish(life, Wish::Pause(Keep::Files));
            life.observe(&Observed::Paused, NOW);
            if phase == Phase::Resuming {
                wish(life, Wish::Resume);
            }
        }
        Phase::Stopping | Phase::Gone => wish(life, Wish::Kill),
        Phase::Ended | Phase::Failed => {
            let code = i32::from(phase == Phase::Failed);
            let exit = Exit { code, out_of_memory: false, message: "bye".to_owned() };
            life.observe(&Observed::Exited(exit), NOW);
        }
    }
    assert_eq!(life.phase(), phase);
    sandbox
}

fn with_everything() -> Sandbox {
    let mut sandbox = sample::sandbox("everything", "t2");
    let later = NOW.saturating_add(Duration::from_secs(60));
    sandbox.life.set_deadline(Some(Deadline { at: later, then: Expiry::Pause(Keep::Files) }), NOW);
    let spec = &mut sandbox.spec;
    spec.source = Source::Snapshot(sample::snapshot("k1", "s1", "t2").id);
    spec.entrypoint = vec!["sh".to_owned(), "-c".to_owned(), "true".to_owned()];
    spec.env = [("A".to_owned(), "\u{0}b\n".to_owned())].into();
    spec.metadata = [("team".to_owned(), "blue".to_owned())].into();
    spec.extensions = [("door".to_owned(), "{\"x\":1}".to_owned())].into();
    spec.resources =
        Resources { cpu_millis: Some(500), memory_bytes: Some(u64::MAX), pids: Some(64) };
    spec.platform = Some(Platform { os: "linux".to_owned(), arch: "amd64".to_owned() });
    spec.isolation = Isolation::Oci("runc".to_owned());
    spec.network = Network::Isolated;
    spec.guest = GuestDefaults { user: Some("user".to_owned()), workdir: Some("/home".to_owned()) };
    let (every, within) = (Duration::from_millis(20), Duration::from_secs(30));
    spec.ready = Some(ReadyCheck { command: "true".to_owned(), every, within });
    spec.wake_for = Some(Duration::from_secs(300));
    spec.template = Some(TemplateOrigin {
        id: "t1".to_owned(),
        alias: Some("base".to_owned()),
        build: "b1".to_owned(),
    });
    sandbox.stock_of = Some("pool".to_owned());
    let spec = &mut sandbox.spec;
    let mount = |name: &str, source, sub_path: Option<&str>| Mount {
        name: name.to_owned(),
        source,
        target: format!("/mnt/{name}"),
        sub_path: sub_path.map(str::to_owned),
        read_only: sub_path.is_some(),
    };
    let volume =
        MountSource::Volume { name: "v".to_owned(), create: true, delete_with_sandbox: false };
    spec.mounts = vec![
        mount("a", MountSource::Host("/srv".to_owned()), Some("x/y")),
        mount("b", volume, None),
    ];
    sandbox
}
