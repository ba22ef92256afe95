//! Tables that must be complete, and conversions that the simulated machine has no use for.

use std::collections::BTreeMap;
use std::time::Duration;

use atoll_core::lifecycle::Failure;
use atoll_core::{
    Action, Diagnostic, Error, ErrorKind, ImageSource, Lifecycle, MountSource, Phase, Sandbox,
    SandboxId, SandboxSpec, Source, TenantId, Timestamp,
};
use axum::http::{HeaderMap, header};
use serde_json::{Value, json};

use super::convert::{self, Plan};
use super::error::ApiError;
use super::marks::{Marks, OnTimeout};
use super::render;
use super::state::DoorConfig;
use super::wire::{NewSandbox, Version};

const NOW: Timestamp = Timestamp::from_micros(1_700_000_000_000_000);

fn spec() -> SandboxSpec {
    SandboxSpec::new(Source::Image(ImageSource { reference: "base".into(), auth: None }))
}

fn sandbox(spec: SandboxSpec) -> Sandbox {
    Sandbox {
        id: SandboxId::parse("0abc").unwrap(),
        tenant: TenantId::parse("alice").unwrap(),
        spec,
        created_at: NOW,
        access_token: "token".into(),
        stock_of: None,
        life: Lifecycle::new(NOW, None),
    }
}

fn plan(members: Value) -> Result<Plan, ApiError> {
    let mut body = json!({"templateID": "base"});
    body.as_object_mut().unwrap().extend(members.as_object().unwrap().clone());
    let new = NewSandbox::read(&body, Version::V2)?;
    convert::plan(&DoorConfig::default(), new, Version::V2)
}

#[test]
fn every_phase_is_running_paused_or_not_there() {
    let shown = |phase: Phase| render::state(phase).map(render::State::text);
    let running: Vec<_> =
        Phase::ALL.into_iter().filter(|phase| shown(*phase) == Some("running")).collect();
    assert_eq!(running, [Phase::Running], "only a sandbox that works is running");
    for phase in [Phase::Pausing, Phase::Paused, Phase::Resuming] {
        assert_eq!(shown(phase), Some("paused"));
    }
    assert_eq!(Phase::ALL.iter().filter(|phase| shown(**phase).is_none()).count(), 6);
}

#[test]
fn every_kind_of_error_has_a_status_that_the_contract_knows() {
    for (kind, status) in [
        (ErrorKind::Invalid, 400),
        (ErrorKind::Unauthenticated, 401),
        (ErrorKind::Forbidden, 403),
        (ErrorKind::NotFound, 404),
        (ErrorKind::Conflict, 409),
        (ErrorKind::Exhausted, 429),
        (ErrorKind::Unavailable, 503),
        (ErrorKind::Unsupported, 400),
        (ErrorKind::Internal, 500),
    ] {
        let error = ApiError::from(Error::new(kind, "said"));
        assert_eq!(error.body(), json!({"code": status, "message": "said"}));
    }
    let no_stock = Error::new(ErrorKind::Exhausted, "said").with_reason("NO_STOCK");
    let capacity = "sandbox_capacity_unavailable";
    assert_eq!(
        ApiError::from(no_stock).body(),
        json!({"code": 503, "message": "said", "error_code": capacity})
    );
    let no_pool = Error::new(ErrorKind::NotFound, "said").with_reason("NO_POOL");
    assert_eq!(ApiError::from(no_pool).body(), json!({"code": 404, "message": "said"}));
    let volume = Error::not_found("x").with_reason("VOLUME_PVC_NOT_FOUND");
    assert_eq!(ApiError::not_accepted(volume).status().as_u16(), 400);
}

#[test]
fn a_failed_start_says_whose_fault_it_is() {
    for (reason, status) in [
        ("IMAGE_NOT_FOUND", 400),
        ("IMAGE_PULL_UNAUTHORIZED", 400),
        ("IMAGE_NO_SPACE", 503),
        ("IMAGE_PULL_FAILED", 500),
        ("READY_CHECK_FAILED", 500),
        ("START_FAILED", 500),
    ] {
        let mut failed = sandbox(spec());
        failed.life.began(Action::Create, NOW);
        let diagnostic = Diagnostic::new(reason, "it broke", "mend it");
        let failure = Failure { diagnostic, transient: false };
        failed.life.failed(Action::Create, failure, NOW);
        let error = ApiError::start_failed(&failed);
        assert_eq!(error.status().as_u16(), status, "{reason}");
        for part in [reason, "it broke", "mend it"] {
            assert!(error.message().contains(part), "{}", error.message());
        }
    }
}

#[test]
fn volumes_are_asked_for_in_three_ways() {
    let prefix = "e2b.agents.kruise.io/csi";
    let config = r#"[{"pvName":"c","mountPath":"/c","subPath":"s","readOnly":true}]"#;
    let plan = plan(json!({
        "volumeMounts": [{"name": "a", "path": "/a"}],
        "metadata": {
            format!("{prefix}-volume-name"): "b",
            format!("{prefix}-mount-point"): "/b",
            format!("{prefix}-volume-config"): config,
        },
    }))
    .unwrap();
    let create = plan.create(spec(), None);
    let mut mounts: Vec<_> = create
        .spec
        .mounts
        .iter()
        .map(|mount| {
            let MountSource::Volume { name, create, delete_with_sandbox } = &mount.source else {
                panic!("{mount:?} is no volume");
            };
            assert!(!create && !delete_with_sandbox, "volumes outlive sandboxes");
            (name.as_str(), mount.target.as_str(), mount.sub_path.as_deref(), mount.read_only)
        })
        .collect();
    mounts.sort_unstable();
    let expected =
        [("a", "/a", None, false), ("b", "/b", None, false), ("c", "/c", Some("s"), true)];
    assert_eq!(mounts, expected);
    assert!(create.spec.metadata.is_empty());
    let names: std::collections::BTreeSet<_> =
        create.spec.mounts.iter().map(|mount| &mount.name).collect();
    assert_eq!(names.len(), 3, "each has a name of its own");
    let shown =
        render::listed(&DoorConfig::default(), &sandbox(create.spec), render::State::Running);
    assert_eq!(shown["volumeMounts"].as_array().unwrap().len(), 3);
}

#[test]
fn two_volumes_in_one_place_are_refused() {
    let twice = json!([{"name": "a", "path": "/a"}, {"name": "b", "path": "/a"}]);
    let error = plan(json!({"volumeMounts": twice})).unwrap_err();
    assert!(error.message().contains("volumeMounts"), "{}", error.message());
}

#[test]
fn a_template_gives_what_the_caller_leaves_out() {
    let mut template = spec();
    template.env = BTreeMap::from([("A".into(), "t".into()), ("B".into(), "t".into())]);
    template.resources.cpu_millis = Some(1000);
    let options = json!({
        "e2b.agents.kruise.io/cpu-request": "2500m",
        "e2b.agents.kruise.io/image": "other:1",
    });
    let plan = plan(json!({"envVars": {"B": "c"}, "metadata": options, "timeout": 7})).unwrap();
    let create = plan.create(template, Some("demo".into()));
    assert_eq!(create.spec.env["A"], "t");
    assert_eq!(create.spec.env["B"], "c");
    assert_eq!(create.spec.resources.cpu_millis, Some(2500), "a request raises the limit");
    let image = Source::Image(ImageSource { reference: "other:1".into(), auth: None });
    assert_eq!(create.spec.source, image);
    assert_eq!(create.claim.pool.as_deref(), Some("demo"));
    assert_eq!(create.lifetime, Some(Duration::from_secs(7)));
}

#[test]
fn marks_are_read_back_as_they_were_written() {
    for on_timeout in [
        OnTimeout::Kill,
        OnTimeout::Pause(atoll_core::Keep::Memory),
        OnTimeout::Pause(atoll_core::Keep::Files),
        OnTimeout::Never,
    ] {
        let marks = Marks {
            secure: false,
            public_traffic: false,
            deny_out: vec!["0.0.0.0/0".into(), "::/0".into()],
            mask_host: Some("a:1".into()),
            keep_paused: Some(Duration::from_secs(5)),
            idempotency: Some(("key".into(), "digest".into())),
            ..Marks::new(on_timeout)
        };
        let mut kept = spec();
        kept.extensions = marks.to_extensions();
        assert_eq!(Marks::of(&sandbox(kept)), marks);
    }
    let foreign = Marks::of(&sandbox(spec()));
    assert_eq!((foreign.on_timeout, foreign.secure), (None, true));
    assert!(!foreign.public_traffic, "its maker never opened its ports");
}

#[test]
fn clients_get_a_domain_with_names_below_it() {
    let of = |config: &DoorConfig, host: &str| {
        let headers = HeaderMap::from_iter([(header::HOST, host.parse().unwrap())]);
        render::domain(config, &headers)
    };
    let open = DoorConfig::default();
    for (host, domain) in [
        ("127.0.0.1:3000", Some("localhost:3000")),
        ("[::1]:3000", Some("localhost:3000")),
        ("localhost:3000", Some("localhost:3000")),
        ("box.example", Some("box.example")),
        ("10.0.0.5:3000", None),
        ("a b", None),
    ] {
        assert_eq!(of(&open, host).as_deref(), domain, "{host}");
    }
    let own = DoorConfig { domain: Some("own.example".into()), ..DoorConfig::default() };
    assert_eq!(of(&own, "10.0.0.5:3000").as_deref(), Some("own.example"));
}
