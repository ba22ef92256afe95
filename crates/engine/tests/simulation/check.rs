//! What must be true at every step, at rest, and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Filter, Paging, SnapshotFilter};
use atoll_core::{ErrorKind, Observed, Phase, Sandbox, SnapshotState};
use atoll_engine::{Clock, Engine};

use crate::model::Model;
use crate::world::{World, idle};

/// Rounds in which everything must come to rest.
const ROUNDS_MAX: usize = 40;
/// Longer than the longest pause between two tries.
const ROUND: Duration = Duration::from_secs(31);
const ALL: Paging = Paging { skip: 0, take: usize::MAX };

async fn visible(engine: &Engine) -> Vec<Arc<Sandbox>> {
    let mut all = Vec::new();
    for tenant in Model::tenants() {
        let page = engine.list(&tenant, &Filter::default(), ALL).await.unwrap();
        assert_eq!(page.total, page.items.len());
        assert!(page.items.iter().all(|sandbox| sandbox.tenant == tenant), "a foreign sandbox");
        let newest_first = page.items.is_sorted_by_key(|sandbox| {
            std::cmp::Reverse((sandbox.created_at, sandbox.id.clone()))
        });
        assert!(newest_first, "a list is not in order");
        all.extend(page.items);
    }
    all
}

impl World {
    pub(crate) async fn check_always(&self, engine: &Engine) {
        assert_eq!(self.machine.tally().overlaps, 0, "two actions at once for one sandbox");
        let shown = visible(engine).await;
        let mut model = self.model.lock().unwrap();
        for sandbox in &shown {
            let reason = sandbox.life.diagnostic().map(|diagnostic| diagnostic.reason.as_str());
            let lost = reason == Some("SANDBOX_LOST");
            assert!(!lost || model.lost.contains(&sandbox.id), "{} is not lost", sandbox.id);
        }
        let shown: BTreeMap<_, _> = shown.iter().map(|s| (s.id.clone(), s.life.phase())).collect();
        for (id, known) in &mut model.sandboxes {
            match shown.get(id) {
                Some(phase) => {
                    assert!(!known.killed, "{id} was killed and is still shown");
                    known.see(id, *phase);
                }
                None => assert!(known.may_be_gone, "{id} was acknowledged and is lost"),
            }
        }
    }

    /// Lets time pass until nothing changes any more.
    pub(crate) async fn converge(&mut self, engine: &Engine) {
        for _ in 0..ROUNDS_MAX {
            self.set_clock(self.clock.now().saturating_add(ROUND));
            // Long enough for a look at everything, in case a hint was lost.
            tokio::time::sleep(ROUND).await;
            idle().await;
            let shown = visible(engine).await;
            let unrest = shown.iter().any(|s| s.life.plan().is_some());
            // Those being removed are on disk and not shown.
            let removing = self.disk.contents().sandboxes.len() > shown.len();
            if !unrest && !removing && engine.stats().in_flight == 0 {
                return;
            }
        }
        panic!("no rest after {ROUNDS_MAX} rounds: {:?}", visible(engine).await);
    }

    pub(crate) async fn check_at_rest(&mut self, engine: &Engine) {
        self.check_always(engine).await;
        let shown = visible(engine).await;
        let mut alive = BTreeMap::new();
        for sandbox in &shown {
            let seen = match sandbox.life.phase() {
                Phase::Running => Some(Observed::Running),
                Phase::Paused => Some(Observed::Paused),
                Phase::Ended | Phase::Failed => None,
                other => panic!("{} rests in {other:?}", sandbox.id),
            };
            alive.extend(seen.map(|seen| (sandbox.id.clone(), seen)));
        }
        let there: BTreeMap<_, _> = self.machine.sandboxes().into_iter().collect();
        assert_eq!(there, alive, "the machine differs from what the records say");
        let on_disk: BTreeSet<_> =
            self.disk.contents().sandboxes.into_iter().map(|s| s.id).collect();
        assert_eq!(on_disk, shown.iter().map(|s| s.id.clone()).collect(), "disk and memory differ");
        for sandbox in &shown {
            assert_eq!(self.disk.sandbox(&sandbox.id).unwrap().life.phase(), sandbox.life.phase());
        }
        self.check_labels(&shown);
        self.check_snapshots(engine).await;
    }

    fn check_labels(&self, shown: &[Arc<Sandbox>]) {
        let model = self.model.lock().unwrap();
        for sandbox in shown {
            let known = model.sandboxes.get(&sandbox.id);
            if let Some(label) = known.and_then(|known| known.label.as_ref()) {
                assert_eq!(sandbox.spec.metadata.get("label"), label.as_ref(), "{}", sandbox.id);
            }
        }
    }

    async fn check_snapshots(&self, engine: &Engine) {
        let mut ready = BTreeSet::new();
        let mut known = BTreeSet::new();
        for tenant in Model::tenants() {
            let all = engine.list_snapshots(&tenant, &SnapshotFilter::default()).await.unwrap();
            for snapshot in all {
                known.insert(snapshot.id.clone());
                match &snapshot.state {
                    SnapshotState::Ready => {
                        ready.insert(snapshot.id.clone());
                    }
                    SnapshotState::Failed(_) => {}
                    other => panic!("snapshot {} rests in {other:?}", snapshot.id),
                }
            }
        }
        assert_eq!(self.machine.kept().into_iter().collect::<BTreeSet<_>>(), ready);
        let on_disk: BTreeSet<_> =
            self.disk.contents().snapshots.into_iter().map(|s| s.id).collect();
        assert_eq!(on_disk, known, "disk and memory differ in snapshots");
        for (id, snapshot) in &self.model.lock().unwrap().snapshots {
            assert!(known.contains(id) || snapshot.may_be_gone, "snapshot {id} is lost");
        }
    }

    /// Ends everything; nothing may remain anywhere.
    pub(crate) async fn clear(&mut self, engine: &Engine) {
        for sandbox in visible(engine).await {
            engine.kill(&sandbox.tenant, &sandbox.id).await.unwrap();
            let again = engine.get(&sandbox.tenant, &sandbox.id).await.map_err(|e| e.kind());
            assert_eq!(again.err(), Some(ErrorKind::NotFound));
        }
        for tenant in Model::tenants() {
            let all = engine.list_snapshots(&tenant, &SnapshotFilter::default()).await.unwrap();
            for snapshot in all {
                engine.delete_snapshot(&tenant, &snapshot.id).await.unwrap();
            }
        }
        self.converge(engine).await;
        assert_eq!(self.machine.sandboxes(), [], "sandboxes leaked");
        assert_eq!(self.machine.kept(), [], "snapshots leaked");
        let left = self.disk.contents();
        assert!(left.sandboxes.is_empty() && left.snapshots.is_empty(), "records leaked: {left:?}");
    }
}
