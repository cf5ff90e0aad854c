//! `cargo xtask api`: compares the public API of the published crates with its snapshots.
//!
//! The snapshots are text files with one line per public item, so a change of the API shows in the diff of its commit.
//! `cargo xtask api --write` rewrites them. rustdoc describes each crate as JSON, and the crate `public-api` turns that
//! into lines. They omit blanket and automatic implementations (`Send`, `Into`, …).
//!
//! - rustdoc's JSON is unstable: each `public-api` reads the format of some nightly toolchains only. `.ci/steps` pins
//!   the toolchain, and this command reads its name there. Raising one may require raising the other.
//! - Each crate is described with its default features. An item that `symmem` re-exports from `symmem-core` is one
//!   line in the snapshot of `symmem`; the snapshot of `symmem-core` has its fields and methods.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result, at};
use crate::tools;

/// The crates with a stable API, for programs and for plugin authors.
const CRATES: [&str; 2] = ["symmem", "symmem-core"];

/// The build directory, relative to the repository's root. It is not `target`, whose lock the build that runs this
/// command may hold.
const TARGET: &str = "target/api";

/// The variable in `.ci/steps` that holds the pinned toolchain.
const PIN: &str = "nightly=";

/// What to do with the snapshots.
#[derive(clap::Args)]
pub struct Options {
    /// Rewrite the snapshots instead of checking them
    #[arg(long)]
    write: bool,
}

/// Checks or rewrites the snapshots of all crates. All mismatches are reported together.
pub fn run(options: &Options) -> Result<()> {
    let root = tools::root();
    let toolchain = toolchain(&root)?;
    let mut mismatches = Vec::new();
    for name in CRATES {
        let api = public_api(&root, &toolchain, name)?;
        let file = format!("xtask/api/{name}.txt");
        let path = root.join(&file);
        if options.write {
            at(&path, std::fs::write(&path, &api))?;
        } else {
            let snapshot = at(&path, std::fs::read_to_string(&path))?;
            mismatches.extend(difference(&file, &snapshot, &api));
        }
        println!("{name}: {} public items in {file}", api.lines().count());
    }
    if mismatches.is_empty() {
        Ok(())
    } else {
        Err(Error::Api(mismatches))
    }
}

/// Returns the name of the toolchain that `.ci/steps` pins, or an error if it is not installed.
pub fn toolchain(root: &Path) -> Result<String> {
    let steps = root.join(".ci/steps");
    let text = at(&steps, std::fs::read_to_string(&steps))?;
    let Some(name) = text.lines().find_map(|line| line.strip_prefix(PIN)) else {
        let what = format!("no line starts with `{PIN}`, which pins the nightly toolchain");
        return Err(Error::Source { path: steps, what });
    };
    let mut rustc = Command::new("rustup");
    rustc.args(["run", name, "rustc", "--version"]);
    match tools::output(&mut rustc) {
        Ok(_) => Ok(name.to_owned()),
        Err(_) => Err(Error::ToolchainMissing(name.to_owned())),
    }
}

/// Returns the public API of one crate, one line per item.
fn public_api(root: &Path, toolchain: &str, name: &str) -> Result<String> {
    let path = describe(root, toolchain, name)?;
    public_api::Builder::from_rustdoc_json(&path)
        .omit_blanket_impls(true)
        .omit_auto_trait_impls(true)
        .build()
        .map(|api| api.to_string())
        .map_err(|source| Error::ApiUnread {
            toolchain: toolchain.to_owned(),
            path,
            source,
        })
}

/// Runs rustdoc to describe a crate as JSON, and returns the file's path.
fn describe(root: &Path, toolchain: &str, name: &str) -> Result<PathBuf> {
    let mut cargo = Command::new("rustup");
    cargo
        .args(["run", toolchain, "cargo", "rustdoc", "--lib", "--package"])
        .args([name, "--target-dir", TARGET, "--"])
        .args(["-Zunstable-options", "--output-format", "json"])
        // The snapshot does not depend on the lints of a newer rustdoc.
        .args(["--cap-lints", "allow"])
        .current_dir(root);
    // The output must not depend on the caller's build flags.
    for variable in ["CARGO_BUILD_TARGET", "RUSTDOCFLAGS", "RUSTFLAGS"] {
        cargo.env_remove(variable);
    }
    tools::output(&mut cargo)?;
    let file = name.replace('-', "_") + ".json";
    Ok(root.join(TARGET).join("doc").join(file))
}

/// Returns a unified diff from the snapshot to the API, or `None` if they are equal.
pub fn difference(file: &str, snapshot: &str, api: &str) -> Option<String> {
    (snapshot != api).then(|| {
        similar::TextDiff::from_lines(snapshot, api)
            .unified_diff()
            // The line above often names the implementation that an item belongs to.
            .context_radius(1)
            .header(file, "the public API now")
            .to_string()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNAPSHOT: &str = "pub fn f()\npub fn g()\npub fn h()\n";

    #[test]
    fn an_equal_snapshot_makes_no_difference() {
        assert_eq!(difference("f", SNAPSHOT, SNAPSHOT), None);
    }

    #[test]
    fn a_line_that_the_snapshot_lacks_is_shown_as_added() {
        let shown = difference("f", "pub fn f()\npub fn h()\n", SNAPSHOT).unwrap();
        assert!(shown.contains("\n+pub fn g()\n"), "{shown}");
        assert!(!shown.contains("\n-pub"), "{shown}");
    }

    #[test]
    fn a_line_that_only_the_snapshot_has_is_shown_as_removed() {
        let shown = difference("f", SNAPSHOT, "pub fn f()\npub fn h()\n").unwrap();
        assert!(shown.contains("\n-pub fn g()\n"), "{shown}");
        assert!(!shown.contains("\n+pub"), "{shown}");
    }

    #[test]
    fn one_of_two_equal_lines_may_not_disappear() {
        // A type with `Debug` and `Display` has two equal lines for `fmt`.
        let shown = difference("f", "pub fn f()\npub fn f()\n", "pub fn f()\n").unwrap();
        assert!(shown.contains("\n-pub fn f()\n"), "{shown}");
    }

    #[test]
    fn an_empty_snapshot_differs() {
        assert!(difference("f", "", SNAPSHOT).is_some());
    }
}
