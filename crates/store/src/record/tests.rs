//! What a reader says about records it can't take.

use std::time::Duration;

use atoll_core::{Expiry, GuestDefaults, Keep};

use super::{sandbox_from_bytes, snapshot_from_bytes};

#[test]
fn a_newer_record_is_refused_with_a_remedy() {
    let error = sandbox_from_bytes(br#"{"version":9,"record":{"shape":"unknown"}}"#).unwrap_err();
    assert!(error.contains("version 9") && error.contains("newer server"), "{error}");
}

#[test]
fn a_damaged_record_is_an_error_not_a_panic() {
    for bytes in [&b""[..], b"{", b"[]", br#"{"version":1}"#, br#"{"version":1,"record":{}}"#] {
        assert!(sandbox_from_bytes(bytes).unwrap_err().contains("damaged"));
        assert!(snapshot_from_bytes(bytes).unwrap_err().contains("damaged"));
    }
}

#[test]
fn a_record_whose_id_is_no_id_is_refused() {
    let bytes = br#"{"version":1,"record":{"id":"../x","tenant":"t","sandbox":"s","name":null,
        "state":"ready","changed_at":1,"created_at":1}}"#;
    assert!(snapshot_from_bytes(bytes).is_err());
}

#[test]
fn a_record_of_an_older_server_still_reads() {
    let bytes = br#"{"version":1,"record":{"id":"s1","tenant":"t1","spec":{
        "source":{"image":"any"},"cpu_millis":null,"memory_bytes":null,"pids":null,
        "platform":null,"isolation":"default","network":"internet"},"created_at":1,
        "access_token":"x","life":{"desired":"running","phase":"running","holds":true,
        "generation":3,"deadline":{"at":9,"then":"pause"},"changed_at":2,"attempts":0,
        "retry_at":null,"diagnostic":null,"timeline":[]}}}"#;
    let sandbox = sandbox_from_bytes(bytes).unwrap();
    let pause = Expiry::Pause(Keep::Memory);
    assert_eq!((sandbox.life.keep(), sandbox.life.expiry()), (Keep::Memory, Some(pause)));
    assert_eq!(sandbox.life.lifetime(), Some(Duration::from_micros(7)), "what was left");
    let spec = &sandbox.spec;
    assert_eq!((&spec.guest, &spec.ready, spec.wake_for), (&GuestDefaults::default(), &None, None));
    assert_eq!((&sandbox.stock_of, &spec.template), (&None, &None));
}
