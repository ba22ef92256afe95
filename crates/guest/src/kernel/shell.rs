//! The shell as a language: a session of the agent's own, which needs nothing from the image.

use super::{
    event::Event,
    orders::{Ending, Order, Orders},
    sink::Sink,
    text::{self, Characters},
};
use crate::{
    Result,
    command::{Outcome, Output},
    environment::Variables,
    session::Sessions,
};
use std::{path::Path, sync::Arc};

/// One shell and what it counts.
#[derive(Debug)]
pub(super) struct Shell {
    sessions: Arc<Sessions>,
    id: String,
    count: u64,
    /// The sandbox's variables as the shell has them.
    pub(super) applied: Variables,
}

impl Shell {
    pub(super) async fn start(
        sessions: Arc<Sessions>,
        cwd: &Path,
        applied: Variables,
    ) -> Result<Self> {
        let id = sessions.open(cwd.to_str()).await?;
        Ok(Self { sessions, id, count: 0, applied })
    }

    pub(super) async fn run(&mut self, code: &str, sink: &mut Sink, orders: &mut Orders) -> Ending {
        let mut output = match self.sessions.run(&self.id, code.to_owned(), None, None).await {
            Ok(output) => output,
            Err(error) => return Ending::Died { reason: error.to_string(), began: false },
        };
        if !sink.is_silent() {
            self.count += 1;
            sink.push(Event::Accepted { count: self.count }, 0);
        }
        let (mut characters, mut over, mut abandoned) = (Characters::default(), false, false);
        while !over || sink.has_pending() {
            let room = sink.has_room() && !over;
            tokio::select! {
                biased;
                order = orders.recv() => match order {
                    Some(Order::Interrupt) => self.interrupt().await,
                    other => return Ending::Ordered(other),
                },
                listened = sink.step(), if !abandoned => if !listened {
                    abandoned = true;
                    self.interrupt().await;
                },
                item = output.recv(), if room => {
                    over = take(item, &mut characters, sink);
                }
            }
        }
        Ending::Done
    }

    async fn interrupt(&self) {
        // It may have ended by itself just now.
        self.sessions.interrupt(&self.id).await.ok();
    }

    pub(super) async fn stop(self) {
        self.sessions.close(&self.id).await.ok();
    }
}

/// Passes output on; answers whether it was the last.
fn take(item: Option<Output>, characters: &mut Characters, sink: &mut Sink) -> bool {
    let mut print = |text: String| {
        if !text.is_empty() {
            let bytes = text.len();
            sink.push(Event::Stdout(text::now(text)), bytes);
        }
    };
    match item {
        Some(Output::Stdout(bytes) | Output::Stderr(bytes)) => {
            print(characters.push(&bytes));
            false
        }
        Some(Output::Ended(outcome)) => {
            print(characters.finish());
            if outcome.code != 0 {
                sink.push(failure(outcome), 0);
            }
            true
        }
        None => true,
    }
}

fn failure(outcome: Outcome) -> Event {
    Event::Failed {
        name: "CommandFailed".to_owned(),
        value: outcome.code.to_string(),
        traceback: outcome.problem.into_iter().collect(),
    }
}
