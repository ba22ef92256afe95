//! Every crate takes its lints and its versions from the workspace.

use toml::{Table, Value};

/// What is wrong with the manifest of `package`.
pub(super) fn check(package: &str, manifest: &str) -> Vec<String> {
    let table: Table = match manifest.parse() {
        Ok(table) => table,
        Err(error) => return vec![format!("{package}: its Cargo.toml is no TOML: {error}")],
    };
    let mut problems = Vec::new();
    let lints = table.get("lints").and_then(|l| l.get("workspace"));
    if lints != Some(&Value::Boolean(true)) {
        problems.push(format!("{package}: add `[lints] workspace = true`"));
    }
    for section in ["dependencies", "dev-dependencies", "build-dependencies"] {
        let Some(Value::Table(dependencies)) = table.get(section) else { continue };
        for (name, value) in dependencies {
            if value.get("workspace") != Some(&Value::Boolean(true)) {
                problems.push(format!(
                    "{package}: {section}.{name}: name its version in the root's \
                     [workspace.dependencies] and write `workspace = true` here"
                ));
            }
        }
    }
    problems
}
