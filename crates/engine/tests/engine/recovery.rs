//! Restarts find everything as it was left.

use atoll_control::Control;
use atoll_core::{Action, ImageSource, Observed, Phase, RegistryAuth, SandboxId, Source};
use atoll_testkit::sample;

use crate::bench::Bench;

fn private() -> atoll_control::Create {
    let auth = RegistryAuth { username: "user".to_owned(), password: "secret".to_owned() };
    let mut create = sample::create();
    let image = ImageSource { reference: "private/image".to_owned(), auth: Some(auth) };
    create.spec.source = Source::Image(image);
    create
}

#[tokio::test(start_paused = true)]
async fn sandboxes_are_found_as_they_were() {
    let mut bench = Bench::new().await;
    let (running, paused) = (bench.running().await, bench.paused().await);
    bench.restart().await;
    assert_eq!(bench.phase(&running).await, Phase::Running);
    assert_eq!(bench.phase(&paused).await, Phase::Paused);
    assert_eq!(bench.machine.tally().created, 2, "nothing was made again");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_creation_goes_on() {
    let mut bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    let id = bench.create().await.id.clone();
    bench.has_begun(1).await;
    bench.restart().await;
    bench.machine.release();
    bench.reaches(&id, Phase::Running).await;
    assert_eq!(bench.machine_holds(1).await, [(id, Observed::Running)]);
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_removal_goes_on() {
    let mut bench = Bench::new().await;
    let id = bench.running().await;
    bench.machine.hold(Action::Remove);
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    bench.restart().await;
    bench.machine.release();
    bench.machine_holds(0).await;
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_is_removed() {
    let mut bench = Bench::new().await;
    let id = bench.running().await;
    bench.engine.shutdown().await;
    bench.machine.plant(SandboxId::parse("orphan").unwrap());
    bench.restart().await;
    assert_eq!(bench.machine_holds(1).await[0].0, id);
}

#[tokio::test(start_paused = true)]
async fn what_a_reboot_ended_has_failed() {
    let mut bench = Bench::new().await;
    let id = bench.running().await;
    bench.engine.shutdown().await;
    bench.machine.lose(&id);
    bench.restart().await;
    assert_eq!(bench.phase(&id).await, Phase::Failed);
}

#[tokio::test(start_paused = true)]
async fn credentials_reach_the_runtime_and_nobody_else() {
    let bench = Bench::new().await;
    let id = bench.create_from(private()).await.id.clone();
    let sandbox = bench.at_rest(&id).await;
    assert_eq!(sandbox.life.phase(), Phase::Running);
    for spec in [&sandbox.spec, &bench.disk.sandbox(&id).unwrap().spec] {
        assert!(matches!(&spec.source, Source::Image(image) if image.auth.is_none()));
    }
}

#[tokio::test(start_paused = true)]
async fn a_creation_that_lost_its_credentials_says_what_to_do() {
    let mut bench = Bench::new().await;
    bench.machine.hold(Action::Create);
    let id = bench.create_from(private()).await.id.clone();
    bench.has_begun(1).await;
    bench.restart().await;
    bench.machine.release();
    bench.reaches(&id, Phase::Failed).await;
    let sandbox = bench.engine.get(&bench.tenant, &id).await.unwrap();
    let diagnostic = sandbox.life.diagnostic().unwrap();
    assert_eq!(diagnostic.reason, "IMAGE_PULL_FAILED");
    assert!(diagnostic.recommendation.contains("create the sandbox again"), "{diagnostic:?}");
}
