use super::*;
use serde_json::json;

fn descriptor(os: &str, architecture: &str) -> serde_json::Value {
    let digest = Digest::of(format!("{os}/{architecture}").as_bytes()).to_string();
    json!({"digest": digest, "size": 1, "platform": {"os": os, "architecture": architecture}})
}

fn index(manifests: &[serde_json::Value]) -> Vec<Descriptor> {
    let text = json!({"schemaVersion": 2, "manifests": manifests}).to_string();
    document("app", text.as_bytes()).unwrap().manifests.unwrap()
}

#[test]
fn the_manifest_for_this_machine_is_chosen() {
    let manifests = index(&[
        descriptor("unknown", "unknown"),
        descriptor("windows", architecture()),
        descriptor("linux", architecture()),
    ]);
    let chosen = choose("app", &manifests).unwrap().digest("app").unwrap();
    assert_eq!(chosen, Digest::of(format!("linux/{}", architecture()).as_bytes()));
}

#[test]
fn a_missing_platform_names_what_is_offered() {
    let manifests = index(&[descriptor("linux", "sparc"), descriptor("unknown", "unknown")]);
    let error = choose("app", &manifests).unwrap_err().to_string();
    assert!(error.contains("app") && error.contains("linux/sparc"), "{error}");
    assert!(!error.contains("unknown"), "{error}");
}

#[test]
fn a_configuration_for_another_machine_is_refused() {
    let text = json!({"os": "linux", "architecture": "sparc", "rootfs": {"diff_ids": []}});
    let error = config("app", text.to_string().as_bytes()).unwrap_err();
    assert!(matches!(error, Error::Platform { .. }), "{error}");
}

#[test]
fn defaults_of_processes_are_read() {
    let text = json!({
        "os": "linux", "architecture": architecture(), "rootfs": {"diff_ids": [Digest::of(b"x").to_string()]},
        "config": {"Env": ["A=1=2", "B="], "Entrypoint": ["/init"], "Cmd": null, "User": "", "WorkingDir": "/srv"}
    });
    let (config, diff_ids) = config("app", text.to_string().as_bytes()).unwrap();
    assert_eq!(config.env, [("A".into(), "1=2".into()), ("B".into(), String::new())]);
    assert_eq!((config.entrypoint, config.cmd), (vec!["/init".to_owned()], vec![]));
    assert_eq!((config.working_dir.as_deref(), config.user), (Some("/srv"), None));
    assert_eq!(diff_ids, [Digest::of(b"x")]);
}

#[test]
fn damaged_metadata_is_refused_in_words() {
    for (bytes, word) in
        [(&b"<html>"[..], "not valid"), (br#"{"schemaVersion":1}"#, "schema version 1")]
    {
        let error = document("app", bytes).unwrap_err().to_string();
        assert!(error.contains(word), "{error}");
    }
    let odd = index(&[json!({"digest": "sha512:00"})]);
    assert!(odd[0].digest("app").unwrap_err().to_string().contains("sha512:00"));
}
