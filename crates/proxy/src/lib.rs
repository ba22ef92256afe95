//! The data path: carries requests to any port of any sandbox and the answers back.
//!
//! Bodies stream in both directions; only small ones on their way to an agent are held. What comes back is hostile: its head is
//! bounded by [`HEAD_BYTES_MAX`] and [`HEADERS_MAX`], and only end-to-end headers pass.

mod error;
mod forward;
mod headers;
mod link;
mod pool;
mod tunnel;

pub use error::ProxyError;
pub use forward::{Credentials, Forwarding, Proxy, ServiceHost, Target};
pub use link::{HEAD_BYTES_MAX, HEADERS_MAX};
