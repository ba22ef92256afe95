//! What a reader says about records it can't take.

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
