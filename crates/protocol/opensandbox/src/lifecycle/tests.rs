//! Tables that must be complete.

use std::collections::BTreeMap;

use atoll_core::lifecycle::Failure;
use atoll_core::{
    Action, Diagnostic, Error, ErrorKind, Lifecycle, Phase, Sandbox, SandboxId, TenantId, Timestamp,
};
use axum::http::StatusCode;
use serde_json::{Value, json};

use super::error::{ApiError, Doing};
use super::state::DoorConfig;
use super::{convert, form, render, time, wire};

const STATES: [&str; 8] =
    ["Pending", "Running", "Pausing", "Paused", "Resuming", "Stopping", "Terminated", "Failed"];

#[test]
fn every_phase_is_shown_as_a_state_of_the_contract() {
    for phase in Phase::ALL {
        assert!(STATES.contains(&render::state(phase).0), "{phase:?}");
    }
    let running: Vec<_> =
        Phase::ALL.into_iter().filter(|phase| render::state(*phase).0 == "Running").collect();
    assert_eq!(running, [Phase::Running], "only a sandbox that works is Running");
}

#[test]
fn every_kind_of_error_has_a_status_and_a_code() {
    let doings = [
        Doing::Create,
        Doing::Read,
        Doing::Pause,
        Doing::Resume,
        Doing::Renew,
        Doing::TakeSnapshot,
        Doing::ReadSnapshot,
        Doing::DeleteSnapshot,
    ];
    for kind in ErrorKind::ALL {
        for doing in doings {
            let error = ApiError::from_control(doing, &Error::new(kind, "said"));
            assert!(!error.code().is_empty());
            assert!(error.status().is_client_error() || error.status().is_server_error());
        }
    }
}

#[test]
fn documented_cases_have_their_documented_codes() {
    for (doing, error, status, code) in [
        (Doing::Read, Error::not_found("x"), 404, "DOCKER::SANDBOX_NOT_FOUND"),
        (Doing::Pause, Error::conflict("x"), 409, "DOCKER::SANDBOX_NOT_RUNNING"),
        (Doing::Resume, Error::conflict("x"), 409, "DOCKER::SANDBOX_NOT_PAUSED"),
        (Doing::Create, Error::not_found("x"), 404, "SNAPSHOT::NOT_FOUND"),
        (Doing::Create, Error::conflict("x"), 409, "SNAPSHOT::NOT_READY"),
        (Doing::Create, Error::invalid("f", "x"), 400, "SANDBOX::INVALID_PARAMETER"),
        (Doing::TakeSnapshot, Error::conflict("x"), 409, "SNAPSHOT::INVALID_SOURCE_STATE"),
        (Doing::TakeSnapshot, Error::unsupported("x"), 501, "SNAPSHOT::NOT_IMPLEMENTED"),
        (Doing::ReadSnapshot, Error::not_found("x"), 404, "SNAPSHOT::NOT_FOUND"),
        (Doing::DeleteSnapshot, Error::conflict("x"), 409, "SNAPSHOT::DELETE_CONFLICT"),
        (Doing::Read, Error::internal("x"), 500, "GENERAL::UNKNOWN_ERROR"),
        (
            Doing::Create,
            Error::invalid("f", "x").with_reason("VOLUME_HOST_PATH_NOT_ALLOWED"),
            400,
            "VOLUME::HOST_PATH_NOT_ALLOWED",
        ),
        (
            Doing::Create,
            Error::not_found("x").with_reason("VOLUME_PVC_NOT_FOUND"),
            400,
            "VOLUME::PVC_NOT_FOUND",
        ),
        (
            Doing::Read,
            Error::new(ErrorKind::Unauthenticated, "x").with_reason("MISSING_API_KEY"),
            401,
            "MISSING_API_KEY",
        ),
    ] {
        let answer = ApiError::from_control(doing, &error);
        assert_eq!((answer.status().as_u16(), answer.code()), (status, code), "{doing:?}");
    }
}

fn labels(key: &str, value: &str) -> BTreeMap<String, String> {
    BTreeMap::from([(key.to_owned(), value.to_owned())])
}

#[test]
fn labels_follow_the_rules_of_kubernetes() {
    let long = "a".repeat(63);
    for (key, value) in [
        ("a", ""),
        ("a", "b"),
        ("A_b.c-d", "1.2_3-4"),
        ("example.com/name", "x"),
        ("a-b.c/n", "x"),
        (&long, &long),
    ] {
        convert::labels::check_new(&labels(key, value)).unwrap();
    }
    let too_long = "a".repeat(64);
    for (key, value) in [
        ("", "x"),
        ("-a", "x"),
        ("a-", "x"),
        ("a b", "x"),
        ("/a", "x"),
        ("a/", "x"),
        ("a/b/c", "x"),
        ("Prefix/a", "x"),
        ("a..b/c", "x"),
        (&too_long, "x"),
        ("a", "-x"),
        ("a", "x."),
        ("a", "x y"),
        ("a", &too_long),
        ("ä", "x"),
        ("opensandbox.io/x", "x"),
    ] {
        let error = convert::labels::check_new(&labels(key, value)).unwrap_err();
        assert_eq!(error.code(), "SANDBOX::INVALID_METADATA_LABEL", "{key:?}={value:?}");
    }
}

#[test]
fn a_patch_names_the_reserved_prefix_with_the_bare_code_and_keeps_the_limit() {
    let reserved = BTreeMap::from([("opensandbox.io/x".to_owned(), None)]);
    let error = convert::labels::check_patch(&BTreeMap::new(), &reserved).unwrap_err();
    assert_eq!(error.code(), "INVALID_METADATA_LABEL");
    let present: BTreeMap<_, _> = (0..64).map(|n| (format!("k{n}"), String::new())).collect();
    let one_more = BTreeMap::from([("new".to_owned(), Some(String::new()))]);
    assert!(convert::labels::check_patch(&present, &one_more).is_err());
    let swapped =
        BTreeMap::from([("new".to_owned(), Some(String::new())), ("k0".to_owned(), None)]);
    convert::labels::check_patch(&present, &swapped).unwrap();
}

fn body() -> Value {
    json!({
        "image": {"uri": "base"},
        "entrypoint": ["sleep", "1"],
        "resourceLimits": {"cpu": "1"},
        "timeout": 600,
    })
}

fn with(name: &str, value: Value) -> Value {
    let mut body = body();
    body[name] = value;
    body
}

fn create(body: &Value, config: &DoorConfig) -> Result<atoll_control::Create, ApiError> {
    convert::create(config, wire::CreateSandbox::read(body)?)
}

#[test]
fn bodies_that_do_not_fit_the_schema_are_422() {
    for (name, value) in [
        ("image", json!("base")),
        ("image", json!({})),
        ("image", json!({"uri": " "})),
        ("image", json!({"uri": "a", "auth": {"username": "u"}})),
        ("snapshotId", json!("abc")),
        ("timeout", json!(59)),
        ("timeout", json!("x")),
        ("timeout", json!(60.5)),
        ("entrypoint", json!([])),
        ("entrypoint", json!([1])),
        ("entrypoint", Value::Null),
        ("resourceLimits", Value::Null),
        ("resourceLimits", json!({"cpu": 1})),
        ("env", json!({"A": 1})),
        ("env", json!({"OPENSANDBOX_LIFECYCLE": "x"})),
        ("metadata", json!({"a": null})),
        ("networkPolicy", json!({"defaultAction": "maybe"})),
        ("networkPolicy", json!({"egress": [{}]})),
        ("volumes", json!([{"name": "v"}])),
        ("volumes", json!({})),
    ] {
        let error = create(&with(name, value.clone()), &DoorConfig::default()).unwrap_err();
        assert_eq!(error.status(), StatusCode::UNPROCESSABLE_ENTITY, "{name}: {value}");
    }
    let not_an_object = create(&json!([]), &DoorConfig::default()).unwrap_err();
    assert_eq!(not_an_object.status(), StatusCode::UNPROCESSABLE_ENTITY);
}

#[test]
fn what_the_server_cannot_do_is_refused_and_not_ignored() {
    let unsupported = "SANDBOX::API_NOT_SUPPORTED";
    for (name, value, code) in [
        ("extensions", json!({"poolRef": "p"}), "SANDBOX::UNSUPPORTED_POOL_REF"),
        ("networkPolicy", json!({}), unsupported),
        ("networkPolicy", json!({"defaultAction": "deny"}), unsupported),
        (
            "networkPolicy",
            json!({"defaultAction": "allow", "egress": [{"action": "deny", "target": "a.b"}]}),
            unsupported,
        ),
        ("credentialProxy", json!({"enabled": true}), unsupported),
        ("secureAccess", json!(true), unsupported),
        ("lifecycle", json!({"preStart": {"command": ["x"]}}), unsupported),
        ("extensions", json!({"bootstrap.execd.isolation": "enable"}), unsupported),
        ("extensions", json!({"access.renew.extend.seconds": "300"}), unsupported),
        ("extensions", json!({"access.renew.extend.seconds": "299"}), "SANDBOX::INVALID_PARAMETER"),
        ("resourceLimits", json!({"gpu": "1"}), "SANDBOX::INVALID_PARAMETER"),
        ("platform", json!({"os": "windows", "arch": "amd64"}), "SANDBOX::INVALID_PARAMETER"),
        ("timeout", json!(86_401), "SANDBOX::INVALID_PARAMETER"),
        ("timeout", Value::Null, "SANDBOX::INVALID_PARAMETER"),
        ("env", json!({"A=B": "x"}), "SANDBOX::INVALID_PARAMETER"),
        ("entrypoint", json!(["a\0b"]), "SANDBOX::INVALID_PARAMETER"),
    ] {
        let error = create(&with(name, value.clone()), &DoorConfig::default()).unwrap_err();
        let found = (error.status(), error.code());
        assert_eq!(found, (StatusCode::BAD_REQUEST, code), "{name}: {value}");
    }
}

#[test]
fn templates_are_refused_with_their_own_status() {
    let error = create(&with("templateId", json!("tpl")), &DoorConfig::default()).unwrap_err();
    let found = (error.status(), error.code());
    assert_eq!(found, (StatusCode::NOT_IMPLEMENTED, "FSB::API_NOT_SUPPORTED"));
}

#[test]
fn a_creation_that_failed_says_why_and_what_to_do() {
    let now = Timestamp::from_micros(1);
    let spec = create(&body(), &DoorConfig::default()).unwrap().spec;
    for (reason, code) in [
        ("IMAGE_PULL_FAILED", "DOCKER::SANDBOX_IMAGE_PULL_FAILED"),
        ("AGENT_SILENT", "DOCKER::SANDBOX_START_FAILED"),
        ("ENTRYPOINT_NOT_STARTED", "DOCKER::SANDBOX_START_FAILED"),
    ] {
        let mut life = Lifecycle::new(now, None);
        let diagnostic = Diagnostic::new(reason, "what happened", "what to do");
        life.failed(Action::Create, Failure { diagnostic, transient: false }, now);
        let sandbox = Sandbox {
            id: SandboxId::parse("box1").unwrap(),
            tenant: TenantId::parse("t").unwrap(),
            spec: spec.clone(),
            created_at: now,
            access_token: String::new(),
            stock_of: None,
            life,
        };
        let error = ApiError::start_failed(&sandbox);
        assert_eq!((error.status().as_u16(), error.code()), (500, code));
        for part in ["box1", "what happened", "what to do"] {
            assert!(error.message().contains(part), "{}", error.message());
        }
        let shown = render::sandbox(&sandbox);
        assert_eq!(shown["status"]["state"], "Failed");
        assert_eq!(shown["status"]["reason"], reason);
    }
}

#[test]
fn harmless_forms_are_accepted() {
    for (name, value) in [
        ("timeout", json!("600")),
        ("timeout", json!(600.0)),
        ("networkPolicy", json!({"defaultAction": "allow", "egress": []})),
        ("networkPolicy", Value::Null),
        ("credentialProxy", json!({"enabled": false})),
        ("secureAccess", json!(false)),
        ("lifecycle", json!({})),
        ("env", json!({"A": null})),
        ("extensions", json!({"unknown.key": "x"})),
        ("surprise", json!({"x": 1})),
    ] {
        create(&with(name, value.clone()), &DoorConfig::default())
            .unwrap_or_else(|error| panic!("{name}: {value}: {error:?}"));
    }
    let endless = DoorConfig { allow_no_expiry: true, ..DoorConfig::default() };
    assert_eq!(create(&with("timeout", Value::Null), &endless).unwrap().lifetime, None);
}

#[test]
fn volumes_are_checked_one_by_one() {
    let config = DoorConfig { allowed_host_paths: vec!["/srv/ok".into()], ..DoorConfig::default() };
    let volume = |change: Value| {
        let mut volume = json!({"name": "v", "mountPath": "/mnt", "host": {"path": "/srv/ok/a"}});
        for (key, value) in change.as_object().unwrap() {
            volume[key] = value.clone();
        }
        volume
    };
    assert_eq!(
        create(&with("volumes", json!([volume(json!({}))])), &config).unwrap().spec.mounts.len(),
        1
    );
    for (change, code) in [
        (json!({"name": "V"}), "VOLUME::INVALID_NAME"),
        (json!({"mountPath": "mnt"}), "VOLUME::INVALID_MOUNT_PATH"),
        (json!({"mountPath": "/a/../b"}), "VOLUME::INVALID_MOUNT_PATH"),
        (json!({"subPath": "../x"}), "VOLUME::INVALID_SUB_PATH"),
        (json!({"subPath": "/x"}), "VOLUME::INVALID_SUB_PATH"),
        (json!({"host": null}), "VOLUME::INVALID_BACKEND"),
        (json!({"pvc": {"claimName": "c"}}), "VOLUME::INVALID_BACKEND"),
        (json!({"host": {"path": "x"}}), "VOLUME::INVALID_HOST_PATH"),
        (json!({"host": {"path": "/srv/ok/../secret"}}), "VOLUME::INVALID_HOST_PATH"),
        (json!({"host": {"path": "/srv/okay"}}), "VOLUME::HOST_PATH_NOT_ALLOWED"),
        (json!({"host": null, "pvc": {"claimName": "A"}}), "VOLUME::INVALID_PVC_NAME"),
        (json!({"host": null, "ossfs": {}}), "VOLUME::UNSUPPORTED_BACKEND"),
    ] {
        let error = create(&with("volumes", json!([volume(change.clone())])), &config).unwrap_err();
        assert_eq!(error.code(), code, "{change}");
    }
    let twice = json!([volume(json!({})), volume(json!({}))]);
    assert_eq!(
        create(&with("volumes", twice), &config).unwrap_err().code(),
        "VOLUME::DUPLICATE_NAME"
    );
}

#[test]
fn only_the_client_s_own_extensions_are_kept() {
    let extensions = json!({"opensandbox.extensions.a": "1", "other": "2"});
    let create = create(&with("extensions", extensions), &DoorConfig::default()).unwrap();
    let kept: Vec<_> = create.spec.extensions.keys().map(String::as_str).collect();
    assert_eq!(kept, ["opensandbox.extensions.a"]);
}

#[test]
fn both_encodings_of_a_metadata_filter_mean_the_same() {
    for query in ["metadata=p%2520j%3Da%26t%3Dx%253Dy", "metadata=p%20j%3Da%26t%3Dx%3Dy"] {
        let text = form::Query::parse(Some(query));
        let pairs = form::strict_pairs(text.last("metadata").unwrap()).unwrap();
        let expected = [("p j", "a"), ("t", "x=y")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        assert_eq!(pairs, expected, "{query}");
    }
    assert_eq!(form::strict_pairs("novalue"), None);
    assert_eq!(form::strict_pairs("a="), Some(vec![("a".to_owned(), String::new())]));
}

#[test]
fn times_are_read_in_every_form_and_written_in_one() {
    let written = "2026-11-15T06:59:09.124874Z";
    for text in [
        written,
        "2026-11-15T06:59:09.124874+00:00",
        "2026-11-15T08:59:09.124874+02:00",
        "2026-11-15T06:59:09.124874",
        "2026-11-15 06:59:09.124874",
    ] {
        assert_eq!(time::text(time::parse(&json!(text)).unwrap()), written, "{text}");
    }
    assert_eq!(time::text(time::parse(&json!(0)).unwrap()), "1970-01-01T00:00:00.000000Z");
    for bad in [json!("soon"), json!(""), json!(null), json!([]), json!("2026-13-01T00:00:00Z")] {
        assert_eq!(time::parse(&bad), None, "{bad}");
    }
}
