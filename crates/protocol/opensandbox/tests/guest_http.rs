//! The execd API over real connections.

#[path = "guest_http/client.rs"]
mod client;
#[path = "guest_http/code.rs"]
mod code;
#[path = "guest_http/commands.rs"]
mod commands;
#[path = "guest_http/files.rs"]
mod files;
#[path = "guest_http/proxy.rs"]
mod proxy;
#[path = "guest_http/sessions.rs"]
mod sessions;
#[path = "guest_http/terminals.rs"]
mod terminals;
#[path = "guest_http/transfer.rs"]
mod transfer;
