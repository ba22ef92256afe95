use crate::Result;
use tokio::sync::{mpsc, oneshot};

/// What is asked of a context out of turn.
#[derive(Debug)]
pub(super) enum Order {
    /// Stop the execution at work.
    Interrupt,
    /// Begin anew with a new kernel.
    Restart(oneshot::Sender<Result<()>>),
    /// End.
    Close(oneshot::Sender<()>),
}

pub(super) type Orders = mpsc::Receiver<Order>;

/// How an execution ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// By itself.
    Done,
    /// With its kernel.
    Died {
        reason: String,
        /// Whether the kernel had taken the code up.
        began: bool,
    },
    /// By an order that is still to be carried out; nothing when the context itself is gone.
    Ordered(Option<Order>),
}
