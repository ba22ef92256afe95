use super::*;
use futures_util::{FutureExt, StreamExt, stream};

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

/// What is reserved and what lies in the tenant's folder, by its ending.
fn left(uploads: &Uploads, dir: &Path) -> (u64, usize, usize) {
    let folder = dir.join("t1");
    let (drafts, kept) = (archives(&folder, "draft").count(), archives(&folder, "tar").count());
    (uploads.lane("t1").reserved(), drafts, kept)
}

#[tokio::test]
async fn uploads_on_their_way_count_and_leave_nothing_when_their_senders_go() {
    let dir = tempfile::tempdir().unwrap();
    let uploads = Arc::new(uploads(dir.path()).await);
    let tenant = TenantId::parse("t1").unwrap();
    let grant = uploads.presence(&tenant, A, NOW).await.unwrap().grant;
    let (begun, mut has_begun) = tokio::sync::mpsc::channel(1);
    let (of_task, its_grant) = (Arc::clone(&uploads), grant.clone());
    let silent = tokio::spawn(async move {
        let first = stream::once(async move {
            begun.send(()).await.unwrap();
            Ok::<_, io::Error>(Bytes::from_static(b"0"))
        });
        of_task.receive(&its_grant, A, 10, NOW, first.chain(stream::pending())).await
    });
    has_begun.recv().await.unwrap();
    assert_eq!(left(&uploads, dir.path()), (10, 1, 0));
    let full = uploads.receive(&grant, A, 6, NOW, body(&["012345"])).await.unwrap_err();
    assert_eq!((full.kind(), full.reason()), (ErrorKind::Exhausted, Some("UPLOADS_FULL")));
    uploads.receive(&grant, A, 5, NOW, body(&["01234"])).await.unwrap();
    silent.abort();
    assert!(silent.await.unwrap_err().is_cancelled());
    assert_eq!(left(&uploads, dir.path()), (0, 0, 1));
    uploads.receive(&grant, A, 10, NOW, body(&["0123456789"])).await.unwrap();
}

#[tokio::test]
async fn a_tenant_has_few_turns_and_a_short_queue() {
    let lane = Arc::new(Lane::default());
    let mut turns = Vec::new();
    for _ in 0..lane::AT_ONCE {
        turns.push(lane.turn().await.unwrap());
    }
    let mut waiting: Vec<_> =
        (lane::AT_ONCE..lane::PENDING_MAX).map(|_| Box::pin(lane.turn())).collect();
    for turn in &mut waiting {
        assert!(turn.now_or_never().is_none());
    }
    let refused = lane.turn().await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Exhausted);
    drop(turns.pop());
    waiting.remove(0).await.unwrap();
}

#[tokio::test]
async fn one_that_is_too_slow_is_given_up() {
    let dir = tempfile::tempdir().unwrap();
    let mut uploads = uploads(dir.path()).await;
    let tenant = TenantId::parse("t1").unwrap();
    let grant = uploads.presence(&tenant, A, NOW).await.unwrap().grant;
    let (short, long) = (Duration::from_millis(20), Duration::from_secs(3600));
    for (idle_max, time_max, reason) in
        [(short, long, "UPLOAD_STALLED"), (long, short, "UPLOAD_TOO_SLOW")]
    {
        uploads.bounds = Bounds { idle_max, time_max, ..Bounds::default() };
        // Pieces without bytes are no sign of life.
        let empty = stream::repeat_with(|| Ok::<_, io::Error>(Bytes::new())).then(|piece| async {
            tokio::task::yield_now().await;
            piece
        });
        let given_up = uploads.receive(&grant, A, 5, NOW, empty).await.unwrap_err();
        assert_eq!(given_up.reason(), Some(reason));
        assert_eq!(left(&uploads, dir.path()), (0, 0, 0));
    }
}

#[tokio::test]
async fn a_disk_that_is_nearly_full_takes_no_more() {
    let dir = tempfile::tempdir().unwrap();
    let mut uploads = uploads(dir.path()).await;
    let tenant = TenantId::parse("t1").unwrap();
    let grant = uploads.presence(&tenant, A, NOW).await.unwrap().grant;
    // 1000 bytes in all, of which 20 are kept.
    uploads.bounds.disk_space = |_| Ok((1000, 24));
    let at_start = uploads.receive(&grant, A, 5, NOW, body(&["01234"])).await.unwrap_err();
    assert_eq!(at_start.reason(), Some("DISK_FULL"));
    uploads.receive(&grant, A, 4, NOW, body(&["0123"])).await.unwrap();
    // Somebody else fills it while the bytes come.
    uploads.bounds.disk_check_bytes = 4;
    uploads.bounds.disk_space =
        |path| Ok((1000, if path.extension().is_some() { 19 } else { 100 }));
    let parts = ["012", "345"];
    let on_its_way = uploads.receive(&grant, A, 6, NOW, body(&parts)).await.unwrap_err();
    assert_eq!(on_its_way.reason(), Some("DISK_FULL"));
    assert_eq!(left(&uploads, dir.path()), (0, 0, 1));
}
