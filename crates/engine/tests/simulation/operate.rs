//! Random requests and random trouble.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use atoll_control::{Control, Create};
use atoll_core::{Deadline, Desired, Expiry, SandboxId, Source, TenantId};
use atoll_engine::{Clock, Engine};
use atoll_testkit::{FaultyStore, sample};

use crate::model::{KnownSnapshot, Model};
use crate::world::World;

type Shared = Arc<Mutex<Model>>;

impl World {
    /// One random thing happens. Requests run beside each other and beside everything else.
    pub(crate) fn step(&mut self, engine: &Engine) {
        match self.random.below(20) {
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

    fn create(&mut self, engine: &Engine) {
        let tenants: Vec<_> = Model::tenants().into_iter().collect();
        let tenant = self.random.pick(&tenants).cloned().unwrap();
        let lifetime = (self.random.below(3) == 0)
            .then(|| Duration::from_millis(1 + self.random.below(60_000)));
        let on_expiry = if self.random.below(2) == 0 { Expiry::Kill } else { Expiry::Pause };
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
        let (engine, model, disk) = (engine.clone(), self.model.clone(), self.disk.clone());
        let clock = self.clock.clone();
        tokio::spawn(async move {
            let outcome = engine.create(&tenant, create).await;
            let mut model = model.lock().unwrap();
            match outcome {
                Ok(sandbox) => {
                    model.tell(format!("created {}", sandbox.id));
                    assert!(disk.sandbox(&sandbox.id).is_some(), "acknowledged, not durable");
                    model.created(&sandbox.id, &tenant, sandbox.life.deadline());
                    model.clock_moved(clock.now());
                }
                Err(error) => model.tell(format!("not created: {error}")),
            }
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
        let (engine, model) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = if pause {
                engine.pause(&tenant, &id).await
            } else {
                engine.resume(&tenant, &id).await
            };
            let outcome = outcome.map(|sandbox| sandbox.life.phase());
            model.lock().unwrap().tell(format!("pause {pause} {id}: {outcome:?}"));
        });
    }

    fn renew(&mut self, engine: &Engine) {
        let Some((id, tenant)) = self.victim() else { return };
        let at = self.clock.now().saturating_add(Duration::from_millis(self.random.below(90_000)));
        let then = if self.random.below(2) == 0 { Expiry::Kill } else { Expiry::Pause };
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
        let number = self.model.lock().unwrap().sandboxes.get_mut(&id).unwrap().begin_label();
        let patch = [("label".to_owned(), value.clone())].into();
        let (engine, model): (Engine, Shared) = (engine.clone(), self.model.clone());
        tokio::spawn(async move {
            let outcome = engine.patch_metadata(&tenant, &id, patch).await.map(drop);
            let mut model = model.lock().unwrap();
            model.tell(format!("label {id}: {outcome:?}"));
            model.sandboxes.get_mut(&id).unwrap().end_label(number, value, outcome.is_ok());
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
