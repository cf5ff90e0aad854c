//! Compares the packages that a crate brings into a program with the list.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use super::list::List;
use crate::error::Result;
use crate::tools;

const LIST: &str = "xtask/structure.toml";

/// Asks Cargo for the packages of each listed crate and compares them with the list. Returns one line per difference.
pub fn check(root: &Path, list: &List) -> Result<Vec<String>> {
    let mut found = Vec::new();
    for (name, allowed) in &list.packages {
        let packages = of(root, name)?;
        let count = packages.len();
        if count > allowed.most {
            let names: Vec<&str> = packages.iter().map(String::as_str).collect();
            found.push(format!(
                "crate {name} brings {count} packages into a program, and [packages] in {LIST} allows {}: {}",
                allowed.most,
                names.join(", ")
            ));
        }
        for refused in &allowed.without {
            if packages.iter().any(|package| name_of(package) == refused) {
                found.push(format!(
                    "crate {name} brings {refused} into a program: [packages] in {LIST} forbids it"
                ));
            }
        }
    }
    Ok(found)
}

/// Returns the packages of crate `name` with default features, as `name version`. Includes the crate and procedural
/// macros, but not tests and build scripts.
fn of(root: &Path, name: &str) -> Result<BTreeSet<String>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    // The mark `package` tells packages from Cargo's warnings.
    command.args(["tree", "--offline", "--edges", "normal", "--prefix", "none"]);
    command.args(["--no-dedupe", "--format", "package {p}", "--package", name]);
    command.arg("--manifest-path").arg(root.join("Cargo.toml"));
    let text = tools::output(&mut command)?;
    let lines = text
        .lines()
        .filter_map(|line| line.strip_prefix("package "));
    // A folder or `(proc-macro)` may follow name and version.
    let package = |line: &str| line.split(' ').take(2).collect::<Vec<_>>().join(" ");
    Ok(lines.map(package).collect())
}

fn name_of(package: &str) -> &str {
    package.split(' ').next().unwrap_or(package)
}
