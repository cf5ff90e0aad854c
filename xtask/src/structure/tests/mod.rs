//! Tests the checks on small workspaces in a temporary folder, each with at most one fault.

mod circles;
mod counted;
mod listed;

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::list::List;
use super::{Options, Source, overlap, packages};
use crate::error::Result;
use crate::tools::{self, Scratch};

const MANIFEST: &str =
    "[package]\nname = \"probe\"\nversion = \"0.0.0\"\nedition = \"2024\"\n[workspace]\n";

/// Writes a workspace. A manifest is added unless `files` has one.
fn workspace(files: &[(&str, &str)]) -> Scratch {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let scratch = Scratch::new(&format!("structure-{number}")).unwrap();
    let write = |path: &str, text: &str| {
        let path = scratch.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("Cargo.toml", MANIFEST);
    for (path, text) in files {
        write(path, text);
    }
    scratch
}

fn read(files: &[(&str, &str)]) -> Source {
    let scratch = workspace(files);
    Source::read(scratch.path()).unwrap()
}

/// Returns the edges as `from -> to: names`, without folders and `.rs`.
fn edges(source: &Source) -> Vec<String> {
    let name = |path: &str| path.trim_end_matches(".rs").replace("src/", "");
    let mut found: Vec<String> = source
        .edges
        .between
        .iter()
        .map(|((from, to), names)| {
            let [from, to] = [from, to].map(|file| name(&source.model.files[file.0].path));
            let names: Vec<&str> = names.iter().map(String::as_str).collect();
            format!("{from} -> {to}: {}", names.join(", "))
        })
        .collect();
    found.sort();
    found
}

/// Reads a workspace and compares its edges and the files of its circles with the expected ones.
#[track_caller]
fn expect(files: &[(&str, &str)], expected_edges: &[&str], expected_circles: &[&str]) {
    let source = read(files);
    assert_eq!(edges(&source), expected_edges);
    let circles = super::circles::find(&source.model, &source.edges);
    let circles: Vec<String> = circles
        .iter()
        .map(|circle| {
            let files = circle.0.iter().map(|file| &source.model.files[file.0].path);
            let names = files.map(|path| path.trim_start_matches("src/").trim_end_matches(".rs"));
            names.collect::<Vec<_>>().join(" ")
        })
        .collect();
    assert_eq!(circles, expected_circles);
    assert_eq!(source.unresolved(), [""; 0]);
}

fn list(text: &str) -> List {
    toml::from_str(text).unwrap()
}

/// Runs the command on a crate of two files, whose second file has the text `other`; returns the counts, too.
fn command(other: &str) -> (Result<()>, String) {
    let scratch = workspace(&[
        (
            "src/lib.rs",
            "mod other; pub struct Own; pub fn f() { other::g() }",
        ),
        ("src/other.rs", other),
    ]);
    let summary = Source::read(scratch.path()).unwrap().summary();
    let result = super::run(&Options {
        root: Some(scratch.path().to_owned()),
        circles_only: true,
    });
    (result, summary)
}

#[test]
fn the_command_succeeds_without_a_circle_and_counts() {
    let (result, summary) = command("pub fn g() {}");
    result.unwrap();
    assert_eq!(summary, "crates: 1, files: 2, edges: 1, circles: 0");
}

#[test]
fn the_command_fails_with_a_circle_and_names_its_edges() {
    let (result, _) = command("pub fn g() { drop(crate::Own) }");
    let error = result.unwrap_err();
    for line in [
        "src/lib.rs -> src/other.rs: g",
        "src/other.rs -> src/lib.rs: Own",
    ] {
        assert!(error.to_string().contains(line), "{error}");
    }
}

#[test]
fn the_repository_keeps_to_its_list() {
    if crate::amount::too_long() {
        return;
    }
    let root = tools::root();
    let source = Source::read(&root).unwrap();
    let list = List::read(&root).unwrap();
    let mut found = source.compare(&list);
    found.extend(packages::check(&root, &list).unwrap());
    found.extend(source.unresolved());
    found.extend(overlap::measure(&root).unwrap().complaint());
    assert_eq!(found, [""; 0]);
}

#[test]
fn a_file_that_does_not_parse_is_named() {
    let scratch = workspace(&[("src/lib.rs", "mod a;"), ("src/a.rs", "fn (")]);
    let error = Source::read(scratch.path()).err().unwrap().to_string();
    assert!(error.starts_with("src/a.rs: "), "{error}");
}

#[test]
fn a_module_without_a_file_is_named() {
    let scratch = workspace(&[("src/lib.rs", "mod a;")]);
    let error = Source::read(scratch.path()).err().unwrap().to_string();
    assert!(
        error.contains("no file for `mod a`: add src/a.rs or src/a/mod.rs"),
        "{error}"
    );
}

#[test]
fn a_folder_without_a_workspace_is_an_error() {
    assert!(Source::read(Path::new("/nonexistent")).is_err());
}
