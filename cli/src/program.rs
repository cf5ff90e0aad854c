//! How this program is started again: for ranks, and for their supervisor.

use std::ffi::OsString;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::sync::OnceLock;

/// A file, and the arguments that come before all others.
#[derive(Clone, Debug)]
pub struct Program {
    pub file: PathBuf,
    pub arguments: Vec<OsString>,
}

static NAMED: OnceLock<Program> = OnceLock::new();

/// Names the program of this process, where its file alone does not start it: a script of an interpreter. The first call counts.
pub fn name(file: PathBuf, arguments: Vec<OsString>) {
    NAMED.get_or_init(|| Program { file, arguments });
}

/// Returns the program of this process.
///
/// # Errors
/// If nothing named it and the system does not tell its file.
pub fn this() -> io::Result<Program> {
    match NAMED.get() {
        Some(named) => Ok(named.clone()),
        None => Ok(Program {
            file: std::env::current_exe()?,
            arguments: Vec::new(),
        }),
    }
}

impl Program {
    /// Returns a command that starts it.
    pub fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.args(&self.arguments);
        command
    }
}
