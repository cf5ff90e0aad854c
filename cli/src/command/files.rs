//! The files that a command writes, and checks that it can write them.

use super::error::{CommandError, Result};
use crate::output;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::OpenOptions;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use symmem::tuning::Table;

/// The destination of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Standard output, which then carries nothing else.
    Standard,
    File(PathBuf),
}

impl From<OsString> for Target {
    fn from(text: OsString) -> Self {
        match text == "-" {
            true => Self::Standard,
            false => Self::File(text.into()),
        }
    }
}

impl Target {
    pub fn is_standard(&self) -> bool {
        *self == Self::Standard
    }

    /// Fails if the target is not writable. Called before anything is measured. Reserves standard output for the
    /// result if the result goes there.
    pub fn check(&self) -> Result<()> {
        match self {
            Self::Standard => {
                output::keep_for_data();
                Ok(())
            }
            Self::File(file) => check_writable(file),
        }
    }
}

/// Fails if a file is not writable. Called before anything is measured.
pub fn check_writable(file: &Path) -> Result<()> {
    let directory = match file.parent() {
        Some(directory) if !directory.as_os_str().is_empty() => directory,
        _ => Path::new("."),
    };
    if file.is_dir() || !directory.is_dir() {
        return Err(CommandError::Said(format!(
            "{} cannot be written: name a file in a directory that exists",
            file.display()
        )));
    }
    let tried = match std::fs::metadata(file) {
        // Opening a pipe and closing it would signal end of file to its reader.
        Ok(there) if !there.is_file() => Ok(()),
        Ok(_) => OpenOptions::new().append(true).open(file).map(drop),
        // Only creating a file shows that the directory allows it.
        Err(_) => OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(file)
            .and_then(|_| std::fs::remove_file(file)),
    };
    tried.map_err(|error| unwritable(file, &error))
}

/// Fails if the directory can neither be created later nor takes files.
pub fn check_directory(directory: &Path) -> Result<()> {
    let whole = std::path::absolute(directory).map_err(|error| unwritable(directory, &error))?;
    let there = whole.ancestors().find(|ancestor| ancestor.exists());
    match there {
        Some(there) if there.is_dir() => {
            let probe = there.join(format!(".symmem-{}", std::process::id()));
            check_writable(&probe).map_err(|_| {
                CommandError::Said(format!(
                    "{} cannot be written: name a writable directory",
                    directory.display()
                ))
            })
        }
        _ => Err(CommandError::Said(format!(
            "{} is not a directory; name one, or a new one below a directory",
            directory.display()
        ))),
    }
}

fn unwritable(file: &Path, error: &std::io::Error) -> CommandError {
    CommandError::Said(format!(
        "{} cannot be written ({error}); name another file",
        file.display()
    ))
}

/// Reads a tuning table; empty if the file does not exist.
pub fn read_table(file: &Path) -> Result<Table> {
    match std::fs::read_to_string(file) {
        Ok(text) => Table::from_json(&text)
            .map_err(|error| CommandError::Said(format!("{}: {error}", file.display()))),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(Table::default()),
        Err(error) => Err(CommandError::System {
            what: format!("reading {}", file.display()),
            error,
        }),
    }
}

/// Fails if the file is not writable or does not hold a tuning table. Called before anything is measured.
pub fn check_table(file: &Path) -> Result<()> {
    check_writable(file)?;
    read_table(file).map(drop)
}

/// The files that were written; [`Self::tell`] names them after everything else is printed.
///
/// A command writes files before it prints text, so that a closed pipe loses no file.
#[derive(Default)]
pub struct Written(Vec<PathBuf>);

impl Written {
    /// Writes to a file or to standard output.
    pub fn write_to(&mut self, target: &Target, text: &str) -> Result<()> {
        match target {
            Target::Standard => Ok(output::data(text)?),
            Target::File(file) => self.write(file, text),
        }
    }

    /// Writes a file.
    pub fn write(&mut self, file: &Path, text: &str) -> Result<()> {
        std::fs::write(file, text).map_err(|error| CommandError::System {
            what: format!("writing {}", file.display()),
            error,
        })?;
        self.0.push(file.into());
        Ok(())
    }

    /// Names the files on standard error.
    pub fn tell(self) -> Result<()> {
        for file in self.0 {
            output::note(format_args!("wrote {}", file.display()))?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_needs_a_directory_and_must_not_be_one() {
        assert!(check_writable(Path::new("new-file.json")).is_ok());
        assert!(check_writable(Path::new("/no/such/directory/file.json")).is_err());
        assert!(check_writable(&std::env::temp_dir()).is_err());
        assert!(check_writable(Path::new("/proc/new-file.json")).is_err());
        assert!(check_writable(Path::new("/dev/null")).is_ok());
        assert!(!Path::new("new-file.json").exists());
    }

    #[test]
    fn a_directory_may_be_yet_to_be_made_but_not_below_a_file() {
        assert!(check_directory(&std::env::temp_dir().join("new/directory")).is_ok());
        assert!(check_directory(Path::new("Cargo.toml/results")).is_err());
        assert!(check_directory(Path::new("/proc/results")).is_err());
    }
}
