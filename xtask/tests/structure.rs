//! Tests output and exit code of `cargo xtask structure`.

use std::path::PathBuf;
use std::process::{Command, Output};

/// Runs the check on a crate of two files, whose second file has the text `other`.
fn check(name: &str, other: &str) -> Output {
    let root = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(root.join("src")).unwrap();
    let manifest = "[package]\nname = \"probe\"\nversion = \"0.0.0\"\n[workspace]\n";
    for (path, text) in [
        ("Cargo.toml", manifest),
        (
            "src/lib.rs",
            "mod other; pub struct Own; pub fn f() { other::g() }",
        ),
        ("src/other.rs", other),
    ] {
        std::fs::write(root.join(path), text).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    command
        .args(["structure", "--circles-only", "--root"])
        .arg(root);
    command.output().unwrap()
}

#[test]
fn structure_succeeds_without_a_circle() {
    let output = check("straight", "pub fn g() {}");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(text, "crates: 1, files: 2, edges: 1, circles: 0\n");
}

#[test]
fn structure_fails_with_a_circle_and_names_its_edges() {
    let output = check("circular", "pub fn g() { drop(crate::Own) }");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    for line in [
        "src/lib.rs -> src/other.rs: g",
        "src/other.rs -> src/lib.rs: Own",
    ] {
        assert!(text.contains(line), "{text}");
    }
}
