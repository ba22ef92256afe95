use std::{net::Ipv4Addr, time::Duration};
use tokio::{net::TcpListener, time::sleep};

/// Where clients look whether a code interpreter is there, by connecting.
const JUPYTER_PORT: u16 = 44_771;
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Accepts connections where a Jupyter server would be, and closes them: clients of the code API
/// take that as the sign that code can be run. An image's own server goes first.
pub async fn stand_in_for_jupyter() {
    let Ok(listener) = TcpListener::bind((Ipv4Addr::LOCALHOST, JUPYTER_PORT)).await else { return };
    loop {
        if listener.accept().await.is_err() {
            // Out of descriptors, most likely: others may close theirs.
            sleep(ACCEPT_PAUSE).await;
        }
    }
}
