//! Files: how long, how named, and what may not stand in them.

use std::path::Path;

use anyhow::{Context, Result};

/// Lines a source file may have; tests beside it don't count.
const LINES_MAX: usize = 600;

/// Bytes of a file we look at; nothing we write by hand is larger.
const BYTES_MAX: u64 = 2 << 20;

/// Folders that hold nothing of ours.
const SKIPPED: &[&str] =
    &["target", ".git", "node_modules", "__pycache__", ".venv", ".pytest_cache"];

/// Endings of files written by hand.
const WRITTEN: &[&str] = &["rs", "py", "mjs", "js", "ts", "toml", "md", "sh", "yaml"];

/// Where raw system calls live; everybody else asks these crates.
const UNSAFE_ALLOWED: &[&str] = &["crates/guest/", "crates/runtime/local/"];

/// Words of unfinished work. Cut in two, so that this file passes its own check.
const UNFINISHED: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("todo", "!("),
    concat!("unimple", "mented!("),
];

/// One file of the tree.
pub(super) struct File {
    /// Path from the root, with `/`.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// All files written by hand below `root`.
pub(super) fn files(root: &Path) -> Result<Vec<File>> {
    let mut found = Vec::new();
    let mut folders = vec![root.to_owned()];
    while let Some(folder) = folders.pop() {
        let entries = std::fs::read_dir(&folder)
            .with_context(|| format!("can't list {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("can't list {}", folder.display()))?;
            let (path, name) = (entry.path(), entry.file_name());
            // Links are not followed: they may lead out of the tree.
            let kind =
                entry.file_type().with_context(|| format!("can't look at {}", path.display()))?;
            if kind.is_dir() && !SKIPPED.iter().any(|s| name == *s) {
                folders.push(path);
            } else if kind.is_file() && is_written(&path) && entry.metadata()?.len() <= BYTES_MAX {
                let text = std::fs::read_to_string(&path)
                    .with_context(|| format!("can't read {} as text", path.display()))?;
                let below = path.strip_prefix(root).expect("found below the root");
                found.push(File { path: below.to_string_lossy().into_owned(), text });
            }
        }
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn is_written(path: &Path) -> bool {
    path.extension().and_then(|e| e.to_str()).is_some_and(|e| WRITTEN.contains(&e))
}

/// What is wrong with one file.
pub(super) fn check(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (number, line) in (1..).zip(text.lines()) {
        if UNFINISHED.iter().any(|word| line.contains(word)) {
            problems.push(format!(
                "{path}:{number}: finish it, or file an issue and take the note out"
            ));
        }
    }
    if path.ends_with(".rs") {
        problems.extend(check_rust(path, text));
    }
    problems
}

fn check_rust(path: &str, text: &str) -> Vec<String> {
    let mut problems = Vec::new();
    if path.ends_with("/mod.rs") {
        problems.push(format!("{path}: name it after its folder and put it beside that"));
    }
    let lines = text.lines().count();
    if lines > LINES_MAX && !is_test(path) {
        problems.push(format!("{path}: {lines} lines; split it, {LINES_MAX} is the limit"));
    }
    if !UNSAFE_ALLOWED.iter().any(|folder| path.starts_with(folder)) {
        for (number, line) in (1..).zip(text.lines()) {
            if is_unsafe(line) {
                problems
                    .push(format!("{path}:{number}: unsafe code belongs in {UNSAFE_ALLOWED:?}"));
            }
        }
    }
    problems
}

fn is_test(path: &str) -> bool {
    path.ends_with("/tests.rs") || path.contains("/tests/") || path.starts_with("tests/")
}

fn is_unsafe(line: &str) -> bool {
    let code = line.split("//").next().unwrap_or_default();
    let mut words = code.split_whitespace().skip_while(|w| !w.ends_with(concat!("un", "safe")));
    words.next().is_some() && matches!(words.next(), Some("{" | "fn" | "impl" | "extern" | "trait"))
}
