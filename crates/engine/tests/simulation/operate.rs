//! Random requests and random trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_control::{Claim, Control, Create, Pools};
use atoll_core::{Aging, Deadline, Desired, Expiry, Keep, Phase, SandboxId, Source, TenantId};
use atoll_engine::{Clock, Engine};
use atoll_testkit::{FaultyStore, sample};

use crate::model::{Certain, KnownSnapshot, Model};
use crate::world::World;

type Shared = Arc<Mutex<Model>>;

impl World {
    /// One random thing happens. Requests run beside each other and beside everything else.
    pub(crate) fn step(&mut self, engine: &Engine) {
        match self.random.below(26) {
            20..=21 => self.declare(engine),
            22..=23 => self.storm(engine),
            24 => self.fork(engine),
            0..=5 => self.create(engine),
            6..=8 => self.kill(engine),
            9..=10 => self.wish(engine, true),
            11..=12 => self.wish(engine, false),
            13 => self.renew(engine),
            14 => self.label(engine),
            15 => self.snapshot(engine),
            16 => self.delete_snapshot(engine),
            17 => self.trouble(),
            _ => self.move_clock(),
        }
    }

    fn victim(&mut self) -> Option<(SandboxId, TenantId)> {
        let living = self.model.lock().unwrap().living();
        self.random.pick(&living).cloned()
    }

    /// A request that no other is like, so that whoever sees its secret can be told.
    fn wanted(&mut self) -> (String, Create) {
        let lifetime = (self.random.below(3) == 0)
            .then(|| Duration::from_millis(1 + self.random.below(60_000)));
        let on_expiry = self.expiry();
        let mut create = Create { lifetime, on_expiry, ..sample::create() };
        let snapshots = self.model.lock().unwrap().snapshots();
        if self.random.below(5) == 0
            && let Some((id, _)) = self.random.pick(&snapshots)
        {
            create.spec.source = Source::Snapshot(id.clone());
        }
        if self.random.below(10) == 0 {
            let code = self.random.below(2);
            create.spec.entrypoint =
                ["sh".to_owned(), "-c".to_owned(), format!("exit {code}")].to_vec();
        }
        let pool = (self.random.below(3) == 0).then(|| self.pool_name());
        let create_on_no_stock = self.random.below(2) == 0;
        let patience = Duration::from_secs(self.random.below(30));
        create.claim = Claim { pool, create_on_no_stock, patience };
        let secret = format!("secret{}", self.random.number());
        create.spec.env.insert("SECRET".to_owned(), secret.clone());
        (secret, create)
    }

    fn create(&mut self, engine: &Engine) {
        let tenants: Vec<_> = Model::tenants().into_iter().collect();
        let tenant = self.random.pick(&tenants).cloned().unwrap();
        let (secret, create) = self.wanted();
        let waits = self.random.below(3) == 0;
        // Some callers go away before they are answered.
        let leaves_after = (self.random.below(4) == 0).then(|| self.random.below(30));
        let (engine, model, disk) = (engine.clone(), self.model.clone(), self.disk.clone());
        let clock = self.clock.clone();
        let task = tokio::spawn(async move {
            let outcome = if waits {
                engine.create_and_wait(&tenant, create, Duration::from_secs(60)).await
            } else {
                engine.create(&tenant, create).await
            };
            let mut model = model.lock().unwrap();
            match outcome {
                Ok(sandbox) => {
                    model.tell(format!("created {} for {tenant}", sandbox.id));
                    if waits {
                        let phase = sandbox.life.phase();
                        model.created(&sandbox.id, &tenant, sandbox.life.deadline());
                        let known = model.sandboxes.get_mut(&sandbox.id).unwrap();
                        let kept = matches!(phase, Phase::Running | Phase::Pausing | Phase::Paused);
                        // Meanwhile somebody else may have killed it, or its time was up.
                        known.may_be_gone = !kept || sandbox.life.deadline().is_none();
                    } else {
                        assert!(disk.sandbox(&sandbox.id).is_some(), "acknowledged, not durable");
                        model.created(&sandbox.id, &tenant, sandbox.life.deadline());
                    }
                    model.clock_moved(clock.now());
                }
                Err(error) => model.tell(format!("not created: {error}")),
            }
        });
        if let Some(turns) = leaves_after {
            let model = self.model.clone();
            tokio::spawn(async move {
                for _ in 0..turns {
                    tokio::task::yield_now().await;
                }
                if !task.is_finished() {
                    task.abort();
                    let mut model = model.lock().unwrap();
                    model.tell(format!("the caller of {secret} left"));
                    model.left.insert(secret);
                }
            });
        }
    }

    /// Many ask at once.
    fn storm(&mut self, engine: &Engine) {
        for _ in 0..2 + self.random.below(6) {
            self.create(engine);
        }
    }

    fn pool_name(&mut self) -> String {
        format!("pool{}", self.random.below(2))
    }

    fn expiry(&mut self) -> Expiry {
        match self.random.below(3) {
            0 => Expiry::Kill,
            1 => Expiry::Pause(Keep::Memory),
            _ => Expiry::Pause(Keep::Files),
        }
    }

    /// A pool is declared, changed or forgotten.
    fn declare(&mut self, engine: &Engine) {
        let name = self.pool_name();
        let size = usize::try_from(self.random.below(4)).unwrap();
        let size = (self.random.below(5) > 0).then_some(size);
        let mut pool = sample::pool(&name, size.unwrap_or(0));
        if self.random.below(4) == 0 {
            pool.spec.env.insert("POOL".to_owned(), "x".to_owned());
        }
        let mut model = self.model.lock().unwrap();
        let number = model.pools.entry(name.clone()).or_default().begin();
        drop(model);
        let (engine, model): (Engine, Shared) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = match size {
                Some(_) => engine.set_pool(pool).await,
                None => engine.remove_pool(&name).await,
            };
            let mut model = model.lock().unwrap();
            model.tell(format!("{name} shall have {size:?}: {outcome:?}"));
            model.pools.get_mut(&name).unwrap().end(number, size, outcome.is_ok());
        });
    }

    fn fork(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        let count = usize::try_from(1 + self.random.below(3)).unwrap();
        let lifetime = (self.random.below(2) == 0)
            .then(|| Duration::from_millis(1 + self.random.below(60_000)));
        let (engine, model) = (engine.clone(), self.model.clone());
        let clock = self.clock.clone();
        tokio::spawn(async move {
            let outcome = engine.fork(&tenant, &id, count, lifetime, &[]).await;
            let mut model = model.lock().unwrap();
            for copy in outcome.iter().flatten() {
                match copy {
                    Ok(copy) => {
                        model.tell(format!("{} is a copy of {id}", copy.id));
                        model.created(&copy.id, &tenant, copy.life.deadline());
                        let known = model.sandboxes.get_mut(&copy.id).unwrap();
                        // All are answered together, so that one may be over by then.
                        known.may_be_gone = true;
                        known.label = Certain::default();
                    }
                    Err(error) => model.tell(format!("no copy of {id}: {error}")),
                }
            }
            if let Err(error) = outcome {
                model.tell(format!("no copies of {id}: {error}"));
            }
            model.clock_moved(clock.now());
        });
    }

    fn kill(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        if let Some(known) = self.model.lock().unwrap().sandboxes.get_mut(&id) {
            known.may_be_gone = true;
        }
        let (engine, model, disk) = (engine.clone(), self.model.clone(), self.disk.clone());
        tokio::spawn(async move {
            let outcome = engine.kill(&tenant, &id).await;
            let mut model = model.lock().unwrap();
            model.tell(format!("kill {id}: {outcome:?}"));
            if outcome.is_ok() {
                assert!(is_gone_on(&disk, &id), "acknowledged, not durable");
                model.sandboxes.get_mut(&id).unwrap().killed = true;
            }
        });
    }

    fn wish(&mut self, engine: &Engine, pause: bool) {
        let Some((id, tenant)) = self.victim() else { return };
        let keep = if self.random.below(2) == 0 { Keep::Memory } else { Keep::Files };
        let at = self.clock.now().saturating_add(Duration::from_millis(self.random.below(90_000)));
        let until = (self.random.below(3) == 0).then(|| Deadline { at, then: self.expiry() });
        let rests = self.random.below(2) == 0;
        let aging = if rests { Aging::Stops(until) } else { Aging::GoesOn };
        let now = self.clock.now();
        if let Some(known) = self.model.lock().unwrap().sandboxes.get_mut(&id) {
            known.deadlines.extend(until.filter(|_| rests || !pause));
            known.time_is(now);
            // A lifetime that comes back ends at a time that nobody was told.
            known.may_be_gone |= !known.deadlines.is_empty();
        }
        let (engine, model) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = if pause {
                engine.pause(&tenant, &id, keep, aging).await
            } else {
                engine.resume(&tenant, &id, until).await
            };
            let outcome = outcome.map(|sandbox| sandbox.life.phase());
            model.lock().unwrap().tell(format!("pause {pause} {id}: {outcome:?}"));
        });
    }

    fn renew(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        let at = self.clock.now().saturating_add(Duration::from_millis(self.random.below(90_000)));
        let then =
            if self.random.below(2) == 0 { Expiry::Kill } else { Expiry::Pause(Keep::Memory) };
        let deadline = (self.random.below(4) > 0).then_some(Deadline { at, then });
        let now = self.clock.now();
        {
            let mut model = self.model.lock().unwrap();
            let known = model.sandboxes.get_mut(&id).unwrap();
            known.deadlines.extend(deadline);
            known.time_is(now);
        }
        let (engine, model) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = engine.set_deadline(&tenant, &id, deadline).await.map(drop);
            model.lock().unwrap().tell(format!("renew {id} to {deadline:?}: {outcome:?}"));
        });
    }

    fn label(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        let value = (self.random.below(4) > 0).then(|| self.random.below(1000).to_string());
        let number = self.model.lock().unwrap().sandboxes.get_mut(&id).unwrap().label.begin();
        let patch = [("label".to_owned(), value.clone())].into();
        let (engine, model): (Engine, Shared) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = engine.patch_metadata(&tenant, &id, patch).await.map(drop);
            let mut model = model.lock().unwrap();
            model.tell(format!("label {id}: {outcome:?}"));
            model.sandboxes.get_mut(&id).unwrap().label.end(number, value, outcome.is_ok());
        });
    }

    fn snapshot(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        let (engine, model, disk) = (engine.clone(), self.model.clone(), self.disk.clone());
        tokio::spawn(async move {
            let outcome = engine.snapshot(&tenant, &id, None).await;
            let mut model = model.lock().unwrap();
            match outcome {
                Ok(snapshot) => {
                    model.tell(format!("snapshot {} of {id}", snapshot.id));
                    assert!(disk.snapshot(&snapshot.id).is_some(), "acknowledged, not durable");
                    let known = KnownSnapshot { tenant, may_be_gone: false };
                    model.snapshots.insert(snapshot.id.clone(), known);
                }
                Err(error) => model.tell(format!("no snapshot of {id}: {error}")),
            }
        });
    }

    fn delete_snapshot(&mut self, engine: &Engine) {
        let snapshots = self.model.lock().unwrap().snapshots();
        let Some((id, tenant)) = self.random.pick(&snapshots).cloned() else { return };
        if let Some(known) = self.model.lock().unwrap().snapshots.get_mut(&id) {
            known.may_be_gone = true;
        }
        let (engine, model) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = engine.delete_snapshot(&tenant, &id).await;
            model.lock().unwrap().tell(format!("delete snapshot {id}: {outcome:?}"));
        });
    }

    /// Something happens to a sandbox that nobody asked for.
    fn trouble(&mut self) {
        let ids: Vec<_> = self.machine.sandboxes().into_iter().map(|(id, _)| id).collect();
        let Some(id) = self.random.pick(&ids).cloned() else { return };
        match self.random.below(4) {
            0 => {
                self.machine.lose(&id);
                self.model.lock().unwrap().lost.insert(id);
            }
            1 => self.machine.plant(SandboxId::parse(&format!("orphan{id}")).unwrap()),
            code => self.machine.exit(&id, i32::try_from(code).unwrap() - 2),
        }
    }
}

fn is_gone_on(disk: &FaultyStore, id: &SandboxId) -> bool {
    disk.sandbox(id).is_none_or(|sandbox| sandbox.life.desired() == Desired::Gone)
}
