//! Which kernels an image has, as Jupyter finds them: a `kernel.json` in folders known for it.

use super::language;
use crate::environment::Variables;
use serde::Deserialize;
use std::{
    fs::{self, File},
    io::Read,
    path::{Path, PathBuf},
};

const FOLDERS: [&str; 2] = ["/usr/local/share/jupyter", "/usr/share/jupyter"];
const FOLDERS_MAX: usize = 64;
const KERNELS_MAX: usize = 256;
const FILE_BYTES_MAX: u64 = 64 * 1024;

/// How a kernel is started.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Spec {
    pub(super) argv: Vec<String>,
    /// Variables that the kernel needs besides the sandbox's.
    pub(super) env: Variables,
    /// It is interrupted with a message instead of a signal.
    pub(super) takes_interrupts: bool,
}

#[derive(Deserialize)]
struct Announced {
    argv: Vec<String>,
    #[serde(default)]
    language: String,
    #[serde(default)]
    env: Variables,
    #[serde(default)]
    interrupt_mode: String,
}

/// The kernel for a language, given what processes see as their environment. Blocks.
pub(super) fn find(language: &str, env: &Variables) -> Option<Spec> {
    let mut best: Option<(u8, PathBuf, Announced)> = None;
    for place in kernels(env) {
        let Some(file) = read(&place) else { continue };
        let name = place.file_name().unwrap_or_default();
        let rank = match file.language.to_lowercase() {
            _ if name == language => 0,
            speaks if speaks == language => 1,
            speaks if language::are_kin(&speaks, language) => 2,
            _ => continue,
        };
        if best.as_ref().is_none_or(|(known, ..)| rank < *known) {
            best = Some((rank, place, file));
        }
    }
    best.map(|(_, place, file)| file.complete(&place, env))
}

/// Whether the image has any kernel at all. Blocks, for microseconds.
pub(super) fn any(env: &Variables) -> bool {
    kernels(env).any(|place| place.join("kernel.json").is_file())
}

/// The folders of kernels, those that count more first.
fn kernels(env: &Variables) -> impl Iterator<Item = PathBuf> {
    let given = env.get("JUPYTER_PATH").map_or("", String::as_str).split(':');
    let given = given.filter(|path| !path.is_empty()).map(PathBuf::from);
    let home = env.get("HOME").map(|home| Path::new(home).join(".local/share/jupyter"));
    let added = entries(Path::new("/opt")).into_iter().map(|place| place.join("share/jupyter"));
    let usual = FOLDERS.map(PathBuf::from);
    let all = given.chain(home).chain(added).chain(usual).take(FOLDERS_MAX);
    all.flat_map(|folder| entries(&folder.join("kernels"))).take(KERNELS_MAX)
}

/// What a folder holds, in the order of names; nothing when it does not exist.
fn entries(folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    paths
}

fn read(place: &Path) -> Option<Announced> {
    let mut text = String::new();
    let file = File::open(place.join("kernel.json")).ok()?;
    file.take(FILE_BYTES_MAX).read_to_string(&mut text).ok()?;
    serde_json::from_str(&text).ok().filter(|file: &Announced| !file.argv.is_empty())
}

impl Announced {
    fn complete(mut self, place: &Path, env: &Variables) -> Spec {
        let program = &mut self.argv[0];
        // A kernel that a Python environment brings names its program without a path and means
        // the one in that environment: PREFIX/share/jupyter/kernels/NAME.
        let own = place.ancestors().nth(4).map(|prefix| prefix.join("bin").join(&*program));
        if !program.contains('/')
            && let Some(own) = own.filter(|own| own.is_file())
        {
            *program = own.to_string_lossy().into_owned();
        }
        for word in &mut self.argv {
            *word = word.replace("{resource_dir}", &place.to_string_lossy());
        }
        let filled = self.env.into_iter().map(|(name, value)| (name, fill(&value, env)));
        Spec {
            argv: self.argv,
            env: filled.collect(),
            takes_interrupts: self.interrupt_mode == "message",
        }
    }
}

/// Replaces every `${NAME}` by the variable's value.
fn fill(text: &str, env: &Variables) -> String {
    let mut filled = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("${") {
        let Some((name, tail)) = after.split_once('}') else { break };
        filled.push_str(before);
        filled.push_str(env.get(name).map_or("", String::as_str));
        rest = tail;
    }
    filled + rest
}

/// The kernel that Python brings when its package is installed but not announced.
pub(super) fn fallback() -> Spec {
    let argv = ["python3", "-m", "ipykernel_launcher", "-f", "{connection_file}"];
    Spec { argv: argv.map(str::to_owned).to_vec(), env: Variables::new(), takes_interrupts: false }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn install(root: &Path, name: &str, json: &str) {
        let place = root.join("share/jupyter/kernels").join(name);
        fs::create_dir_all(&place).unwrap();
        fs::write(place.join("kernel.json"), json).unwrap();
    }

    fn seen_by(root: &Path) -> Variables {
        let path = root.join("share/jupyter").to_string_lossy().into_owned();
        Variables::from([
            ("JUPYTER_PATH".to_owned(), path),
            ("PATH".to_owned(), "/bin".to_owned()),
            ("HOME".to_owned(), "/nowhere".to_owned()),
        ])
    }

    #[test]
    fn a_kernel_is_found_by_name_then_language_then_kinship() {
        let dir = tempfile::tempdir().unwrap();
        let env = seen_by(dir.path());
        install(dir.path(), "deno", r#"{"argv":["deno"],"language":"typescript"}"#);
        assert_eq!(find("javascript", &env).unwrap().argv, ["deno"]);
        install(dir.path(), "other", r#"{"argv":["js"],"language":"JavaScript"}"#);
        assert_eq!(find("javascript", &env).unwrap().argv, ["js"]);
        assert_eq!(find("typescript", &env).unwrap().argv, ["deno"]);
        install(dir.path(), "javascript", r#"{"argv":["best"],"interrupt_mode":"message"}"#);
        let best = find("javascript", &env).unwrap();
        assert_eq!((best.argv, best.takes_interrupts), (vec!["best".to_owned()], true));
        install(dir.path(), "broken", r#"{"argv":[]}"#);
        assert_eq!(find("cobol", &env), None);
        assert!(any(&env));
    }

    #[test]
    fn words_and_variables_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        let env = seen_by(dir.path());
        fs::create_dir_all(dir.path().join("bin")).unwrap();
        fs::write(dir.path().join("bin/python"), "").unwrap();
        let json = r#"{"argv":["python","{resource_dir}/x","{connection_file}"],
            "language":"python","env":{"PATH":"/a:${PATH}:${NONE}","B":"${","C":"x"}}"#;
        install(dir.path(), "python3", json);
        let spec = find("python", &env).unwrap();
        assert_eq!(spec.argv[0], dir.path().join("bin/python").to_string_lossy());
        assert!(spec.argv[1].ends_with("kernels/python3/x") && spec.argv[1].starts_with('/'));
        assert_eq!(spec.argv[2], "{connection_file}");
        assert_eq!(spec.env["PATH"], "/a:/bin:");
        assert_eq!((&*spec.env["B"], &*spec.env["C"]), ("${", "x"));
    }
}
