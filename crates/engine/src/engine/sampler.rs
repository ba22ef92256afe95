//! Writes down every few seconds what sandboxes use.

use std::sync::Arc;
use std::time::Duration;

use atoll_control::{Sample, Usage};
use atoll_core::{SandboxId, Timestamp};
use tokio::task::{AbortHandle, JoinSet};

use crate::seam::{Clock, Runtime};
use crate::view::View;

const EVERY: Duration = Duration::from_secs(5);
/// Sandboxes asked at once.
const AT_ONCE: usize = 8;

/// A task that ends with this.
pub(super) struct Sampler(AbortHandle);

impl Sampler {
    pub(super) fn start(runtime: Arc<dyn Runtime>, view: Arc<View>, clock: Arc<dyn Clock>) -> Self {
        let task = tokio::spawn(async move {
            loop {
                let next = clock.now().saturating_add(EVERY);
                clock.sleep_until(next).await;
                sample_all(&runtime, &view, clock.as_ref()).await;
            }
        });
        Self(task.abort_handle())
    }

    pub(super) fn stop(&self) {
        self.0.abort();
    }
}

impl Drop for Sampler {
    fn drop(&mut self) {
        self.stop();
    }
}

async fn sample_all(runtime: &Arc<dyn Runtime>, view: &View, clock: &dyn Clock) {
    let mut waiting = view.running().into_iter();
    let mut asked = JoinSet::new();
    loop {
        while asked.len() < AT_ONCE
            && let Some((id, last)) = waiting.next()
        {
            let runtime = runtime.clone();
            asked.spawn(async move { (runtime.usage(&id).await, id, last) });
        }
        match asked.join_next().await {
            // One that ended meanwhile has nothing to tell.
            Some(Ok((Ok(usage), id, last))) => add(view, &id, last, usage, clock.now()),
            Some(Ok((Err(_), ..)) | Err(_)) => {}
            None => return,
        }
    }
}

fn add(view: &View, id: &SandboxId, last: Option<Sample>, usage: Usage, at: Timestamp) {
    let cpu_percent = last.map_or(0.0, |last| {
        let passed = last.at.until(at).as_secs_f64();
        let used = usage.cpu.saturating_sub(last.usage.cpu).as_secs_f64();
        if passed > 0.0 { 100.0 * used / passed } else { 0.0 }
    });
    view.add_sample(id, Sample { at, usage, cpu_percent });
}
