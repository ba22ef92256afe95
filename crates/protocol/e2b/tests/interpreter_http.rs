//! The code interpreter API against real kernels.

#[path = "interpreter_http/client.rs"]
mod client;
#[path = "interpreter_http/contexts.rs"]
mod contexts;
#[path = "interpreter_http/endings.rs"]
mod endings;
#[path = "interpreter_http/execute.rs"]
mod execute;
#[path = "interpreter_http/variables.rs"]
mod variables;
