//! Which crate may know which: the arrows of ARCHITECTURE.md.

use anyhow::{Context, Result};
use serde_json::Value;

/// One row: a crate, what it may use, and why it may not use more.
struct Row {
    name: &'static str,
    may_use: &'static [&'static str],
    because: &'static str,
}

const fn row(name: &'static str, may_use: &'static [&'static str], because: &'static str) -> Row {
    Row { name, may_use, because }
}

const CORE: &str = "atoll-core";
const CONTROL: &str = "atoll-control";
const ENGINE: &str = "atoll-engine";

const ROWS: &[Row] = &[
    row(CORE, &[], "decisions are pure"),
    row(CONTROL, &[CORE], "the trait speaks domain words only"),
    row(ENGINE, &[CORE, CONTROL], "the loop knows neither doors nor runtimes"),
    row("atoll-store", &[CORE, CONTROL, ENGINE], "a store implements a seam of the engine"),
    row("atoll-runtime-sim", &[CORE, CONTROL, ENGINE], "a runtime implements a seam of the engine"),
    row(
        "atoll-runtime-local",
        &[CORE, CONTROL, ENGINE, "atoll-image", "atoll-guest"],
        "a runtime implements a seam of the engine",
    ),
    row("atoll-image", &[], "images know nothing of sandboxes"),
    row("atoll-guest", &[], "guest operations run inside, alone"),
    row("atoll-interpreter-image", &[], "a tree of files knows nothing of sandboxes"),
    row("atoll-proxy", &[CORE, CONTROL], "the data path makes no lifecycle decisions"),
    row("atoll-vault", &[CORE, CONTROL], "a service beside the lifecycle, over documents"),
    row(
        "atoll-opensandbox",
        &[CORE, CONTROL, "atoll-guest", "atoll-proxy"],
        "a door knows no runtime, store or other door",
    ),
    row(
        "atoll-e2b",
        &[CORE, CONTROL, "atoll-guest", "atoll-proxy", "atoll-template", "atoll-vault"],
        "a door knows no runtime, store or other door",
    ),
    row("atoll-template", &[CORE, CONTROL], "builds drive sandboxes like any caller of the trait"),
    row(
        "atoll-agent",
        &["atoll-guest", "atoll-opensandbox", "atoll-e2b"],
        "the agent is a guest, not a server",
    ),
    row(
        "atoll-server",
        &[
            CORE,
            CONTROL,
            ENGINE,
            "atoll-store",
            "atoll-proxy",
            "atoll-image",
            "atoll-runtime-local",
            "atoll-runtime-sim",
            "atoll-opensandbox",
            "atoll-e2b",
            "atoll-vault",
            "atoll-template",
            "atoll-interpreter-image",
        ],
        "wiring happens here, but not inside sandboxes",
    ),
    row("atoll-cli", &["atoll-server", "atoll-runtime-local"], "verbs speak HTTP like any client"),
    row("atoll-testkit", &[CORE, CONTROL, ENGINE], "contract suites are for every implementation"),
    row("atoll-e2e", &["atoll-runtime-local"], "it uses built programs, or a seam with its suite"),
    row("xtask", &["atoll-e2e"], "the tool must build when the product does not"),
];

/// Tests may use these besides.
const TESTS_MAY_USE: &[&str] = &[
    CORE,
    CONTROL,
    ENGINE,
    "atoll-testkit",
    "atoll-runtime-sim",
    "atoll-store",
    "atoll-guest",
    "atoll-opensandbox",
    "atoll-e2b",
];

/// Libraries that only some crates may touch, and why.
const RESERVED: &[(&str, &[&str], &str)] = &[
    (
        "axum",
        &["atoll-opensandbox", "atoll-e2b", "atoll-agent", "atoll-proxy", "atoll-server"],
        "HTTP is an edge",
    ),
    (
        "hyper",
        &[
            "atoll-opensandbox",
            "atoll-e2b",
            "atoll-agent",
            "atoll-proxy",
            "atoll-server",
            "atoll-template",
        ],
        "HTTP is an edge",
    ),
    ("reqwest", &["atoll-image", "atoll-cli"], "only pulls and client verbs call out"),
    ("redb", &["atoll-store"], "the file format is the store's secret"),
    ("clap", &["atoll-cli"], "arguments are parsed once"),
    ("anyhow", &["atoll-agent", "atoll-cli", "atoll-e2e", "xtask"], "libraries have typed errors"),
];

/// One crate of the workspace.
pub(super) struct Package {
    /// Its name.
    pub name: String,
    /// Path of its manifest.
    pub manifest: String,
    /// What it uses.
    pub uses: Vec<Use>,
}

/// One dependency.
pub(super) struct Use {
    /// The library's name.
    pub name: String,
    /// Only its tests use it.
    pub in_tests: bool,
    /// It is one of ours.
    pub ours: bool,
}

/// Reads the answer of `cargo metadata --no-deps`.
pub(super) fn packages(metadata: &Value) -> Result<Vec<Package>> {
    let text = |value: &Value, key: &str| value[key].as_str().map(str::to_owned);
    let list = metadata["packages"].as_array().context("metadata has no packages")?;
    list.iter()
        .map(|package| {
            let dependencies = package["dependencies"].as_array().map_or(&[][..], |d| d);
            let uses = dependencies.iter().map(|d| {
                Some(Use {
                    name: text(d, "name")?,
                    in_tests: d["kind"] == "dev",
                    ours: d["path"].is_string(),
                })
            });
            Some(Package {
                name: text(package, "name")?,
                manifest: text(package, "manifest_path")?,
                uses: uses.collect::<Option<Vec<_>>>()?,
            })
        })
        .collect::<Option<Vec<_>>>()
        .context("metadata has a package without name, manifest or dependencies")
}

/// Arrows that point the wrong way.
pub(super) fn check(packages: &[Package]) -> Vec<String> {
    let arrows = packages.iter().flat_map(|p| p.uses.iter().filter_map(|u| wrong(&p.name, u)));
    let strangers = packages.iter().filter(|p| find(&p.name).is_none()).map(unknown);
    arrows.chain(strangers).collect()
}

fn find(name: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.name == name)
}

fn unknown(package: &Package) -> String {
    format!("{}: say in xtask/src/tidy/direction.rs which crates it may use", package.name)
}

fn wrong(package: &str, used: &Use) -> Option<String> {
    let name = used.name.as_str();
    if !used.ours {
        if package == CORE && !used.in_tests {
            return Some(format!("{CORE} must not use {name}: decisions are pure"));
        }
        let (_, allowed, because) = RESERVED.iter().find(|(library, ..)| *library == name)?;
        let fine = used.in_tests || allowed.contains(&package);
        return (!fine).then(|| format!("{package} must not use {name}: {because}"));
    }
    let row = find(package)?;
    let fine = row.may_use.contains(&name) || (used.in_tests && TESTS_MAY_USE.contains(&name));
    (!fine).then(|| format!("{package} must not use {name}: {}", row.because))
}
