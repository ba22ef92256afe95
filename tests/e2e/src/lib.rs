//! A real server on this machine, for tests and measurements: started, driven over HTTP, crashed
//! or stopped by its process id, and searched for what it left.

pub mod e2b;
pub mod greeter;
pub mod http;
pub mod image;
pub mod leftovers;
pub mod pool;
pub mod programs;
pub mod sandbox;
pub mod server;
pub mod world;
