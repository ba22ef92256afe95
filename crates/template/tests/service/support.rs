//! A service, and words to build with.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use atoll_core::{TenantId, Timestamp};
use atoll_store::RedbStore;
use atoll_template::{
    Build, BuiltIn, Grant, Ground, Level, NewBuild, Recipe, Status, Step, TemplateConfig,
    TemplateService,
};
use bytes::Bytes;

use crate::yard::{NOW, Yard};

pub(crate) const HASH: &str = "37dce8f5116cbbbf3f6fc0fc5c6f2d716419e7bdca04cdb1b8a0be87c9f4e49b";
const PATIENCE: Duration = Duration::from_secs(20);

pub(crate) struct World {
    pub(crate) yard: Arc<Yard>,
    pub(crate) service: Arc<TemplateService>,
    pub(crate) store: RedbStore,
    pub(crate) tenant: TenantId,
    uploads: tempfile::TempDir,
}

impl World {
    pub(crate) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    /// Layers are made only where they must be, unless the test says otherwise.
    pub(crate) async fn with(change: impl FnOnce(&mut TemplateConfig)) -> Self {
        let (yard, store) = (Yard::new(), RedbStore::in_memory().expect("a store"));
        let uploads = tempfile::tempdir().expect("a temporary directory");
        let service = start(&yard, &store, uploads.path(), change).await;
        Self { yard, service, store, tenant: tenant("acme"), uploads }
    }

    /// The server anew, over what was written down.
    pub(crate) async fn restart(&mut self) {
        self.service = start(&self.yard, &self.store, self.uploads.path(), |_| {}).await;
    }

    /// Builds, and waits until it is over.
    pub(crate) async fn build(&self, name: &str, recipe: Recipe) -> Arc<Build> {
        let wanted = NewBuild { name: name.to_owned(), ..NewBuild::default() };
        let asked = self.service.request(&self.tenant, &wanted).await.expect("a build");
        let (template, build) = (&asked.template.id, &asked.build.id);
        self.service.begin(&self.tenant, template, build, recipe).await.expect("it begins");
        self.finished(template, build).await
    }

    pub(crate) async fn finished(&self, template: &str, build: &str) -> Arc<Build> {
        let look = || self.service.build(&self.tenant, template, build).expect("it is known");
        let over = async {
            while look().is_pending() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(PATIENCE, over).await.is_err() {
            panic!("a build must end: {:#?}", self.said(&look()));
        }
        look()
    }

    /// Builds what must work.
    pub(crate) async fn built(&self, name: &str, recipe: Recipe) -> Arc<Build> {
        let build = self.build(name, recipe).await;
        assert_eq!(build.status, Status::Ready, "{:?} {:#?}", build.reason, self.said(&build));
        build
    }

    pub(crate) fn said(&self, build: &Build) -> Vec<String> {
        let log = self.service.log(build, 0, usize::MAX, Level::Debug);
        log.into_iter().map(|entry| entry.message).collect()
    }

    pub(crate) async fn upload(&self, template: &str, bytes: Vec<u8>) {
        let asked = self.service.presence(&self.tenant, template, HASH).await.expect("an answer");
        self.send(&asked.grant, bytes).await;
    }

    async fn send(&self, grant: &Grant, bytes: Vec<u8>) {
        let length = bytes.len() as u64;
        let body = futures_util::stream::iter([Ok::<_, std::io::Error>(Bytes::from(bytes))]);
        self.service.receive(grant, HASH, length, body).await.expect("it is taken");
    }

    /// Waits until `done` holds; what it waits for happens in the background.
    pub(crate) async fn until(&self, what: &str, done: impl Fn() -> bool) {
        let waiting = async {
            while !done() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        tokio::time::timeout(PATIENCE, waiting).await.unwrap_or_else(|_| panic!("{what}"));
    }
}

async fn start(
    yard: &Arc<Yard>,
    store: &RedbStore,
    uploads: &std::path::Path,
    change: impl FnOnce(&mut TemplateConfig),
) -> Arc<TemplateService> {
    let mut config = TemplateConfig::new(uploads);
    config.layer_worth = Duration::MAX;
    change(&mut config);
    // Every look at the clock is a little later.
    let clock = AtomicI64::new(NOW.as_micros());
    let now = move || Timestamp::from_micros(clock.fetch_add(1, Ordering::Relaxed));
    let built_ins = vec![BuiltIn::ready("base", "base")];
    let store = Arc::new(store.clone());
    TemplateService::start(config, yard.clone(), store, built_ins, Arc::new(now))
        .await
        .expect("it starts")
}

pub(crate) fn tenant(name: &str) -> TenantId {
    TenantId::parse(name).expect("an id")
}

/// A build from the base image as root, since the machine has no account named `user`, and without
/// what the machine's root does at login.
pub(crate) fn recipe(steps: &[(&str, &[&str])]) -> Recipe {
    let before: &[(&str, &[&str])] = &[("USER", &["root"]), ("ENV", &["HOME", "/"])];
    let all = [before, steps].concat();
    let step = |(at, (kind, args)): (usize, &(&str, &[&str]))| {
        let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
        Step::parse(at + 1, kind, &args, Some(HASH), false).expect("a step")
    };
    let steps = all.iter().enumerate().map(step).collect();
    let from = Ground::Image("e2bdev/base".to_owned(), None);
    Recipe { from, force: false, steps, start: None, ready: None }
}

pub(crate) fn snapshot_of(build: &Build) -> String {
    match &build.made.as_ref().expect("it was made").source {
        atoll_template::Source::Snapshot(id) => id.clone(),
        atoll_template::Source::Image(name) => panic!("still the image {name}"),
    }
}
