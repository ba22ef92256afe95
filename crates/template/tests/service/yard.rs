//! A `Control` whose sandboxes are folders.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use async_trait::async_trait;
use atoll_control::{
    Access, BoxedIo, Control, Create, Filter, LogTail, MetadataPatch, Page, Paging, Port, Sample,
    SnapshotFilter, Usage,
};
use atoll_core::lifecycle::Failure;
use atoll_core::{
    Action, Aging, Deadline, Diagnostic, Error, ErrorKind, Keep, Lifecycle, Observed, Result,
    Sandbox, SandboxId, Snapshot, SnapshotId, SnapshotState, Source, TenantId, Timestamp,
};
use atoll_guest::{Guest, Options, Role};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;

pub(crate) const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

struct Box_ {
    record: Arc<Sandbox>,
    app: axum::Router,
}

#[derive(Default)]
struct State {
    boxes: BTreeMap<String, Box_>,
    snapshots: BTreeMap<String, Arc<Snapshot>>,
    /// What every sandbox was asked to be, in order.
    asked: Vec<Create>,
    /// Why the next sandbox with this word in its entrypoint or image fails.
    refuse: Option<(String, String)>,
    snapshots_max: Option<usize>,
}

pub(crate) struct Yard {
    dir: tempfile::TempDir,
    state: Mutex<State>,
    count: AtomicUsize,
}

impl Yard {
    pub(crate) fn new() -> Arc<Self> {
        let dir = tempfile::tempdir().expect("a temporary directory");
        Arc::new(Self { dir, state: Mutex::default(), count: AtomicUsize::new(0) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no test panics while holding it")
    }

    fn fresh(&self, kind: &str) -> String {
        format!("{kind}{}", self.count.fetch_add(1, Ordering::Relaxed))
    }

    fn folder(&self, id: &str) -> PathBuf {
        self.dir.path().join(id)
    }

    pub(crate) fn asked(&self) -> Vec<Create> {
        self.lock().asked.clone()
    }

    pub(crate) fn alive(&self) -> usize {
        self.lock().boxes.len()
    }

    pub(crate) fn snapshots(&self) -> Vec<String> {
        self.lock().snapshots.keys().cloned().collect()
    }

    /// The content of a file in a snapshot.
    pub(crate) fn kept(&self, snapshot: &str, file: &str) -> Option<String> {
        std::fs::read_to_string(self.folder(snapshot).join(file)).ok()
    }

    pub(crate) fn allow_snapshots(&self, max: usize) {
        self.lock().snapshots_max = Some(max);
    }

    /// All snapshots are gone.
    pub(crate) fn forget_snapshots(&self) {
        self.lock().snapshots.clear();
    }

    pub(crate) fn refuse(&self, word: &str, reason: &str) {
        self.lock().refuse = Some((word.to_owned(), reason.to_owned()));
    }

    /// A snapshot of the user's own.
    pub(crate) fn add_snapshot(
        &self,
        tenant: &TenantId,
        sandbox: &str,
        name: Option<&str>,
    ) -> SnapshotId {
        let id = SnapshotId::parse(&self.fresh("user")).expect("an id");
        let snapshot = Snapshot {
            id: id.clone(),
            tenant: tenant.clone(),
            sandbox: SandboxId::parse(sandbox).expect("an id"),
            name: name.map(str::to_owned),
            hidden: false,
            state: SnapshotState::Ready,
            changed_at: NOW,
            created_at: NOW,
        };
        std::fs::create_dir(self.folder(id.as_str())).expect("a folder");
        self.lock().snapshots.insert(id.to_string(), Arc::new(snapshot));
        id
    }

    fn find(&self, id: &SandboxId) -> Result<Arc<Sandbox>> {
        let state = self.lock();
        let found = state.boxes.get(id.as_str()).map(|found| found.record.clone());
        found.ok_or_else(|| Error::not_found(format_args!("sandbox {id}")))
    }
}

fn copy(from: &Path, to: &Path) {
    let status = std::process::Command::new("cp").arg("-a").arg(from).arg(to).status();
    assert!(status.expect("cp runs").success());
}

#[async_trait]
impl Control for Yard {
    async fn create(&self, tenant: &TenantId, create: Create) -> Result<Arc<Sandbox>> {
        let id = SandboxId::parse(&self.fresh("box"))?;
        let folder = self.folder(id.as_str());
        match &create.spec.source {
            Source::Snapshot(snapshot) => {
                let known = self.lock().snapshots.get(snapshot.as_str()).cloned();
                known
                    .filter(|s| s.tenant == *tenant)
                    .ok_or_else(|| Error::not_found("snapshot"))?;
                copy(&self.folder(snapshot.as_str()), &folder);
            }
            Source::Image(_) => std::fs::create_dir(&folder).expect("a folder"),
        }
        let env = [
            ("BOX", folder.clone()),
            ("EXECD_ENVS", folder.join(".envs")),
            ("PATH", PathBuf::from("/usr/bin:/bin:/usr/sbin:/sbin")),
        ];
        let env = env.map(|(name, value)| (name.to_owned(), value.display().to_string())).into();
        let options = Options { env, ..Options::default() };
        let guest = Guest::new(Role::Guest, options).map_err(|e| Error::internal(e.to_string()))?;
        let mut life = Lifecycle::new(NOW, None);
        life.began(Action::Create, NOW);
        let words = format!("{:?} {:?}", create.spec.entrypoint, create.spec.source);
        match self.lock().refuse.clone().filter(|(word, _)| words.contains(word)) {
            Some((_, reason)) => {
                let diagnostic = Diagnostic::new(&reason, "it did not work", "do something else");
                life.failed(Action::Create, Failure { diagnostic, transient: false }, NOW);
            }
            None => life.observe(&Observed::Running, NOW),
        }
        let record = Arc::new(Sandbox {
            id: id.clone(),
            tenant: tenant.clone(),
            spec: create.spec.clone(),
            created_at: NOW,
            access_token: String::new(),
            stock_of: None,
            life,
        });
        let app = atoll_opensandbox::guest::router(guest);
        let mut state = self.lock();
        state.asked.push(create);
        state.boxes.insert(id.to_string(), Box_ { record: record.clone(), app });
        Ok(record)
    }

    async fn create_and_wait(
        &self,
        tenant: &TenantId,
        create: Create,
        _patience: Duration,
    ) -> Result<Arc<Sandbox>> {
        self.create(tenant, create).await
    }

    async fn get(&self, tenant: &TenantId, id: &SandboxId) -> Result<Arc<Sandbox>> {
        self.find(id).and_then(|found| match found.tenant == *tenant {
            true => Ok(found),
            false => Err(Error::not_found(format_args!("sandbox {id}"))),
        })
    }

    async fn list(
        &self,
        tenant: &TenantId,
        filter: &Filter,
        paging: Paging,
    ) -> Result<Page<Arc<Sandbox>>> {
        let made_from = |sandbox: &Sandbox| sandbox.spec.template.as_ref().map(|t| t.id.clone());
        let items: Vec<_> = {
            let state = self.lock();
            let records = state.boxes.values().map(|found| found.record.clone());
            let own = records.filter(|sandbox| sandbox.tenant == *tenant);
            own.filter(|s| filter.template.is_none() || filter.template == made_from(s)).collect()
        };
        let total = items.len();
        Ok(Page { items: items.into_iter().skip(paging.skip).take(paging.take).collect(), total })
    }

    async fn wait(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        _patience: Duration,
    ) -> Result<Arc<Sandbox>> {
        self.get(tenant, id).await
    }

    async fn kill(&self, _tenant: &TenantId, id: &SandboxId) -> Result<()> {
        let removed = self.lock().boxes.remove(id.as_str());
        removed.map(drop).ok_or_else(|| Error::not_found(format_args!("sandbox {id}")))
    }

    async fn connect(&self, _access: &Access, id: &SandboxId, _port: Port) -> Result<BoxedIo> {
        let app = self.lock().boxes.get(id.as_str()).map(|found| found.app.clone());
        let app = app.ok_or_else(|| Error::not_found(format_args!("sandbox {id}")))?;
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let service = TowerToHyperService::new(app);
        let serving = hyper::server::conn::http1::Builder::new()
            .serve_connection(TokioIo::new(theirs), service);
        tokio::spawn(serving);
        Ok(Box::new(ours))
    }

    async fn logs(&self, _: &TenantId, _: &SandboxId, _: usize) -> Result<LogTail> {
        Ok(LogTail { bytes: b"said by the main program\n".to_vec(), truncated: false })
    }

    async fn snapshot(
        &self,
        tenant: &TenantId,
        id: &SandboxId,
        name: Option<String>,
    ) -> Result<Arc<Snapshot>> {
        self.find(id)?;
        let max = self.lock().snapshots_max;
        if max.is_some_and(|max| self.snapshots().len() >= max) {
            return Err(Error::new(ErrorKind::Exhausted, "too many snapshots"));
        }
        let snapshot = Arc::new(Snapshot {
            id: SnapshotId::parse(&self.fresh("snap"))?,
            tenant: tenant.clone(),
            sandbox: id.clone(),
            name,
            hidden: false,
            state: SnapshotState::Ready,
            changed_at: NOW,
            created_at: NOW,
        });
        copy(&self.folder(id.as_str()), &self.folder(snapshot.id.as_str()));
        self.lock().snapshots.insert(snapshot.id.to_string(), snapshot.clone());
        Ok(snapshot)
    }

    async fn get_snapshot(&self, tenant: &TenantId, id: &SnapshotId) -> Result<Arc<Snapshot>> {
        let found = self.lock().snapshots.get(id.as_str()).cloned();
        let own = found.filter(|snapshot| snapshot.tenant == *tenant);
        own.ok_or_else(|| Error::not_found(format_args!("snapshot {id}")))
    }

    async fn list_snapshots(
        &self,
        tenant: &TenantId,
        filter: &SnapshotFilter,
    ) -> Result<Vec<Arc<Snapshot>>> {
        let state = self.lock();
        let own = state.snapshots.values().filter(|snapshot| snapshot.tenant == *tenant);
        Ok(own.filter(|s| filter.name.is_none() || filter.name == s.name).cloned().collect())
    }

    async fn delete_snapshot(&self, _: &TenantId, id: &SnapshotId) -> Result<()> {
        let mut state = self.lock();
        let uses = |source: &Source| matches!(source, Source::Snapshot(used) if used == id);
        if state.boxes.values().any(|found| uses(&found.record.spec.source)) {
            return Err(Error::conflict("a sandbox runs on it"));
        }
        let removed = state.snapshots.remove(id.as_str());
        removed.map(drop).ok_or_else(|| Error::not_found(format_args!("snapshot {id}")))
    }

    async fn pause(&self, _: &TenantId, _: &SandboxId, _: Keep, _: Aging) -> Result<Arc<Sandbox>> {
        Err(unused())
    }

    async fn resume(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        Err(unused())
    }

    async fn set_deadline(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: Option<Deadline>,
    ) -> Result<Arc<Sandbox>> {
        Err(unused())
    }

    async fn extend(&self, _: &TenantId, _: &SandboxId, _: Deadline) -> Result<Arc<Sandbox>> {
        Err(unused())
    }

    async fn patch_metadata(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: MetadataPatch,
    ) -> Result<Arc<Sandbox>> {
        Err(unused())
    }

    async fn samples(&self, _: &TenantId, _: &SandboxId) -> Result<Vec<Sample>> {
        Err(unused())
    }

    async fn usage(&self, _: &TenantId, _: &SandboxId) -> Result<Usage> {
        Err(unused())
    }

    async fn check(&self, _: &Access, _: &SandboxId) -> Result<()> {
        Err(unused())
    }

    async fn fork(
        &self,
        _: &TenantId,
        _: &SandboxId,
        _: usize,
        _: Option<Duration>,
        _: &[&str],
    ) -> Result<Vec<Result<Arc<Sandbox>>>> {
        Err(unused())
    }
}

fn unused() -> Error {
    Error::unsupported("builds have no use for it")
}
