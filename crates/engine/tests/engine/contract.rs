//! The engine keeps the contract of every `Control`.

use atoll_testkit::{contract, sample};

use crate::bench::Bench;

#[tokio::test(start_paused = true)]
async fn the_engine_keeps_the_contract() {
    let bench = Bench::new().await;
    contract::control::run(&contract::control::Subject {
        control: &bench.engine,
        image: "any",
        tenant: bench.tenant.clone(),
        stranger: sample::tenant("beta"),
    })
    .await;
    bench.machine_holds(0).await;
}
