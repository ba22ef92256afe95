//! Two streams joined after a change of protocol.

use http::Extensions;
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;

/// Carries bytes both ways until both ends are done or one breaks.
///
/// `held` lives as long as the tunnel: the server puts there what the connection counts against.
pub(crate) fn join(client: OnUpgrade, sandbox: OnUpgrade, held: Extensions) {
    tokio::spawn(async move {
        // A side that goes away ends the tunnel; there is nobody left to tell.
        if let Ok((client, sandbox)) = tokio::try_join!(client, sandbox) {
            let (mut client, mut sandbox) = (TokioIo::new(client), TokioIo::new(sandbox));
            let _ = tokio::io::copy_bidirectional(&mut client, &mut sandbox).await;
        }
        drop(held);
    });
}
