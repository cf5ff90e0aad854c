//! Files that a command writes.

use super::{CommandError, Result};
use std::path::Path;

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

/// Writes a file and says so on standard error.
pub fn write(file: &Path, text: &str) -> Result<()> {
    std::fs::write(file, text).map_err(|error| CommandError::System {
        what: format!("writing {}", file.display()),
        error,
    })?;
    eprintln!("wrote {}", file.display());
    Ok(())
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
