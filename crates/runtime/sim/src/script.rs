//! Just enough of a shell to give simulated sandboxes output, files and an end.

use std::collections::BTreeMap;

/// Output kept of one sandbox.
const LOG_BYTES_MAX: usize = 64 * 1024;

/// What a sandbox is made of.
#[derive(Clone, Debug, Default)]
pub(crate) struct Files(BTreeMap<String, String>);

/// What running an entrypoint did: its output, and its exit code if it ended.
pub(crate) struct Ran {
    pub(crate) log: Vec<u8>,
    pub(crate) code: Option<i32>,
}

/// Runs `sh -c <script>` where the script is made of `echo words`, `echo words > file`,
/// `cat file` and `exit code`. Anything else stays up for ever and says nothing.
pub(crate) fn run(entrypoint: &[String], files: &mut Files) -> Ran {
    let mut ran = Ran { log: Vec::new(), code: None };
    let [shell, flag, script] = entrypoint else { return ran };
    if !(shell.ends_with("sh") && flag == "-c") {
        return ran;
    }
    for command in script.split(';').map(str::trim) {
        let (name, rest) = command.split_once(' ').unwrap_or((command, ""));
        match name {
            "echo" => match rest.split_once('>') {
                Some((text, file)) => {
                    files.0.insert(file.trim().to_owned(), format!("{}\n", text.trim()));
                }
                None => ran.log.extend_from_slice(format!("{rest}\n").as_bytes()),
            },
            "cat" => ran.log.extend(files.0.get(rest).into_iter().flat_map(|text| text.bytes())),
            "exit" => {
                ran.code = Some(rest.parse().unwrap_or(2));
                break;
            }
            _ => break,
        }
    }
    ran.log.truncate(LOG_BYTES_MAX);
    ran
}
