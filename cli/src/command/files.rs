//! Files that a command writes, and tables that it writes over.

use super::error::{CommandError, Result};
use crate::output;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use symmem::tuning::Table;

/// Fails where a file could not be written later, before any time is spent on what would be in it.
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
    Ok(())
}

/// The table that a file has; none where there is no file yet.
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

/// Fails where a table could not be written later over what the file has.
pub fn check_table(file: &Path) -> Result<()> {
    check_writable(file)?;
    read_table(file).map(drop)
}

/// Results that were written, to be told of after what is printed.
///
/// Files come before printed text, so that they are there even if nobody reads the text to its end.
#[derive(Default)]
pub struct Written(Vec<PathBuf>);

impl Written {
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
    }
}
