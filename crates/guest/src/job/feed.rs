use crate::{
    Error, Result,
    command::{Outcome, Output},
};
use std::{
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};
use tokio::{
    sync::mpsc,
    time::{Instant, timeout_at},
};

/// Followers of one process at once.
const FOLLOWERS_MAX: usize = 64;
/// Pieces that wait for a follower, each as long as one read.
const QUEUE_PIECES: usize = 16;
/// How long the process waits for a follower that takes nothing.
const PATIENCE: Duration = Duration::from_secs(10);

/// Hands a process's output to everybody who follows it.
///
/// A follower that is slower than the process slows the process down, so that nothing is lost
/// and little is kept. One that takes nothing at all for [`PATIENCE`] is left behind: it still
/// gets what was queued for it, then its channel ends without [`Output::Ended`], and the process
/// goes on. With no follower output is dropped.
#[derive(Debug, Default)]
pub(crate) struct Feed {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    followers: Vec<mpsc::Sender<Output>>,
    ended: Option<Outcome>,
}

impl Feed {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Everything from now on; only the end when that has come.
    pub(crate) fn follow(&self) -> Result<mpsc::Receiver<Output>> {
        let (sender, receiver) = mpsc::channel(QUEUE_PIECES);
        let mut state = self.lock();
        match &state.ended {
            Some(outcome) => {
                let queued = sender.try_send(Output::Ended(outcome.clone()));
                queued.expect("a new channel has room");
            }
            None => {
                state.followers.retain(|follower| !follower.is_closed());
                if state.followers.len() >= FOLLOWERS_MAX {
                    return Err(Error::Full {
                        what: "followers of one process",
                        limit: FOLLOWERS_MAX,
                    });
                }
                state.followers.push(sender);
            }
        }
        Ok(receiver)
    }

    /// Hands a piece to every follower; those that do not take it in time are left behind.
    pub(crate) async fn deliver(&self, output: Output) {
        let followers = self.lock().followers.clone();
        let lost = hand_out(&followers, &output).await;
        if !lost.is_empty() {
            let is_lost = |one: &mpsc::Sender<Output>| lost.iter().any(|l| l.same_channel(one));
            self.lock().followers.retain(|follower| !is_lost(follower));
        }
    }

    /// Tells every follower the end, and whoever comes later.
    pub(crate) async fn finish(&self, outcome: Outcome) {
        let followers = {
            let mut state = self.lock();
            state.ended = Some(outcome.clone());
            std::mem::take(&mut state.followers)
        };
        hand_out(&followers, &Output::Ended(outcome)).await;
    }
}

/// Hands a piece out; answers those who have gone or did not take it in time.
async fn hand_out(
    followers: &[mpsc::Sender<Output>],
    output: &Output,
) -> Vec<mpsc::Sender<Output>> {
    let limit = Instant::now() + PATIENCE;
    let mut lost = Vec::new();
    for follower in followers {
        match timeout_at(limit, follower.reserve()).await {
            Ok(Ok(place)) => place.send(output.clone()),
            Ok(Err(_)) | Err(_) => lost.push(follower.clone()),
        }
    }
    lost
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn piece(number: usize) -> Output {
        Output::Stdout(Bytes::from(number.to_string()))
    }

    #[tokio::test(start_paused = true)]
    async fn who_takes_nothing_is_left_behind_and_the_rest_go_on() {
        let feed = Feed::default();
        let mut stuck = feed.follow().unwrap();
        let mut quick = feed.follow().unwrap();
        let reading = tokio::spawn(async move {
            let mut seen = 0;
            while let Some(output) = quick.recv().await {
                if matches!(output, Output::Ended(_)) {
                    break;
                }
                assert_eq!(output, piece(seen));
                seen += 1;
            }
            seen
        });
        let begun = Instant::now();
        for number in 0..100 {
            feed.deliver(piece(number)).await;
        }
        assert_eq!(begun.elapsed(), PATIENCE, "the process waits once and never again");
        feed.finish(Outcome::of_code(0, Duration::ZERO)).await;
        assert_eq!(reading.await.unwrap(), 100);
        for number in 0..QUEUE_PIECES {
            assert_eq!(stuck.recv().await, Some(piece(number)));
        }
        assert_eq!(stuck.recv().await, None, "an end that it did not see is not told");
        let mut late = feed.follow().unwrap();
        assert!(matches!(late.recv().await, Some(Output::Ended(_))));
        assert_eq!(late.recv().await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn output_without_followers_is_dropped_at_once() {
        let feed = Feed::default();
        drop(feed.follow().unwrap());
        let begun = Instant::now();
        feed.deliver(piece(0)).await;
        assert_eq!(begun.elapsed(), Duration::ZERO);
        let held: Vec<_> = (0..FOLLOWERS_MAX).map(|_| feed.follow().unwrap()).collect();
        assert!(matches!(feed.follow(), Err(Error::Full { .. })));
        drop(held);
        feed.follow().unwrap();
    }
}
