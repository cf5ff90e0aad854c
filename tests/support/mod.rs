//! Support for tests. A crate without the command takes the files that it needs.

#[allow(dead_code, reason = "not every test binary samples its cases")]
pub mod amount;
#[allow(
    dead_code,
    reason = "not every test binary divides a sample among worlds"
)]
pub mod divided;
pub mod fakes;
#[allow(dead_code, reason = "not every test binary has a use for HIP")]
pub mod hip;
#[allow(dead_code, reason = "not every test binary has ranks of its own")]
mod job;
#[allow(dead_code, reason = "not every test binary runs roles over both")]
pub mod vendors;
pub mod worlds;

pub use fakes::*;
pub use job::{job, rank};

use std::io::Write;
use std::path::Path;

/// Reports that this test skipped its work, or a part of it, and why. Writes to stderr itself, because the harness
/// hides the output of tests that pass.
#[allow(
    dead_code,
    reason = "not every test binary has a test that can be skipped"
)]
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// Whether ranks over the fake driver may ask for multicast here; reports the reason if not.
#[allow(dead_code, reason = "few test binaries ask for it")]
pub fn permitted() -> bool {
    let why = if std::env::var("SYMMEM_TEST_DRIVER").is_ok_and(|driver| driver == "system") {
        Some("SYMMEM_TEST_DRIVER=system is not a fake driver".to_owned())
    } else {
        forbidden_here()
    };
    if let Some(why) = &why {
        skipped(&format!("multicast over the fake driver: {why}"));
    }
    why.is_none()
}

/// Returns what forbids multicast in this process, if anything.
#[cfg(feature = "cuda")]
fn forbidden_here() -> Option<String> {
    let switches = symmem_cli::doctor::Machine::switches();
    let forbids = switches.into_iter().find(|switch| switch.forbids);
    forbids.map(|switch| format!("{} forbids it here", switch.name))
}

#[cfg(not(feature = "cuda"))]
fn forbidden_here() -> Option<String> {
    Some("the CUDA backend is not built".into())
}

/// Returns the names in such a record.
#[allow(dead_code, reason = "as above")]
pub fn looked_up(record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(' '));
    names.map(|(_, name)| name.to_owned()).collect()
}
