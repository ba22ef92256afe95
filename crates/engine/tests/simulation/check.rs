//! What must be true at every step, at rest, and in the end.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Control, Filter, Paging, Pool, Pools, SnapshotFilter};
use atoll_core::{Desired, ErrorKind, Observed, Phase, Sandbox, SandboxId, SnapshotState, Source};
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

/// It has something on the machine.
fn is_up(sandbox: &Sandbox) -> bool {
    matches!(sandbox.life.phase(), Phase::Running | Phase::Paused)
}

impl World {
    pub(crate) async fn check_always(&self, engine: &Engine) {
        let tally = self.machine.tally();
        assert_eq!(tally.overlaps, 0, "two actions at once for one sandbox");
        assert_eq!(tally.shared, 0, "a sandbox knew two owners");
        let shown = visible(engine).await;
        let mut model = self.model.lock().unwrap();
        for sandbox in &shown {
            let reason = sandbox.life.diagnostic().map(|diagnostic| diagnostic.reason.as_str());
            let lost = reason == Some("SANDBOX_LOST");
            assert!(!lost || model.lost.contains(&sandbox.id), "{} is not lost", sandbox.id);
            let life = &sandbox.life;
            let runs = (life.desired(), life.phase()) == (Desired::Running, Phase::Running);
            let has_end = life.deadline().is_some() || life.lifetime().is_none();
            assert!(!runs || has_end, "{} had an end and runs without one", sandbox.id);
            let told = self.machine.told(&sandbox.id).filter(|_| is_up(sandbox));
            if let Some(told) = told {
                assert_eq!(told.spec.env, sandbox.spec.env, "{} was told another's", sandbox.id);
            }
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
            let pools = engine.pools().await;
            let wanted: usize = pools.iter().map(|status| status.pool.size).sum();
            let stocked = pools.iter().all(|p| p.ready == p.pool.size && p.starting == 0);
            let removing = self.disk.contents().sandboxes.len() != shown.len() + wanted;
            if !unrest && stocked && !removing && engine.stats().in_flight == 0 {
                return;
            }
        }
        let (shown, pools) = (visible(engine).await, engine.pools().await);
        panic!("no rest after {ROUNDS_MAX} rounds: {shown:?} {pools:?}");
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
        let stock = self.check_stock(engine).await;
        alive.extend(stock.iter().map(|id| (id.clone(), Observed::Running)));
        let there: BTreeMap<_, _> = self.machine.sandboxes().into_iter().collect();
        assert_eq!(there, alive, "the machine differs from what the records say");
        let on_disk: BTreeSet<_> =
            self.disk.contents().sandboxes.into_iter().map(|s| s.id).collect();
        let known = shown.iter().map(|s| s.id.clone()).chain(stock).collect();
        assert_eq!(on_disk, known, "disk and memory differ");
        for sandbox in &shown {
            assert_eq!(self.disk.sandbox(&sandbox.id).unwrap().life.phase(), sandbox.life.phase());
        }
        self.check_labels(&shown);
        self.check_callers(&shown);
        self.check_snapshots(engine, &shown).await;
    }

    /// Pools are as declared and full of sandboxes that know nobody's secrets.
    async fn check_stock(&self, engine: &Engine) -> BTreeSet<SandboxId> {
        let pools: BTreeMap<_, _> =
            engine.pools().await.into_iter().map(|s| (s.pool.name.clone(), s)).collect();
        let on_disk = self.disk.contents();
        let sizes = |pools: &[Pool]| -> BTreeMap<_, _> {
            pools.iter().map(|pool| (pool.name.clone(), pool.size)).collect()
        };
        let in_effect: Vec<_> = pools.values().map(|s| Pool::clone(&s.pool)).collect();
        assert_eq!(sizes(&on_disk.pools), sizes(&in_effect), "disk and memory differ in pools");
        for (name, known) in &self.model.lock().unwrap().pools {
            if let Some(size) = known.value {
                assert_eq!(pools.get(name).map(|s| s.pool.size), size, "{name} was declared");
            }
        }
        let stock = on_disk.sandboxes.into_iter().filter(|sandbox| sandbox.stock_of.is_some());
        let stock: Vec<_> = stock.collect();
        for sandbox in &stock {
            let told = self.machine.told(&sandbox.id).expect("stock is there");
            assert_eq!(told.access_token, sandbox.access_token, "stock that was somebody's");
            let pool = &pools[sandbox.stock_of.as_ref().unwrap()].pool;
            assert_eq!(sandbox.spec, pool.spec, "stock of an older declaration");
        }
        for (name, status) in &pools {
            let of_pool = |s: &&Sandbox| s.stock_of.as_ref() == Some(name);
            assert_eq!(stock.iter().filter(of_pool).count(), status.pool.size, "{name}");
            assert_eq!((status.ready, status.starting), (status.pool.size, 0), "{name}");
        }
        stock.into_iter().map(|sandbox| sandbox.id).collect()
    }

    /// Nothing was made for those who went away.
    fn check_callers(&self, shown: &[Arc<Sandbox>]) {
        let model = self.model.lock().unwrap();
        for sandbox in shown.iter().filter(|s| !matches!(s.spec.source, Source::Snapshot(_))) {
            if let Some(secret) = sandbox.spec.env.get("SECRET") {
                assert!(!model.left.contains(secret), "{} was left by its caller", sandbox.id);
            }
        }
    }

    fn check_labels(&self, shown: &[Arc<Sandbox>]) {
        let model = self.model.lock().unwrap();
        for sandbox in shown {
            let known = model.sandboxes.get(&sandbox.id);
            if let Some(label) = known.and_then(|known| known.label.value.as_ref()) {
                assert_eq!(sandbox.spec.metadata.get("label"), label.as_ref(), "{}", sandbox.id);
            }
        }
    }

    async fn check_snapshots(&self, engine: &Engine, shown: &[Arc<Sandbox>]) {
        // Hidden ones stay exactly as long as a sandbox needs them.
        let mut ready = BTreeSet::new();
        let on_disk = self.disk.contents().snapshots;
        for snapshot in on_disk.iter().filter(|snapshot| snapshot.hidden) {
            let source = Source::Snapshot(snapshot.id.clone());
            let used = |s: &Arc<Sandbox>| s.spec.source == source && is_up(s);
            assert!(shown.iter().any(used), "{} hides for nobody", snapshot.id);
            ready.insert(snapshot.id.clone());
        }
        let mut known = ready.clone();
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
        let on_disk: BTreeSet<_> = on_disk.into_iter().map(|s| s.id).collect();
        assert_eq!(on_disk, known, "disk and memory differ in snapshots");
        for (id, snapshot) in &self.model.lock().unwrap().snapshots {
            assert!(known.contains(id) || snapshot.may_be_gone, "snapshot {id} is lost");
        }
    }

    /// Ends everything; nothing may remain anywhere.
    pub(crate) async fn clear(&mut self, engine: &Engine) {
        for status in engine.pools().await {
            engine.remove_pool(&status.pool.name).await.unwrap();
        }
        self.model.lock().unwrap().pools.clear();
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
        let empty = left.sandboxes.is_empty() && left.snapshots.is_empty() && left.pools.is_empty();
        assert!(empty, "records leaked: {left:?}");
    }
}
