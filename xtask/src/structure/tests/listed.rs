//! Tests the comparison of crates, folders and files with the list.

use super::{list, read};

const ROOT: &str = "[package]\nname = \"upper\"\nversion = \"0.0.0\"\nedition = \"2024\"\n\
     [workspace]\nmembers = [\"lower\", \"tests/fake\", \"xtask\"]\n\
     [dependencies]\nlower = { path = \"lower\" }\n[dev-dependencies]\nfake = { path = \"tests/fake\" }\n";

fn manifest(name: &str, rest: &str) -> String {
    format!("[package]\nname = \"{name}\"\nversion = \"0.0.0\"\nedition = \"2024\"\n{rest}")
}

/// A workspace in which `upper` uses `lower`, and `fake` in tests; `xtask` uses both.
fn workspace(root: &str, files: &[(&str, &str)]) -> super::Source {
    let [lower, fake] = ["lower", "fake"].map(|name| manifest(name, ""));
    let xtask = manifest("xtask", "[dependencies]\nupper = { path = \"..\" }\n");
    let mut all = vec![
        ("Cargo.toml", root),
        ("src/lib.rs", ""),
        ("lower/Cargo.toml", &lower),
        ("lower/src/lib.rs", "pub struct Low;"),
        ("tests/fake/Cargo.toml", &fake),
        ("tests/fake/src/lib.rs", ""),
        ("xtask/Cargo.toml", &xtask),
        ("xtask/src/main.rs", ""),
    ];
    all.extend(files);
    read(&all)
}

#[test]
fn listed_crates_and_edges_pass() {
    let source = workspace(ROOT, &[]);
    let list = list("[crates]\nupper = [\"lower\"]\nlower = []");
    assert_eq!(source.compare(&list), [""; 0]);
}

#[test]
fn an_edge_between_crates_that_is_not_listed_is_found() {
    let source = workspace(ROOT, &[]);
    assert_eq!(
        source.compare(&list("[crates]\nupper = []\nlower = []")),
        ["crate upper may not depend on lower: [crates] in xtask/structure.toml does not allow it"]
    );
    let build = ROOT.replace("[dependencies]", "[build-dependencies]");
    let found = workspace(&build, &[]).compare(&list("[crates]\nupper = []\nlower = []"));
    assert_eq!(found.len(), 1, "{found:?}");
    let fake = ROOT.replace("[dev-dependencies]", "");
    let found = workspace(&fake, &[]).compare(&list("[crates]\nupper = [\"lower\"]\nlower = []"));
    assert!(
        found[0].starts_with("crate upper may not depend on fake"),
        "{found:?}"
    );
}

#[test]
fn a_crate_that_is_not_listed_and_a_listed_one_that_is_absent_are_found() {
    let source = workspace(ROOT, &[]);
    let found = source.compare(&list("[crates]\nupper = [\"lower\"]\ngone = []"));
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(found[0].starts_with("crate lower is not in the list: add it to [crates]"));
    assert!(found[1].starts_with("crate gone is in [crates]"));
}

#[test]
fn a_renamed_dependency_is_found() {
    let root = ROOT.replace("lower = {", "other = { package = \"lower\",");
    let source = workspace(&root, &[]);
    let found = source.compare(&list("[crates]\nupper = [\"lower\"]\nlower = []"));
    assert!(
        found.len() == 1 && found[0].starts_with("crate upper renames its dependency lower"),
        "{found:?}"
    );
}

const ONLY: &str =
    "[crates]\nupper = [\"lower\"]\nlower = []\n[only]\nlower = [\"src/entry.rs\"]\n";

#[test]
fn a_crate_may_be_named_by_the_listed_files_only() {
    let lib = ("src/lib.rs", "mod entry; mod other;");
    let entry = ("src/entry.rs", "pub use lower::Low;");
    let source = workspace(
        ROOT,
        &[lib, entry, ("src/other.rs", "use crate::entry::Low;")],
    );
    assert_eq!(source.compare(&list(ONLY)), [""; 0]);
    for fault in [
        "use lower::Low;",
        "pub use lower::Low;",
        "pub use ::lower;",
        "pub fn f() -> lower::Low { loop {} }",
        "pub fn f() { drop(vec![lower::Low]) }",
        "extern crate lower;",
    ] {
        let source = workspace(ROOT, &[lib, entry, ("src/other.rs", fault)]);
        assert_eq!(
            source.compare(&list(ONLY)),
            ["src/other.rs names lower: only src/entry.rs may ([only] in xtask/structure.toml)"],
            "{fault}"
        );
    }
}

#[test]
fn a_place_that_does_not_name_its_crate_is_found() {
    let source = workspace(
        ROOT,
        &[
            ("src/lib.rs", "mod entry;"),
            ("src/entry.rs", "mod lower {}"),
        ],
    );
    assert_eq!(
        source.compare(&list(ONLY)),
        ["src/entry.rs does not name lower: remove it from [only] in xtask/structure.toml"]
    );
}

const ROWS: &str = "[crates]\nprobe = []\n[folders]\n\
     probe = [\"base\", \"bootstrap\", \"health\", \"rank\", \"builder\"]\n";

/// A crate with one folder or file per row.
fn rows(faults: &[(&str, &str)]) -> Vec<String> {
    let mut files = vec![
        (
            "src/lib.rs",
            "mod base; mod bootstrap; mod health; mod rank; mod builder; pub use rank::Rank;",
        ),
        ("src/base/mod.rs", "pub mod limits;"),
        ("src/base/limits.rs", "pub const MOST: u8 = 9;"),
        (
            "src/bootstrap.rs",
            "use crate::base::limits::MOST; pub const N: u8 = MOST;",
        ),
        (
            "src/health/mod.rs",
            "mod page; pub use page::Page; pub struct Watcher;",
        ),
        (
            "src/health/page.rs",
            "use super::Watcher; pub struct Page(Watcher);",
        ),
        (
            "src/rank.rs",
            "use crate::{base::limits::MOST, health::Page}; pub struct Rank; pub fn f(_: Page) -> u8 { MOST }",
        ),
        (
            "src/builder.rs",
            "pub fn build() -> crate::Rank { loop {} }",
        ),
    ];
    files.extend(faults);
    read(&files).compare(&list(ROWS))
}

#[test]
fn imports_from_the_own_folder_and_from_rows_before_it_pass() {
    assert_eq!(rows(&[]), [""; 0]);
}

#[test]
fn an_import_from_a_later_row_is_found() {
    assert_eq!(
        rows(&[(
            "src/base/limits.rs",
            "pub const MOST: u8 = 9; pub fn f(_: crate::health::Page) {}"
        )]),
        [
            "src/base/limits.rs -> src/health/page.rs: Page: base may not import from health, which is above it in [folders] of xtask/structure.toml"
        ]
    );
}

#[test]
fn an_import_through_the_root_counts_by_its_definition() {
    let found = rows(&[("src/bootstrap.rs", "use crate::Rank; pub struct B(Rank);")]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].contains("bootstrap may not import from rank"),
        "{found:?}"
    );
}

#[test]
fn an_import_from_the_root_itself_is_found() {
    let found = rows(&[
        (
            "src/lib.rs",
            "mod base; mod bootstrap; mod health; mod rank; mod builder; pub struct Top;",
        ),
        ("src/builder.rs", "use crate::Top; pub struct B(Top);"),
    ]);
    assert_eq!(found.len(), 1, "{found:?}");
    assert!(
        found[0].starts_with("src/builder.rs -> src/lib.rs: Top: the root of a crate"),
        "{found:?}"
    );
}

#[test]
fn a_folder_without_a_row_and_a_row_without_a_folder_are_found() {
    let found = rows(&[
        (
            "src/lib.rs",
            "mod base; mod bootstrap; mod health; mod rank; mod extra;",
        ),
        ("src/extra.rs", ""),
        ("src/builder.rs", ""),
    ]);
    assert_eq!(found.len(), 2, "{found:?}");
    assert!(
        found[0].starts_with("probe: extra has no row: add it"),
        "{found:?}"
    );
    assert!(
        found[1].starts_with("probe: builder is a row of [folders]"),
        "{found:?}"
    );
}
