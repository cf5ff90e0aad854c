//! Tests the count of packages that a crate brings into a program.

use super::{list, workspace};
use crate::structure::packages;

const ROOT: &str = "[package]\nname = \"upper\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
     [workspace]\nmembers = [\"lower\", \"table\", \"fake\"]\n\
     [features]\nextra = [\"dep:table\"]\n\
     [dependencies]\nlower = { path = \"lower\" }\ntable = { path = \"table\", optional = true }\n\
     [dev-dependencies]\nfake = { path = \"fake\" }\n";

/// A workspace in which `upper` brings `lower`, and `table` with a feature that `root` may make a default.
fn check(root: &str, rows: &str) -> Vec<String> {
    let manifest = |name: &str| {
        format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n")
    };
    let [lower, table, fake] = ["lower", "table", "fake"].map(manifest);
    let scratch = workspace(&[
        ("Cargo.toml", root),
        ("src/lib.rs", ""),
        ("lower/Cargo.toml", &lower),
        ("lower/src/lib.rs", ""),
        ("table/Cargo.toml", &table),
        ("table/src/lib.rs", ""),
        ("fake/Cargo.toml", &fake),
        ("fake/src/lib.rs", ""),
    ]);
    let list = list(&format!("[crates]\n[packages]\n{rows}"));
    packages::check(scratch.path(), &list).unwrap()
}

#[test]
fn what_a_program_would_not_build_does_not_count() {
    let rows = "lower = { most = 1 }\nupper = { most = 2, without = [\"table\", \"fake\"] }";
    assert_eq!(check(ROOT, rows), [""; 0]);
}

#[test]
fn one_package_too_many_is_found_and_all_are_named() {
    assert_eq!(
        check(ROOT, "upper = { most = 1 }"),
        [
            "crate upper brings 2 packages into a program, and [packages] in xtask/structure.toml allows 1: \
             lower v0.0.0, upper v0.0.0"
        ]
    );
}

#[test]
fn a_refused_package_is_found_once_it_comes_by_default() {
    let root = ROOT.replace("[features]\n", "[features]\ndefault = [\"extra\"]\n");
    assert_eq!(
        check(&root, "upper = { most = 3, without = [\"table\"] }"),
        ["crate upper brings table into a program: [packages] in xtask/structure.toml forbids it"]
    );
}
