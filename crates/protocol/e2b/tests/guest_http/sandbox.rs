use crate::client::Sandbox;
use atoll_guest::{Options, environment::Variables, settings::Values};

#[tokio::test]
async fn health_says_nothing_but_that_it_lives() {
    let sandbox = Sandbox::start().await;
    let answer = sandbox.get("/health").await;
    assert_eq!((answer.status, answer.text().as_str()), (204, ""));
}

#[tokio::test]
async fn variables_are_told_and_may_be_replaced() {
    let env = Variables::from([("E2B_SANDBOX".to_owned(), "true".to_owned())]);
    let sandbox = Sandbox::start_with(Options { env, ..Options::default() }).await;
    let told = sandbox.get("/envs").await.ok();
    assert_eq!(told["E2B_SANDBOX"], "true");
    assert!(told["EXECD_ENVS"].is_null());
    assert_eq!(sandbox.run("echo $E2B_SANDBOX").await.out(), "true\n");
    let env = Variables::from([("CLAIMED".to_owned(), "yes".to_owned())]);
    let workdir = Some(sandbox.path("claimed"));
    std::fs::create_dir(sandbox.path("claimed")).unwrap();
    sandbox.guest.settings().replace(Values { env, workdir, ..Values::default() });
    let told = sandbox.get("/envs").await.ok();
    assert_eq!((&told["CLAIMED"], &told["E2B_SANDBOX"]), (&"yes".into(), &().into()));
    let want = format!("yes {}\n", sandbox.text_path("claimed"));
    assert_eq!(sandbox.run("echo $CLAIMED$E2B_SANDBOX $PWD").await.out(), want);
}

#[tokio::test]
async fn metrics_are_complete() {
    let sandbox = Sandbox::start().await;
    let metrics = sandbox.get("/metrics").await.ok();
    for name in [
        "ts",
        "cpu_count",
        "mem_total",
        "mem_used",
        "mem_cache",
        "mem_total_mib",
        "mem_used_mib",
        "disk_used",
        "disk_total",
    ] {
        assert!(metrics[name].is_u64(), "{name}: {metrics}");
    }
    assert!(metrics["cpu_used_pct"].is_f64());
    assert!(metrics["cpu_count"].as_u64() >= Some(1));
}

#[tokio::test]
async fn pages_of_any_origin_may_call() {
    let sandbox = Sandbox::start().await;
    let question = [("Origin", "http://page"), ("Access-Control-Request-Method", "POST")];
    let answer = sandbox.call("OPTIONS", "/process.Process/Start", &question, b"").await;
    assert_eq!(answer.status, 204);
    assert!(answer.head.contains("access-control-allow-origin: *"));
    assert!(answer.head.contains("access-control-allow-methods: *"));
    let answer = sandbox.get("/files?path=/none").await;
    assert!(answer.head.contains("access-control-allow-origin: *"), "{}", answer.head);
}

#[tokio::test]
async fn what_is_not_served_is_told_in_the_right_manner() {
    let sandbox = Sandbox::start().await;
    sandbox.get("/init").await.refused(404, 404);
    sandbox.call("POST", "/init", &[], b"{}").await.refused(404, 404);
    sandbox.call("DELETE", "/files", &[], b"").await.refused(405, 405);
    sandbox.call("POST", "/process.Process/Nope", &[], b"{}").await.refused(404, "unimplemented");
    sandbox.get("/process.Process/List").await.refused(405, "unimplemented");
}
