//! Waiting for something to become true.

use std::time::Duration;

const STEP: Duration = Duration::from_millis(5);
const STEPS_MAX: u32 = 4000;

/// Asks until there is an answer; panics with `what` after twenty seconds.
///
/// # Panics
/// When the answer doesn't come.
pub async fn eventually<T>(what: &str, mut ask: impl AsyncFnMut() -> Option<T>) -> T {
    for _ in 0..STEPS_MAX {
        if let Some(answer) = ask().await {
            return answer;
        }
        tokio::time::sleep(STEP).await;
    }
    panic!("this never happened: {what}");
}
