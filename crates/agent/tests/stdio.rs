//! The agent as a launcher starts it that hands over nothing but the standard streams.

use atoll_guest::ring;
use std::{
    fs::{self, File},
    io::{Seek, Write},
    process::{Command, Stdio},
};

const RING_BYTES: usize = 4096;

/// Runs the agent to its end; answers its exit code and log.
fn run(config: &str) -> (Option<i32>, String) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let log = directory.path().join("ring");
    fs::write(&log, vec![0; ring::HEADER_BYTES + RING_BYTES]).expect("writable");
    let mut input = tempfile::tempfile().expect("a temporary file");
    input.write_all(config.as_bytes()).and_then(|()| input.rewind()).expect("writable");
    let output = File::options().read(true).write(true).open(&log).expect("it is there");
    let status = Command::new(env!("CARGO_BIN_EXE_atoll-agent"))
        .arg("--stdio")
        .stdin(input)
        .stdout(output)
        .stderr(Stdio::null())
        .status()
        .expect("the agent runs");
    let said = ring::read(&fs::read(&log).expect("readable"));
    (status.code(), String::from_utf8_lossy(&said).into_owned())
}

#[test]
fn configuration_and_log_are_the_standard_streams_and_hidden_from_programs() {
    let script = "readlink /proc/$PPID/fd/0 /proc/$PPID/fd/1 /proc/self/fd/0; exit 7";
    let config = format!(
        r#"{{"id":"s","entrypoint":["sh","-c","{script}"],"env":{{"PATH":"/usr/bin:/bin"}},
            "door":{{"port":0,"secret":"s"}}}}"#
    );
    assert_eq!(run(&config), (Some(7), "/dev/null\n".repeat(3)));
}

#[test]
fn a_configuration_without_a_door_is_refused() {
    assert_eq!(run(r#"{"id":"s","entrypoint":["true"]}"#).0, Some(2));
}
