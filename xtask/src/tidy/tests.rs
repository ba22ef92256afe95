use super::direction::{Package, Use};
use super::{direction, manifests, problems, sources};

fn package(name: &str, used: &str, in_tests: bool, ours: bool) -> Package {
    let uses = vec![Use { name: used.to_owned(), in_tests, ours }];
    Package { name: name.to_owned(), manifest: String::new(), uses }
}

fn arrows(name: &str, used: &str, in_tests: bool, ours: bool) -> usize {
    direction::check(&[package(name, used, in_tests, ours)]).len()
}

#[test]
fn the_tree_is_tidy() {
    let found = problems().expect("the tree can be read");
    assert!(found.is_empty(), "{}", found.join("\n"));
}

#[test]
fn arrows_point_one_way() {
    assert_eq!(arrows("atoll-engine", "atoll-core", false, true), 0);
    assert_eq!(arrows("atoll-core", "atoll-engine", false, true), 1);
    assert_eq!(arrows("atoll-opensandbox", "atoll-store", false, true), 1);
    assert_eq!(arrows("atoll-opensandbox", "atoll-store", true, true), 0, "tests may");
    assert_eq!(arrows("atoll-cli", "atoll-agent", true, true), 1, "not even tests may");
}

#[test]
fn libraries_stay_in_their_place() {
    assert_eq!(arrows("atoll-engine", "axum", false, false), 1);
    assert_eq!(arrows("atoll-engine", "axum", true, false), 0);
    assert_eq!(arrows("atoll-server", "axum", false, false), 0);
    assert_eq!(arrows("atoll-core", "serde", false, false), 1, "core is pure");
}

#[test]
fn a_crate_without_a_row_is_named() {
    let found = direction::check(&[package("atoll-new", "libc", false, false)]);
    assert_eq!(found.len(), 1);
    assert!(found[0].starts_with("atoll-new:"), "{found:?}");
}

#[test]
fn a_manifest_takes_lints_and_versions_from_the_workspace() {
    let good = "[lints]\nworkspace = true\n[dependencies]\nserde.workspace = true\n";
    assert_eq!(manifests::check("good", good), Vec::<String>::new());
    let bad = "[dependencies]\nserde = \"1\"\n[dev-dependencies]\nx = { path = \"../x\" }\n";
    assert_eq!(manifests::check("bad", bad).len(), 3);
    assert_eq!(manifests::check("broken", "[").len(), 1);
}

#[test]
fn files_are_short_well_named_and_finished() {
    let long = "\n".repeat(601);
    assert_eq!(sources::check("crates/core/src/x.rs", &long).len(), 1);
    assert_eq!(sources::check("crates/core/src/x/tests.rs", &long).len(), 0);
    assert_eq!(sources::check("crates/core/src/x/mod.rs", "").len(), 1);
    let note = format!("// {}: later", ["TO", "DO"].concat());
    assert_eq!(sources::check("README.md", &note).len(), 1);
}

#[test]
fn raw_system_calls_have_two_homes() {
    let call = ["let x = un", "safe { f() };"].concat();
    assert_eq!(sources::check("crates/core/src/x.rs", &call).len(), 1);
    assert_eq!(sources::check("crates/guest/src/x.rs", &call).len(), 0);
    let comment = ["// un", "safe { } is not used here"].concat();
    assert_eq!(sources::check("crates/core/src/x.rs", &comment).len(), 0);
}
