//! One contract, every launcher.

use std::sync::Arc;

use atoll_core::Isolation;
use atoll_e2e::leftovers;
use atoll_e2e::programs::Programs;
use atoll_runtime_local::{LocalConfig, LocalRuntime, Uplink};
use atoll_testkit::contract::runtime;

async fn holds_for(isolation: Isolation) {
    let folder = tempfile::tempdir().expect("a folder");
    let programs = Programs::from_env().expect("the programs under test");
    let mut config = LocalConfig::new(&folder.path().join("data"), &programs.atoll);
    config.agent = programs.agent;
    config.network.uplink = Uplink::None;
    config.isolation = isolation;
    let local = Arc::new(LocalRuntime::start(config).await.expect("the runtime starts"));
    local.prefetch("base").await.expect("the image is made");
    let skipped = runtime::run(runtime::Subject::new(local.clone(), "base", true)).await;
    assert!(skipped.is_empty(), "cases left out: {skipped:?}");
    local.close();
    drop(local);
    leftovers::none(&folder.path().join("data")).expect("nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_native_launcher_keeps_the_contract() {
    holds_for(Isolation::Native).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn runc_keeps_the_contract() {
    holds_for(Isolation::Oci("runc".into())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn gvisor_keeps_the_contract() {
    holds_for(Isolation::Oci("runsc".into())).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn crun_keeps_the_contract() {
    holds_for(Isolation::Oci("crun".into())).await;
}
