//! What every keeper of documents does.

use atoll_control::Documents;

/// Runs every case over a keeper that holds nothing yet.
///
/// # Panics
/// When a case fails.
pub async fn run(documents: &impl Documents) {
    let all = async |kind| documents.all(kind).await.expect("documents are read");
    let put = async |kind, key: &str, bytes: &[u8]| {
        documents.put(kind, key, bytes.to_vec()).await.expect("a document is written");
    };
    assert_eq!(all("thing").await, []);
    put("thing", "b", b"2").await;
    put("thing", "a", b"1").await;
    put("thing", "b", &[0, 255]).await;
    // Kinds and keys that look alike are different.
    put("things", "a", b"other").await;
    put("thin", "ga", b"other").await;
    put("thing", "", b"empty").await;
    let entry = |key: &str, bytes: &[u8]| (key.to_owned(), bytes.to_vec());
    assert_eq!(all("thing").await, [entry("", b"empty"), entry("a", b"1"), entry("b", &[0, 255])]);
    for _ in 0..2 {
        documents.remove("thing", "b").await.expect("removing twice is fine");
    }
    documents.remove("thing", "").await.expect("a document is removed");
    assert_eq!(all("thing").await, [entry("a", b"1")]);
    assert_eq!(all("things").await, [entry("a", b"other")]);
}
