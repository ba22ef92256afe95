//! The envd API over real connections.

#[path = "guest_http/client.rs"]
mod client;
#[path = "guest_http/files.rs"]
mod files;
#[path = "guest_http/filesystem.rs"]
mod filesystem;
#[path = "guest_http/input.rs"]
mod input;
#[path = "guest_http/process.rs"]
mod process;
#[path = "guest_http/protocol.rs"]
mod protocol;
#[path = "guest_http/sandbox.rs"]
mod sandbox;
#[path = "guest_http/terminal.rs"]
mod terminal;
#[path = "guest_http/watch.rs"]
mod watch;
