//! Why hosts cannot be made here.

use std::fmt;
use std::io::Write;
use std::process::Output;

/// The reason why this machine cannot have the hosts that were asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Skip(pub(crate) String);

impl Skip {
    /// Makes a reason of a test's own.
    pub fn new(reason: impl Into<String>) -> Self {
        Self(reason.into())
    }

    /// Prints that a test is left out, in the form that CI counts, past the test harness, which hides the output of
    /// tests that pass.
    pub fn tell(&self, test: &str) {
        let _ = writeln!(std::io::stderr(), "skipped: {test}: {self}");
    }
}

impl fmt::Display for Skip {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Skip {}

/// What iproute2 and nft print if the kernel lacks a feature or forbids it; anything else is a mistake in this crate.
const MISSING: [&str; 6] = [
    "qdisc kind is unknown",
    "Unknown device type",
    "not supported",
    "No such file or directory",
    "not permitted",
    "Permission denied",
];

/// Judges the end of a set-up command.
///
/// # Panics
/// If the command failed for another reason than a missing feature or permission.
pub fn judge(command: &str, output: &Output) -> Result<(), Skip> {
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.trim();
    match MISSING.iter().any(|text| said.contains(text)) {
        true => Err(Skip(format!("`{command}`: {said}"))),
        false => panic!("`{command}`: {}: {said}", output.status),
    }
}
