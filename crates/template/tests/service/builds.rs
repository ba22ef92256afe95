use atoll_control::Templates;
use atoll_core::{ErrorKind, Source as CoreSource};
use atoll_template::{BUILDER_LABEL, Ground, NewBuild, Status};

use crate::support::{World, recipe, snapshot_of};

#[tokio::test]
async fn a_template_is_built_and_resolved() {
    let world = World::new().await;
    let steps: &[(&str, &[&str])] = &[
        ("RUN", &["echo one > $BOX/file; echo said; echo complained >&2"]),
        ("ENV", &["GREETING", "hello", "BOTH", "$GREETING-$HOME-$(id)"]),
        ("RUN", &["echo $GREETING $BOTH >> $BOX/file"]),
    ];
    let build = world.built("app", recipe(steps)).await;
    let snapshot = snapshot_of(&build);
    // A pair sees what earlier steps set, not what its own step sets.
    assert_eq!(world.yard.kept(&snapshot, "file").unwrap(), "one\nhello -/-$(id)\n");
    let said = world.said(&build);
    for line in
        ["said", "complained", "Build finished", "e2bdev/base is this server's own base image"]
    {
        assert!(said.iter().any(|found| found == line), "{line:?} in {said:#?}");
    }
    assert!(!said.iter().any(|line| line.contains("hello") && line.contains("ENV")));
    let spec = world.service.resolve(&world.tenant, "app").await.unwrap();
    assert!(matches!(&spec.source, CoreSource::Snapshot(id) if id.as_str() == snapshot));
    assert_eq!(spec.env["GREETING"], "hello");
    assert_eq!(spec.guest.user.as_deref(), Some("root"));
    assert_eq!(spec.template.unwrap().build, build.id);
    assert!(spec.ready.is_none() && spec.entrypoint.is_empty());
    assert_eq!(world.yard.alive(), 0, "no builder stays");
    let labels = world.yard.asked().iter().all(|c| c.spec.extensions[BUILDER_LABEL] == build.id);
    assert!(labels && world.yard.asked().iter().all(|create| create.lifetime.is_some()));
}

#[tokio::test]
async fn uploaded_files_and_folders_are_put_into_place() {
    let world = World::new().await;
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir_all(dir.path().join("src/sub")).unwrap();
    std::fs::write(dir.path().join("src/sub/a.txt"), "content").unwrap();
    let mut packed = tar::Builder::new(Vec::new());
    packed.append_dir_all("src", dir.path().join("src")).unwrap();
    let packed = packed.into_inner().unwrap();
    let target = tempfile::tempdir().unwrap();
    let (deep, app) = (target.path().join("deep/work"), target.path().join("app"));
    let (deep, app) = (deep.to_str().unwrap(), app.to_str().unwrap());
    let steps: &[(&str, &[&str])] = &[
        ("COPY", &["src", app, "", "0750"]),
        ("WORKDIR", &[deep]),
        ("COPY", &["src/sub/a.txt", "here.txt", "root", ""]),
        ("RUN", &["pwd > $BOX/where; cat here.txt > $BOX/copied"]),
    ];
    let missing = world.build("app", recipe(steps)).await;
    let reason = missing.reason.as_ref().unwrap();
    assert_eq!(reason.step.as_deref(), Some("3"));
    assert!(reason.message.contains("were not uploaded"), "{}", reason.message);
    world.upload("app", packed).await;
    let build = world.built("app", recipe(steps)).await;
    let kept = |file| world.yard.kept(&snapshot_of(&build), file).unwrap();
    assert_eq!([kept("where"), kept("copied")], [format!("{deep}\n"), "content".into()]);
    assert_eq!(std::fs::read_to_string(format!("{app}/sub/a.txt")).unwrap(), "content");
    let spec = world.service.resolve(&world.tenant, "app").await.unwrap();
    assert_eq!(spec.guest.workdir.as_deref(), Some(deep));
}

#[tokio::test]
async fn a_failing_command_says_where_and_what() {
    let world = World::new().await;
    let steps: &[(&str, &[&str])] =
        &[("RUN", &["true"]), ("RUN", &["echo the cause >&2; exit 3"]), ("RUN", &["true"])];
    let build = world.build("app", recipe(steps)).await;
    assert_eq!(build.status, Status::Error);
    let reason = build.reason.as_ref().unwrap();
    assert_eq!(reason.step.as_deref(), Some("4"), "counted from 1, two came before");
    assert!(reason.message.contains("exit status 3"), "{}", reason.message);
    assert!(world.said(&build).iter().any(|line| line == "the cause"));
    assert_eq!(world.yard.alive(), 0);
    let refused = world.service.resolve(&world.tenant, "app").await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::NotFound);
    assert!(refused.message().starts_with("template 'app' not found"), "{refused}");
}

#[tokio::test]
async fn a_step_that_hangs_is_ended() {
    let world =
        World::with(|config| config.step_time_max = std::time::Duration::from_millis(300)).await;
    let build = world.build("app", recipe(&[("RUN", &["sleep 600"])])).await;
    let reason = build.reason.as_ref().unwrap();
    assert_eq!((build.status, reason.step.as_deref()), (Status::Error, Some("3")));
    assert_eq!(world.yard.alive(), 0);
}

#[tokio::test]
async fn an_image_that_cannot_be_had_fails_the_base() {
    let world = World::new().await;
    world.yard.refuse("nowhere.test/none", "IMAGE_NOT_FOUND");
    let mut wanted = recipe(&[]);
    wanted.from = Ground::Image("nowhere.test/none:1".into(), None);
    wanted.steps.clear();
    let build = world.build("app", wanted).await;
    let reason = build.reason.as_ref().unwrap();
    assert!(reason.message.contains("IMAGE_NOT_FOUND"), "{}", reason.message);
    assert_eq!(world.yard.alive(), 0, "what failed is removed");
}

#[tokio::test]
async fn start_and_ready_commands_are_tried_and_inherited() {
    let world = World::new().await;
    let mut wanted = recipe(&[("RUN", &["echo > $BOX/a"])]);
    (wanted.start, wanted.ready) = (Some("serve".into()), Some("curl -f localhost".into()));
    world.built("parent", wanted).await;
    let tried = world.yard.asked().last().unwrap().spec.clone();
    assert_eq!(tried.entrypoint.last().unwrap(), "serve");
    assert_eq!(tried.ready.unwrap().command, "curl -f localhost");
    let mut child = recipe(&[("RUN", &["echo > $BOX/b"])]);
    child.from = Ground::Template("parent".into());
    let build = world.built("child", child).await;
    let made = build.made.as_ref().unwrap();
    assert_eq!(
        (made.start.as_deref(), made.ready.as_deref()),
        (Some("serve"), Some("curl -f localhost"))
    );
    let snapshot = snapshot_of(&build);
    assert!(["a", "b"].iter().all(|file| world.yard.kept(&snapshot, file).is_some()));
    world.yard.refuse("broken", "READY_CHECK_FAILED");
    let mut broken = recipe(&[]);
    broken.start = Some("broken".into());
    let build = world.build("broken", broken).await;
    let reason = build.reason.as_ref().unwrap();
    assert_eq!(reason.step.as_deref(), Some("finalize"));
    assert!(reason.message.contains("READY_CHECK_FAILED"), "{}", reason.message);
    assert!(world.said(&build).iter().any(|line| line == "said by the main program"));
}

#[tokio::test]
async fn a_start_command_alone_waits_a_moment_and_foreign_images_stay_alive() {
    let world = World::new().await;
    let mut wanted = recipe(&[]);
    wanted.start = Some("serve".into());
    world.built("app", wanted).await;
    let spec = world.service.resolve(&world.tenant, "app").await.unwrap();
    assert!(spec.ready.unwrap().command.contains("/proc/net/tcp"));
    let mut foreign = recipe(&[]);
    foreign.from = Ground::Image("example.test/python:3".into(), None);
    let build = world.built("foreign", foreign).await;
    let spec = world.service.resolve(&world.tenant, "foreign").await.unwrap();
    assert!(!spec.entrypoint.is_empty());
    snapshot_of(&build);
}

#[tokio::test]
async fn more_builds_than_places_wait_their_turn() {
    let world = World::with(|config| {
        (config.builds_at_once, config.builds_pending_max) = (1, 2);
    })
    .await;
    let gate = tempfile::tempdir().unwrap();
    let open = gate.path().join("open");
    let command = format!("echo begun; until [ -e {} ]; do sleep 0.01; done", open.display());
    let mut asked = Vec::new();
    for name in ["one", "two"] {
        let wanted = NewBuild { name: name.to_owned(), ..NewBuild::default() };
        let found = world.service.request(&world.tenant, &wanted).await.unwrap();
        let steps = recipe(&[("RUN", &[&command])]);
        world.service.begin(&world.tenant, name, &found.build.id, steps).await.unwrap();
        asked.push((found.template.id.clone(), found.build.id.clone()));
    }
    let status = |at: usize| {
        let (template, build) = &asked[at];
        world.service.build(&world.tenant, template, build).unwrap()
    };
    let begun = || world.said(&status(0)).iter().any(|line| line == "begun");
    world.until("the first one works", begun).await;
    assert_eq!((status(0).status, status(1).status), (Status::Building, Status::Waiting));
    let wanted = NewBuild { name: "three".to_owned(), ..NewBuild::default() };
    let third = world.service.request(&world.tenant, &wanted).await.unwrap();
    let refused = world.service.begin(&world.tenant, "three", &third.build.id, recipe(&[])).await;
    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Exhausted);
    std::fs::write(open, "").unwrap();
    for (template, build) in &asked {
        assert_eq!(world.finished(template, build).await.status, Status::Ready);
    }
}
