//! What sandboxes used lately.

use std::time::Duration;

use atoll_control::Control;
use atoll_testkit::{eventually, sample};

use crate::bench::Bench;

const EVERY: Duration = Duration::from_secs(5);

#[tokio::test(start_paused = true)]
async fn running_sandboxes_are_sampled_and_the_oldest_samples_go() {
    let bench = Bench::new().await;
    let (id, paused) = (bench.running().await, bench.paused().await);
    assert!(bench.engine.samples(&bench.tenant, &id).await.unwrap().is_empty());
    for count in 1..=370 {
        bench.clock.advance(EVERY);
        eventually("there is a new sample", async || {
            let samples = bench.engine.samples(&bench.tenant, &id).await.unwrap();
            let expected = sample::NOW.saturating_add(EVERY * count);
            (samples.last()?.at == expected).then_some(())
        })
        .await;
    }
    let samples = bench.engine.samples(&bench.tenant, &id).await.unwrap();
    assert_eq!(samples.len(), 360);
    assert!(samples.windows(2).all(|pair| pair[0].at < pair[1].at), "oldest first");
    assert!(samples.iter().all(|sample| sample.usage.memory_bytes > 0));
    assert!(bench.engine.samples(&bench.tenant, &paused).await.unwrap().is_empty());
    let stranger = sample::tenant("beta");
    bench.engine.samples(&stranger, &id).await.unwrap_err();
    bench.engine.kill(&bench.tenant, &id).await.unwrap();
    bench.engine.samples(&bench.tenant, &id).await.unwrap_err();
}
