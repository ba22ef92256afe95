//! What stays when nothing runs: sandboxes that rest, volumes, and memory given back.

use std::path::Path;
use std::time::Duration;

use atoll_control::Volumes;
use atoll_core::{
    Action, ErrorKind, Keep, Mount, MountSource, Observed, Sandbox, Source, TenantId, Wish,
};
use atoll_e2e::leftovers;
use atoll_e2e::programs::Programs;
use atoll_engine::Runtime;
use atoll_runtime_local::{LocalConfig, LocalRuntime, Uplink};
use atoll_testkit::{Seeded, eventually, sample};

async fn start(data: &Path) -> LocalRuntime {
    let programs = Programs::from_env().expect("the programs under test");
    let mut config = LocalConfig::new(data, &programs.atoll);
    config.agent = programs.agent;
    config.network.uplink = Uplink::None;
    let local = LocalRuntime::start(config).await.expect("the runtime starts");
    local.prefetch("base").await.expect("the image is made");
    local
}

fn sandbox(name: &str, script: &str) -> Sandbox {
    let mut sandbox = sample::sandbox(name, "tenant");
    sandbox.spec = sample::spec("base");
    sandbox.spec.entrypoint = ["sh", "-c", script].map(str::to_owned).to_vec();
    let life = &mut sandbox.life;
    life.began(Action::Create, sample::NOW);
    life.observe(&Observed::Running, sample::NOW);
    life.request(Wish::Pause(Keep::Files), sample::NOW).expect("it runs");
    sandbox
}

async fn apply(local: &LocalRuntime, sandbox: &Sandbox, action: Action, expected: Observed) {
    let seen = local.apply(sandbox, action).await;
    assert_eq!(seen.unwrap_or_else(|error| panic!("{action:?}: {error:?}")), expected);
}

async fn log_has(local: &LocalRuntime, sandbox: &Sandbox, expected: &str) {
    eventually("the log has it", async || {
        let log = local.logs(&sandbox.id, 4096).await.ok()?;
        String::from_utf8_lossy(&log.bytes).contains(expected).then_some(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_rests_outlives_everything_but_its_folder() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let script = "cat /root/mark; echo kept > /root/mark; echo written; sleep 1000";
    let one = sandbox("rests", script);
    let mark = data.join("sandboxes/rests/resting.json");

    let local = start(&data).await;
    apply(&local, &one, Action::Create, Observed::Running).await;
    log_has(&local, &one, "written\n").await;
    // A server that died just after it had begun: the sandbox still runs.
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").expect("Linux");
    let begun = format!(r#"{{"boot":"{}","complete":false}}"#, boot.trim());
    std::fs::write(&mark, &begun).expect("a mark");
    drop(local);
    let local = start(&data).await;
    assert_eq!(local.observe(&one.id).await.expect("it is seen"), Observed::Running);
    apply(&local, &one, Action::Pause, Observed::Paused).await;
    log_has(&local, &one, "written\n").await;
    let refused = local.usage(&one.id).await.map_err(|error| error.kind());
    assert_eq!(refused.err(), Some(ErrorKind::Conflict), "nothing runs");
    local.close();
    drop(local);
    leftovers::none(&data).expect("a sandbox that rests has nothing but its folder");

    // Nothing of this start of the machine is left, as after another one.
    let local = start(&data).await;
    let listed = local.list().await.expect("it can be listed");
    assert_eq!(listed, [(one.id.clone(), Observed::Paused)]);
    let snapshot = atoll_core::SnapshotId::parse("keep").expect("an id");
    local.snapshot(&one.id, &snapshot).await.expect("files can be kept while it rests");
    let mut copy = sandbox("copy", "cat /root/mark; sleep 1000");
    copy.spec.source = Source::Snapshot(snapshot);
    apply(&local, &copy, Action::Create, Observed::Running).await;
    log_has(&local, &copy, "kept\n").await;

    // A server that died while it was resumed.
    apply(&local, &one, Action::Resume, Observed::Running).await;
    log_has(&local, &one, "kept\n").await;
    std::fs::write(&mark, begun.replace("false", "true")).expect("a mark");
    std::fs::remove_file(mark.with_file_name("answered")).expect("it has answered");
    drop(local);
    let local = start(&data).await;
    assert_eq!(local.observe(&one.id).await.expect("it is seen"), Observed::Paused);
    apply(&local, &one, Action::Resume, Observed::Running).await;
    assert_eq!(local.observe(&one.id).await.expect("it is seen"), Observed::Running);

    // Files that were not on the disk when the machine stopped are not trusted.
    apply(&local, &one, Action::Pause, Observed::Paused).await;
    std::fs::write(&mark, r#"{"boot":"another","complete":false}"#).expect("a mark");
    let lost = local.apply(&one, Action::Resume).await.expect_err("they may be lost");
    assert_eq!((lost.0.diagnostic.reason.as_str(), lost.0.transient), ("FILES_LOST", false));
    for gone in [&one, &copy] {
        apply(&local, gone, Action::Remove, Observed::Absent).await;
    }
    local.close();
    drop(local);
    leftovers::none(&data).expect("nothing is left");
}

/// A server that goes away at any moment of a pause or a resumption: the next one finds the sandbox
/// in one of the two states, and takes it to the other.
#[test]
fn a_pause_may_be_interrupted_anywhere() {
    const ROUNDS: u64 = 40;
    const MOMENT_MS_MAX: u64 = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let one = sandbox("often", "echo x >> /root/starts; wc -l < /root/starts; sleep 1000");
    let server = || tokio::runtime::Runtime::new().expect("a server");
    let first = server();
    first.block_on(async {
        let local = start(&data).await;
        apply(&local, &one, Action::Create, Observed::Running).await;
        log_has(&local, &one, "1\n").await;
    });
    first.shutdown_timeout(Duration::from_secs(30));
    let mut random = Seeded::new(7);
    for round in 0..ROUNDS {
        let server = server();
        server.block_on(async {
            let local = start(&data).await;
            let action = match local.observe(&one.id).await.expect("it is seen") {
                Observed::Running => Action::Pause,
                Observed::Paused => Action::Resume,
                other => panic!("round {round}: {other:?}"),
            };
            let moment = Duration::from_millis(random.below(MOMENT_MS_MAX));
            let cut = tokio::time::timeout(moment, local.apply(&one, action)).await;
            if let Ok(Err(error)) = cut {
                panic!("round {round}, {action:?}: {error:?}");
            }
        });
        // What a real end would have stopped is waited for; nothing new is begun.
        server.shutdown_timeout(Duration::from_secs(30));
    }
    server().block_on(async {
        let local = start(&data).await;
        if local.observe(&one.id).await.expect("it is seen") == Observed::Running {
            apply(&local, &one, Action::Pause, Observed::Paused).await;
        }
        apply(&local, &one, Action::Resume, Observed::Running).await;
        let starts = eventually("it has told how often it was started", async || {
            let log = local.logs(&one.id, 4096).await.ok()?;
            String::from_utf8_lossy(&log.bytes).trim().parse::<u64>().ok()
        });
        assert!((2..=ROUNDS + 2).contains(&starts.await), "its files were lost");
        apply(&local, &one, Action::Remove, Observed::Absent).await;
        local.close();
    });
    leftovers::none(&data).expect("nothing is left");
}

fn mount(name: &str) -> Mount {
    let source =
        MountSource::Volume { name: name.to_owned(), create: true, delete_with_sandbox: false };
    let target = format!("/mnt/{name}");
    Mount { name: name.to_owned(), source, target, sub_path: None, read_only: false }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_volume_is_the_same_inside_and_outside() {
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let tenant = TenantId::parse("tenant").expect("an id");
    let stranger = TenantId::parse("stranger").expect("an id");
    let local = start(&data).await;
    let made = local.create_volume(&tenant, "made-here").await.expect("it is made");
    let taken = local.create_volume(&tenant, "made-here").await.map_err(|error| error.kind());
    assert_eq!(taken.err(), Some(ErrorKind::Conflict));
    for bad in ["", "a/b", "..", "a.b", "ü", &"x".repeat(64)] {
        let refused = local.create_volume(&tenant, bad).await.map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::Invalid), "{bad:?}");
    }
    let mut input: &[u8] = b"from outside\n";
    let own = atoll_control::Ownership { uid: Some(1000), gid: Some(1000), mode: Some(0o600) };
    local.write_file(&made, "/in/note", own, true, &mut input).await.expect("it is written");

    let script = "stat -c '%u %g %a' /mnt/made-here/in/note; cat /mnt/made-here/in/note; \
                  echo from inside > /mnt/made-inside/note; echo done; sleep 1000";
    let mut user = sandbox("user", script);
    user.spec.mounts = vec![mount("made-here"), mount("made-inside")];
    apply(&local, &user, Action::Create, Observed::Running).await;
    log_has(&local, &user, "1000 1000 600\nfrom outside\ndone\n").await;
    let volumes = local.volumes(&tenant).await.expect("they are listed");
    let names: Vec<&str> = volumes.iter().map(|volume| volume.name.as_str()).collect();
    assert_eq!(names, ["made-here", "made-inside"]);
    assert_eq!(volumes[0], made, "it keeps its id and token");
    assert!(local.volumes(&stranger).await.expect("they are listed").is_empty());
    let note = local.entry(&volumes[1], "/note").await.expect("it is there");
    assert_eq!((note.size, note.uid, note.path.as_str()), (12, 0, "/note"));

    let used = local.remove_volume(&tenant, &made.id).await.expect_err("it is mounted");
    assert_eq!((used.kind(), used.reason()), (ErrorKind::Conflict, Some("VOLUME_IN_USE")));
    apply(&local, &user, Action::Pause, Observed::Paused).await;
    let used = local.remove_volume(&tenant, &made.id).await.expect_err("it will be mounted");
    assert_eq!(used.reason(), Some("VOLUME_IN_USE"));
    apply(&local, &user, Action::Remove, Observed::Absent).await;
    local.close();
    drop(local);

    let local = start(&data).await;
    assert_eq!(local.volume(&tenant, &made.id).await.expect("it is known"), made);
    let other = local.volume(&stranger, &made.id).await.map_err(|error| error.kind());
    assert_eq!(other.err(), Some(ErrorKind::NotFound));
    local.volume_by_token(&made.id, &made.token).await.expect("the token opens it");
    for wrong in ["", "x", &volumes[1].token] {
        let refused = local.volume_by_token(&made.id, wrong).await.map_err(|error| error.kind());
        assert_eq!(refused.err(), Some(ErrorKind::NotFound));
    }
    local.remove_volume(&tenant, &made.id).await.expect("nobody uses it");
    let gone = local.entry(&made, "/in/note").await.map_err(|error| error.kind());
    assert_eq!(gone.err(), Some(ErrorKind::NotFound));
    let again = local.create_volume(&tenant, "made-here").await.expect("the name is free");
    assert!(again.id != made.id && again.token != made.token);
    assert!(local.entries(&again, "/", 1).await.expect("it is listed").is_empty());
    local.close();
    drop(local);
    leftovers::none(&data).expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_paused_sandbox_gives_the_memory_of_its_files_back() {
    const BYTES: u64 = 64 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let data = folder.path().join("data");
    let local = start(&data).await;
    let script = format!("head -c {BYTES} /dev/zero > /root/big; echo done; sleep 1000");
    let mut one = sandbox("big", &script);
    one.life = sample::sandbox("big", "tenant").life;
    assert_eq!(one.life.keep(), Keep::Memory);
    apply(&local, &one, Action::Create, Observed::Running).await;
    log_has(&local, &one, "done\n").await;
    let before = local.usage(&one.id).await.expect("it runs");
    assert!(before.cache_bytes >= BYTES / 2, "{before:?}");
    apply(&local, &one, Action::Pause, Observed::Paused).await;
    eventually("the memory is given back", async || {
        let now = local.usage(&one.id).await.ok()?;
        (now.memory_bytes < before.memory_bytes / 2).then_some(())
    })
    .await;
    assert_eq!(local.observe(&one.id).await.expect("it is seen"), Observed::Paused);
    apply(&local, &one, Action::Resume, Observed::Running).await;
    apply(&local, &one, Action::Remove, Observed::Absent).await;
    local.close();
    drop(local);
    leftovers::none(&data).expect("nothing is left");
}
