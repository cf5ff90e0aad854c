//! `cargo xtask conformance`: runs the conformance suite, the sample or every case, and prints the counts.

use std::path::Path;
use std::process::Command;

use serde::Deserialize;

use crate::error::{Error, Result, at};
use crate::tools::{Scratch, root};

/// The command's options.
#[derive(clap::Args)]
pub struct Options {
    /// Run every case of every world instead of the sample, compiled with optimizations. Takes hours on two cores,
    /// since there are millions of cases.
    #[arg(long)]
    full: bool,
    /// Run only worlds whose test name contains this, such as `Backend__Host::world_2`.
    #[arg(default_value = "")]
    filter: String,
}

/// A line of the file with totals: one world.
#[derive(Deserialize)]
struct Line {
    world: String,
    /// The number of all cases of this world.
    all: u64,
    totals: Totals,
}

#[derive(Deserialize)]
struct Totals {
    passed: u64,
    skipped: std::collections::BTreeMap<String, u64>,
    failed: u64,
}

/// Runs the suite and prints the counts; blocks until it has ended.
pub fn run(options: Options) -> Result<()> {
    let scratch = Scratch::new("conformance")?;
    let file = scratch.path().join("totals.json");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--package", "symmem", "--no-fail-fast"]);
    command.args(["--test", "conformance", "--test", "collectives"]);
    for subject in ["products", "norms", "reduced_products"] {
        command.args(["--test", &format!("conformance_{subject}")]);
    }
    if options.full {
        command.arg("--release");
    }
    command.args(["--", &options.filter]);
    command
        .current_dir(root())
        .env("SYMMEM_CONFORMANCE_TOTALS", &file);
    command.env("SYMMEM_TESTS", if options.full { "all" } else { "long" });
    // The output goes to the terminal, since the run takes long.
    let status = at(Path::new("cargo"), command.status())?;
    let text = if file.is_file() {
        at(&file, std::fs::read_to_string(&file))?
    } else {
        String::new()
    };
    let mut lines = Vec::new();
    for line in text.lines() {
        let line: Line = serde_json::from_str(line).map_err(|source| Error::Manifest {
            path: file.clone(),
            source,
        })?;
        lines.push(line);
    }
    print(&lines, options.full);
    if status.success() {
        Ok(())
    } else {
        Err(Error::ToolFailed {
            command: format!("{command:?}"),
            output: status.to_string(),
        })
    }
}

fn print(worlds: &[Line], full: bool) {
    let (mut passed, mut failed, mut skipped, mut all) = (0, 0, 0, 0);
    let mut reasons = std::collections::BTreeMap::<&str, u64>::new();
    for Line {
        world,
        all: here,
        totals,
    } in worlds
    {
        let skips: u64 = totals.skipped.values().sum();
        println!(
            "{world:24} {:7} passed {skips:7} skipped {:4} failed, of {here}",
            totals.passed, totals.failed
        );
        for (reason, count) in &totals.skipped {
            *reasons.entry(reason).or_default() += count;
        }
        passed += totals.passed;
        failed += totals.failed;
        skipped += skips;
        all += here;
    }
    for (reason, count) in reasons {
        println!("skipped {count}: {reason}");
    }
    println!(
        "{} {} cases of {all} in {} worlds: {passed} passed, {skipped} skipped, {failed} failed",
        if full { "full:" } else { "sample:" },
        passed + failed + skipped,
        worlds.len(),
    );
}
