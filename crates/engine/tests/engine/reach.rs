//! Who reaches what.

use atoll_control::{Access, Control, Filter, Paging, Port, SnapshotFilter};
use atoll_core::{Action, Aging, ErrorKind, Keep};
use atoll_testkit::{http, sample};

use crate::bench::{Bench, PATIENCE};

#[tokio::test(start_paused = true)]
async fn a_tenant_never_learns_of_anothers_sandboxes() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    let snapshot = bench.engine.snapshot(&bench.tenant, &id, None).await.unwrap().id.clone();
    let (engine, other) = (&bench.engine, &sample::tenant("beta"));
    let access = Access::Tenant(other.clone());
    let kinds = [
        engine.get(other, &id).await.err(),
        engine.wait(other, &id, PATIENCE).await.err(),
        engine.pause(other, &id, Keep::Memory, Aging::GoesOn).await.err(),
        engine.resume(other, &id, None).await.err(),
        engine.kill(other, &id).await.err(),
        engine.set_deadline(other, &id, None).await.err(),
        engine.patch_metadata(other, &id, [].into()).await.err(),
        engine.logs(other, &id, 10).await.err(),
        engine.usage(other, &id).await.err(),
        engine.connect(&access, &id, Port::Agent).await.err(),
        engine.check(&access, &id).await.err(),
        engine.snapshot(other, &id, None).await.err(),
        engine.get_snapshot(other, &snapshot).await.err(),
        engine.delete_snapshot(other, &snapshot).await.err(),
    ]
    .map(|error| error.map(|error| error.kind()));
    assert_eq!(kinds, [Some(ErrorKind::NotFound); 14]);
    let all = Paging { skip: 0, take: 10 };
    assert_eq!(engine.list(other, &Filter::default(), all).await.unwrap().total, 0);
    assert!(engine.list_snapshots(other, &SnapshotFilter::default()).await.unwrap().is_empty());
    assert!(engine.get(&bench.tenant, &id).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_agent_answers_whoever_may_ask() {
    let bench = Bench::new().await;
    let id = bench.running().await;
    let token = bench.engine.get(&bench.tenant, &id).await.unwrap().access_token.clone();
    let allowed =
        [Access::Tenant(bench.tenant.clone()), Access::Token(token.clone()), Access::Signed];
    for access in allowed {
        bench.engine.check(&access, &id).await.unwrap();
        let stream = bench.engine.connect(&access, &id, Port::Agent).await.unwrap();
        assert_eq!(http::get(stream, "/ping").await, 200);
    }
    for wrong in ["", "x", &token[1..], &format!("{token}0"), &token.replace(&token[..1], "g")] {
        let access = Access::Token(wrong.to_owned());
        let error = bench.engine.connect(&access, &id, Port::Agent).await.err().unwrap();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{wrong:?}");
        assert_eq!(bench.engine.check(&access, &id).await, Err(error));
    }
}

#[tokio::test(start_paused = true)]
async fn what_can_not_be_reached_says_why() {
    let bench = Bench::new().await;
    let reason = async |id| {
        let error = bench.engine.connect(&Access::Signed, id, Port::Agent).await.err().unwrap();
        assert_eq!(bench.engine.check(&Access::Signed, id).await.as_ref(), Err(&error));
        (error.kind(), error.reason())
    };
    let paused = bench.paused().await;
    assert_eq!(reason(&paused).await, (ErrorKind::Conflict, Some("SANDBOX_PAUSED")));
    bench.machine.hold(Action::Create);
    let starting = bench.create().await.id.clone();
    assert_eq!(reason(&starting).await, (ErrorKind::Conflict, Some("SANDBOX_NOT_RUNNING")));
    bench.machine.release();
    let running = bench.running().await;
    let port = Port::Tcp(1);
    let error = bench.engine.connect(&Access::Signed, &running, port).await.err().unwrap();
    assert_eq!((error.kind(), error.reason()), (ErrorKind::Unavailable, Some("PORT_CLOSED")));
}
