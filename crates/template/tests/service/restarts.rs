use atoll_control::{Control, Create, Templates};
use atoll_core::{ErrorKind, ImageSource, SandboxSpec, Source};
use atoll_template::{BUILDER_LABEL, NewBuild, Status};

use crate::support::{World, recipe, snapshot_of};

#[tokio::test]
async fn templates_logs_and_the_cache_outlive_the_server() {
    let mut world = World::new().await;
    let steps: &[(&str, &[&str])] = &[("RUN", &["echo said"]), ("ENV", &["A", "1"])];
    let build = world.built("app", recipe(steps)).await;
    world.restart().await;
    let spec = world.service.resolve(&world.tenant, "app").await.unwrap();
    assert_eq!(spec.env["A"], "1");
    let again = world.service.build(&world.tenant, "app", &build.id).unwrap();
    assert_eq!(again, build);
    assert!(world.said(&again).iter().any(|line| line == "said"));
    let sandboxes = world.yard.asked().len();
    world.built("app", recipe(steps)).await;
    assert_eq!(world.yard.asked().len(), sandboxes);
}

#[tokio::test]
async fn a_restart_ends_a_build_and_removes_what_it_left() {
    let mut world = World::new().await;
    let wanted = NewBuild { name: "app".into(), ..NewBuild::default() };
    let asked = world.service.request(&world.tenant, &wanted).await.unwrap();
    let hanging = recipe(&[("RUN", &["touch $BOX/began; sleep 600"])]);
    world.service.begin(&world.tenant, "app", &asked.build.id, hanging.clone()).await.unwrap();
    let twice = world.service.begin(&world.tenant, "app", &asked.build.id, hanging).await;
    assert_eq!(twice.unwrap_err().kind(), ErrorKind::Conflict);
    world.until("a builder is at work", || world.yard.alive() == 1).await;
    let busy = world.service.remove(&world.tenant, "app").await.unwrap_err();
    assert_eq!(busy.kind(), ErrorKind::Conflict);
    let lost = world.yard.add_snapshot(&world.tenant, "gone", Some("atoll-template-lost-0"));
    world.restart().await;
    let build = world.service.build(&world.tenant, "app", &asked.build.id).unwrap();
    assert_eq!(build.status, Status::Error);
    assert!(build.reason.as_ref().unwrap().message.contains("restarted"));
    world.until("the builder goes", || world.yard.alive() == 0).await;
    let lost = lost.to_string();
    world.until("its snapshot goes", || !world.yard.snapshots().contains(&lost)).await;
}

#[tokio::test]
async fn a_restart_touches_no_sandbox_and_no_snapshot_of_users() {
    let mut world = World::new().await;
    let build = world.built("app", recipe(&[("RUN", &["true"])])).await;
    let image = ImageSource { reference: "base".into(), auth: None };
    let spec = SandboxSpec::new(Source::Image(image));
    let mut left = spec.clone();
    left.extensions.insert(BUILDER_LABEL.into(), "some-build".into());
    let user = world.yard.create(&world.tenant, Create::new(spec)).await.unwrap();
    world.yard.create(&world.tenant, Create::new(left)).await.unwrap();
    let snapshot = world.yard.add_snapshot(&world.tenant, "gone", Some("mine")).to_string();
    world.restart().await;
    world.until("only the builder goes", || world.yard.alive() == 1).await;
    assert!(world.yard.get(&world.tenant, &user.id).await.is_ok());
    for kept in [snapshot, snapshot_of(&build)] {
        assert!(world.yard.snapshots().contains(&kept), "{kept}");
    }
}
