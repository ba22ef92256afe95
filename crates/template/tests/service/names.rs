use std::time::Duration;

use atoll_control::{Control, Create, Templates};
use atoll_core::{ErrorKind, SandboxSpec, Source, TemplateOrigin};
use atoll_template::{BuiltIn, NewBuild, Progress, TemplateConfig, TemplateService};
use tokio::sync::watch;

use crate::support::{World, recipe, snapshot_of, tenant};
use crate::yard::NOW;

#[tokio::test]
async fn base_is_always_there() {
    let world = World::new().await;
    let spec = world.service.resolve(&world.tenant, "base").await.unwrap();
    assert!(matches!(&spec.source, Source::Image(image) if image.reference == "base"));
    assert_eq!(spec.guest.user.as_deref(), Some("user"));
    assert_eq!(spec.guest.workdir.as_deref(), Some("/home/user"));
    let origin = spec.template.unwrap();
    assert_eq!((origin.id.len(), origin.alias.as_deref()), (20, Some("base")));
    let by_id = world.service.resolve(&world.tenant, &origin.id).await.unwrap();
    assert_eq!(by_id.template.unwrap().id, origin.id);
    for (wrong, kind) in [("base:v9", ErrorKind::NotFound), ("a b", ErrorKind::Invalid)] {
        assert_eq!(world.service.resolve(&world.tenant, wrong).await.unwrap_err().kind(), kind);
    }
    let mine = world.service.remove(&world.tenant, "base").await.unwrap_err();
    assert_eq!(mine.kind(), ErrorKind::Forbidden);
}

#[tokio::test]
async fn names_ids_namespaces_and_tags_lead_to_a_build() {
    let world = World::new().await;
    let one = world.built("app:v1", recipe(&[("RUN", &["echo 1 > $BOX/a"])])).await;
    let two = world.built("app:v2", recipe(&[("RUN", &["echo 2 > $BOX/a"])])).await;
    assert_eq!(one.template, two.template);
    let build = |reference: String| {
        let service = world.service.clone();
        async move {
            let spec = service.resolve(&tenant("acme"), &reference).await;
            spec.map(|spec| spec.template.unwrap().build).map_err(|error| error.to_string())
        }
    };
    assert_eq!(build("app:v1".into()).await.unwrap(), one.id);
    assert_eq!(build("acme/App:V2".into()).await.unwrap(), two.id);
    assert_eq!(build(format!("{}:v1", one.template)).await.unwrap(), one.id);
    let missing = "tag 'default' does not exist for template 'app'";
    assert_eq!(build("app".into()).await.unwrap_err(), missing);
    assert_eq!(build("nope".into()).await.unwrap_err(), "template 'nope' not found");
    let (tags, tagged) = world
        .service
        .assign_tags(&world.tenant, "app:v1", &["Default".into(), "prod".into()])
        .await
        .unwrap();
    assert_eq!((tags, &tagged.id), (vec!["default".to_owned(), "prod".to_owned()], &one.id));
    assert_eq!(build("app".into()).await.unwrap(), one.id);
    world.service.remove_tags(&world.tenant, "app", &["prod".into()]).await.unwrap();
    assert!(build("app:prod".into()).await.is_err());
    let kept =
        world.service.remove_tags(&world.tenant, "app", &["default".into()]).await.unwrap_err();
    assert_eq!(kept.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn other_tenants_see_nothing() {
    let world = World::new().await;
    let build = world.built("app", recipe(&[("RUN", &["true"])])).await;
    let other = tenant("other");
    for reference in ["app", "acme/app", &build.template] {
        let error = world.service.resolve(&other, reference).await.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::NotFound, "{reference}");
        assert_eq!(world.service.own(&other, reference).unwrap_err().kind(), ErrorKind::NotFound);
    }
    assert!(world.service.build(&other, &build.template, &build.id).is_err());
    assert!(world.service.templates(&other).is_empty());
    let shared = world.service.set_public(&world.tenant, "app", true).await.unwrap_err();
    assert_eq!(shared.kind(), ErrorKind::Unsupported, "their snapshots belong to one tenant");
}

#[tokio::test]
async fn a_public_template_is_for_everybody_where_builders_have_a_tenant() {
    let keeper = tenant("keeper");
    let world = World::with(|config| config.builder_tenant = Some(keeper.clone())).await;
    let build = world.built("app", recipe(&[("RUN", &["true"])])).await;
    assert!(world.service.resolve(&tenant("other"), "acme/app").await.is_err());
    world.service.set_public(&world.tenant, "app", true).await.unwrap();
    let spec = world.service.resolve(&tenant("other"), "acme/app").await.unwrap();
    assert_eq!(spec.template.unwrap().build, build.id);
    let change = world.service.set_public(&tenant("other"), "acme/app", false).await.unwrap_err();
    assert_eq!(change.kind(), ErrorKind::Forbidden);
    let snapshot = atoll_core::SnapshotId::parse(&snapshot_of(&build)).unwrap();
    assert_eq!(world.yard.get_snapshot(&keeper, &snapshot).await.unwrap().tenant, keeper);
}

#[tokio::test]
async fn a_template_in_use_stays() {
    let world = World::new().await;
    world.built("app", recipe(&[("RUN", &["true"])])).await;
    let spec = world.service.resolve(&world.tenant, "app").await.unwrap();
    let id = spec.template.as_ref().unwrap().id.clone();
    let sandbox = world.yard.create(&world.tenant, Create::new(spec)).await.unwrap();
    world.service.spawned(&id);
    let shown = world.service.template(&world.tenant, "app").unwrap();
    assert_eq!((shown.spawn_count, shown.last_spawned_at.is_some()), (1, true));
    let used = world.service.remove(&world.tenant, "app").await.unwrap_err();
    assert_eq!(used.kind(), ErrorKind::Invalid);
    world.yard.kill(&world.tenant, &sandbox.id).await.unwrap();
    world.service.remove(&world.tenant, "app").await.unwrap();
    assert!(world.service.template(&world.tenant, "app").is_err());
}

#[tokio::test]
async fn snapshots_are_templates_too() {
    let world = World::new().await;
    let mut spec =
        SandboxSpec::new(Source::Snapshot(world.yard.add_snapshot(&world.tenant, "gone0", None)));
    spec.env.insert("A".into(), "1".into());
    spec.guest.user = Some("joe".into());
    spec.template =
        Some(TemplateOrigin { id: "t".into(), alias: Some("base".into()), build: "b".into() });
    let named = world.yard.add_snapshot(&world.tenant, "gone1", Some("snap"));
    let plain = world.yard.add_snapshot(&world.tenant, "gone2", None);
    world.service.remember_snapshot(&world.tenant, &named, &spec).await.unwrap();
    for reference in ["snap", "acme/snap:default", named.as_str()] {
        let found = world.service.resolve(&world.tenant, reference).await.unwrap();
        assert!(matches!(&found.source, Source::Snapshot(id) if *id == named), "{reference}");
        assert_eq!((found.env["A"].as_str(), found.guest.user.as_deref()), ("1", Some("joe")));
        assert_eq!(found.template, spec.template);
    }
    let found = world.service.resolve(&world.tenant, &format!("{plain}:default")).await.unwrap();
    assert_eq!(found.guest.user.as_deref(), Some("user"), "nothing is known of its origin");
    assert!(world.service.resolve(&tenant("other"), plain.as_str()).await.is_err());
    world.service.remove(&world.tenant, "acme/snap:default").await.unwrap();
    let gone = world.service.remove(&world.tenant, "acme/snap:default").await.unwrap_err();
    assert_eq!(gone.kind(), ErrorKind::NotFound);
}

#[tokio::test]
async fn a_built_in_template_is_waited_for() {
    let world = World::new().await;
    let (told, state) = watch::channel(Progress::Building("3 of 5".into()));
    let built_in = BuiltIn {
        name: "code-interpreter".into(),
        aliases: vec!["code-interpreter-v1".into()],
        image: "code-interpreter".into(),
        state,
    };
    let dir = tempfile::tempdir().unwrap();
    let mut config = TemplateConfig::new(dir.path());
    config.built_in_patience = Duration::from_millis(20);
    let store = std::sync::Arc::new(atoll_store::RedbStore::in_memory().unwrap());
    let now = std::sync::Arc::new(|| NOW);
    let service = TemplateService::start(config, world.yard.clone(), store, vec![built_in], now);
    let service = service.await.unwrap();
    let early = service.resolve(&world.tenant, "code-interpreter-v1").await.unwrap_err();
    assert_eq!(early.reason(), Some("TEMPLATE_BUILDING"));
    assert!(early.message().contains("3 of 5"), "{early}");
    told.send(Progress::Ready).unwrap();
    let spec = service.resolve(&world.tenant, "code-interpreter-v1").await.unwrap();
    assert_eq!(spec.template.unwrap().alias.as_deref(), Some("code-interpreter-v1"));
    told.send(Progress::Failed("no network".into())).unwrap();
    let failed = service.resolve(&world.tenant, "code-interpreter").await.unwrap_err();
    assert_eq!(failed.reason(), Some("TEMPLATE_FAILED"));
}

#[tokio::test]
async fn limits_are_told() {
    let world = World::with(|config| {
        (config.templates_max, config.builds_kept_max, config.tags_max) = (1, 2, 2);
    })
    .await;
    let ask = |name: &str| NewBuild { name: name.to_owned(), ..NewBuild::default() };
    let request = |wanted: NewBuild| {
        let service = world.service.clone();
        async move { service.request(&tenant("acme"), &wanted).await }
    };
    let first = request(ask("one")).await.unwrap();
    assert_eq!(request(ask("two")).await.unwrap_err().kind(), ErrorKind::Exhausted);
    for _ in 0..4 {
        request(ask("one")).await.unwrap();
    }
    assert_eq!(world.service.builds(&first.template).len(), 2, "old builds make room");
    let bad = [
        NewBuild { cpu_count: Some(3), ..ask("one") },
        NewBuild { memory_mib: Some(127), ..ask("one") },
        NewBuild { tags: vec!["a b".into()], ..ask("one") },
        ask("other/one"),
    ];
    for wanted in bad {
        assert_eq!(
            request(wanted.clone()).await.unwrap_err().kind(),
            ErrorKind::Invalid,
            "{wanted:?}"
        );
    }
    let tags = NewBuild { tags: vec!["a".into(), "b".into(), "c".into()], ..ask("one") };
    assert_eq!(request(tags).await.unwrap_err().kind(), ErrorKind::Exhausted);
}
