//! Rules of the tree that the compiler can't check. Each rule is a function from what is there to
//! the list of what is wrong.

mod direction;
mod manifests;
mod sources;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};

use crate::command::{cargo, output, root};

/// Checks all rules and lists every violation.
pub(crate) fn run() -> Result<()> {
    let problems = problems()?;
    for problem in &problems {
        println!("tidy: {problem}");
    }
    if !problems.is_empty() {
        bail!("{} rules broken", problems.len());
    }
    println!("tidy: nothing to complain about");
    Ok(())
}

fn problems() -> Result<Vec<String>> {
    let text = output(cargo().args(["metadata", "--no-deps", "--format-version", "1"]))?;
    let metadata = serde_json::from_str(&text).context("`cargo metadata` wrote no JSON")?;
    let packages = direction::packages(&metadata)?;
    let mut problems = direction::check(&packages);
    for package in &packages {
        let text = std::fs::read_to_string(&package.manifest)
            .with_context(|| format!("can't read {}", package.manifest))?;
        problems.extend(manifests::check(&package.name, &text));
    }
    for file in sources::files(&root())? {
        problems.extend(sources::check(&file.path, &file.text));
    }
    Ok(problems)
}
