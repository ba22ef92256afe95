//! The simulated runtime keeps the contract of every runtime.

use atoll_runtime_sim::SimRuntime;
use atoll_testkit::contract::runtime::{Subject, run};

#[tokio::test]
async fn the_simulation_keeps_the_contract() {
    let subject = Subject::new(SimRuntime::new(), "any", false);
    let skipped = run(subject).await;
    assert_eq!(skipped, ["a_port_opened_inside_is_reachable"]);
}
