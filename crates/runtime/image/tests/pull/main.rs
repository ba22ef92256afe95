//! Images from a real registry, from hand-made servers, from files and from this host.
//! Unpacking and mounting need root, as the server does.

#![allow(clippy::unwrap_used, reason = "a failed step of a test fails the test")]

mod access;
mod faults;
mod fixture;
mod host;
mod local;
mod namespace;
mod registry;
mod server;
mod sharing;
mod store;
