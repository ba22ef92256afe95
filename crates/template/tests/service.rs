//! The service over a stand-in for the engine whose sandboxes are folders with a real agent each:
//! commands and files take the same way as in a real sandbox, only without walls.
//!
//! Steps therefore run on the machine itself, as root, and keep to the folder `$BOX`.

#[path = "service/builds.rs"]
mod builds;
#[path = "service/caching.rs"]
mod caching;
#[path = "service/names.rs"]
mod names;
#[path = "service/restarts.rs"]
mod restarts;
#[path = "service/support.rs"]
mod support;
#[path = "service/yard.rs"]
mod yard;
