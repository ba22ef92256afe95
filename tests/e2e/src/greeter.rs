//! A service that greets whoever connects.

use std::io::{BufRead, BufReader};
use std::process::{Child, Stdio};

use anyhow::{Context, Result, ensure};

use crate::world::FakeInternet;

/// What it says.
pub const GREETING: &str = "hello";

/// A running service; it ends when it is dropped.
pub struct Greeter(Child);

impl Greeter {
    /// Greets on `port` of every address in `namespace`.
    pub fn start(namespace: &FakeInternet, port: u16) -> Result<Self> {
        let script = format!(
            "import socketserver as S
class H(S.BaseRequestHandler):
    def handle(self): self.request.sendall(b'{GREETING}')
class T(S.ThreadingTCPServer): allow_reuse_address=True
s=T(('0.0.0.0',{port}),H)
print('up',flush=True)
s.serve_forever()"
        );
        let mut command = namespace.command("/usr/bin/python3");
        let child = command.args(["-c", &script]).stdout(Stdio::piped()).spawn();
        let mut greeter = Self(child.context("can't start the service")?);
        let output = greeter.0.stdout.take().context("its output is not piped")?;
        let mut line = String::new();
        BufReader::new(output).read_line(&mut line).context("it says nothing")?;
        ensure!(line == "up\n", "the service said {line:?}");
        Ok(greeter)
    }
}

impl Drop for Greeter {
    fn drop(&mut self) {
        if let Err(error) = self.0.kill().and_then(|()| self.0.wait()) {
            eprintln!("a service of the test stays: {error}");
        }
    }
}

/// A Python program, without single quotes, that prints the greeting of `host`.
pub fn visit(host: &str, port: u16) -> String {
    format!(
        "import socket; print(socket.create_connection((\"{host}\",{port}),timeout=2).recv(5).decode())"
    )
}
