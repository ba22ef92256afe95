use super::*;
use futures_util::stream;

const A: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const B: &str = "bbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb";
const NOW: Timestamp = Timestamp::from_micros(1_000_000);

fn body(parts: &[&str]) -> impl Stream<Item = std::result::Result<Bytes, io::Error>> + use<> {
    let parts: Vec<_> = parts.iter().map(|part| Ok(Bytes::from((*part).to_owned()))).collect();
    stream::iter(parts)
}

async fn uploads(dir: &Path) -> Uploads {
    let mut config = TemplateConfig::new(dir);
    (config.upload_bytes_max, config.uploads_bytes_max) = (10, 15);
    Uploads::open(&config).await.unwrap()
}

#[tokio::test]
async fn an_archive_is_there_whole_or_not_at_all() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = uploads(dir.path()).await;
    let tenant = TenantId::parse("t1").unwrap();
    let asked = uploads.presence(&tenant, A, NOW).await.unwrap();
    assert!(!asked.present);
    for (parts, length) in [(&["abc"][..], 4), (&["abc", "de"], 4), (&[], 1)] {
        let short = uploads.receive(&asked.grant, A, length, NOW, body(parts)).await;
        assert_eq!(short.unwrap_err().kind(), ErrorKind::Invalid);
        assert_eq!(uploads.find(&tenant, A, NOW).await.unwrap(), None);
    }
    uploads.receive(&asked.grant, A, 5, NOW, body(&["abc", "de"])).await.unwrap();
    let path = uploads.find(&tenant, A, NOW).await.unwrap().unwrap();
    assert_eq!(std::fs::read(path).unwrap(), b"abcde");
    assert!(uploads.presence(&tenant, A, NOW).await.unwrap().present);
    let other = TenantId::parse("t2").unwrap();
    assert!(!uploads.presence(&other, A, NOW).await.unwrap().present);
    let left = std::fs::read_dir(dir.path().join("t1")).unwrap().count();
    assert_eq!(left, 1, "no draft stays");
}

#[tokio::test]
async fn a_grant_is_for_one_archive_of_one_tenant_for_a_while() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = uploads(dir.path()).await;
    let grant = uploads.presence(&TenantId::parse("t1").unwrap(), A, NOW).await.unwrap().grant;
    let late = NOW.saturating_add(GRANT_TIME + Duration::from_secs(1));
    let forged = [
        (Grant { tenant: "t2".into(), ..grant.clone() }, A, NOW),
        (Grant { until_micros: i64::MAX, ..grant.clone() }, A, NOW),
        (Grant { signature: String::new(), ..grant.clone() }, A, NOW),
        (Grant { tenant: "../x".into(), ..grant.clone() }, A, NOW),
        (grant.clone(), B, NOW),
        (grant.clone(), A, late),
    ];
    for (grant, hash, now) in forged {
        let refused = uploads.receive(&grant, hash, 1, now, body(&["x"])).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Forbidden, "{grant:?}");
    }
    let large = uploads.receive(&grant, A, 11, NOW, body(&["x"])).await.unwrap_err();
    assert_eq!(large.reason(), Some("UPLOAD_TOO_LARGE"));
    let path = uploads.receive(&grant, "../../x", 1, NOW, body(&["x"])).await.unwrap_err();
    assert_eq!(path.kind(), ErrorKind::Invalid);
}

#[tokio::test]
async fn the_oldest_archive_makes_room() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = uploads(dir.path()).await;
    let tenant = TenantId::parse("t1").unwrap();
    for (hash, now) in [(A, NOW), (B, NOW.saturating_add(Duration::from_secs(1)))] {
        let grant = uploads.presence(&tenant, hash, NOW).await.unwrap().grant;
        uploads.receive(&grant, hash, 10, now, body(&["0123456789"])).await.unwrap();
    }
    assert_eq!(uploads.find(&tenant, A, NOW).await.unwrap(), None);
    assert!(uploads.find(&tenant, B, NOW).await.unwrap().is_some());
}
