//! Shapes of GEMMs on the command line, and files of shapes.

use super::error::{CommandError, Result};
use serde::de::DeserializeOwned;
use std::path::{Path, PathBuf};

/// A heading in the help.
pub const SHAPE: &str = "One shape instead of --config";

/// Parses a number of rows or columns.
pub fn extent(text: &str) -> std::result::Result<usize, String> {
    let number = text.parse().ok().filter(|number| *number != 0);
    number.ok_or_else(|| "not a number of rows or columns; write 1 or more".into())
}

/// Parses a word that stands for a value in shape files.
pub fn word<T: DeserializeOwned>(text: &str) -> std::result::Result<T, String> {
    serde_json::from_value(text.into()).map_err(|error| error.to_string())
}

/// Checks the options of a shape, each with whether it was given: none of them, or at least all sizes.
pub fn check_given(sizes: [(&str, bool); 3], extra: &[(&str, bool)]) -> Result<()> {
    let given = sizes.iter().chain(extra).filter(|(_, given)| *given);
    let given: Vec<&str> = given.map(|(name, _)| *name).collect();
    let absent = sizes.iter().filter(|(_, given)| !given);
    let absent: Vec<&str> = absent.map(|(name, _)| *name).collect();
    if given.is_empty() || absent.is_empty() {
        return Ok(());
    }
    // Elsewhere, -n is the number of ranks.
    let ranks = match *given {
        ["-n"] => "; the number of ranks is --ranks here",
        _ => "",
    };
    Err(CommandError::Said(format!(
        "{} without {}: one shape needs -m, -n and -k{ranks}",
        given.join(" "),
        absent.join(" ")
    )))
}

/// Returns the shapes of the command line, or those of the files, which `parse` reads.
pub fn problems<P: Clone>(
    shapes: Vec<P>,
    files: &[PathBuf],
    parse: impl Fn(&str) -> std::result::Result<Vec<P>, String>,
) -> Result<Vec<P>> {
    match (shapes.is_empty(), files) {
        (false, []) => Ok(shapes),
        (false, _) => Err(CommandError::Said(
            "--config names shapes, and -m, -n and -k one shape; give one of both".into(),
        )),
        (true, []) => Err(CommandError::Said(
            "no shape; name one by -m M -n N -k K, or a file by --config FILE".into(),
        )),
        (true, files) => {
            let all: Result<Vec<_>> = files.iter().map(|file| read(file, &parse)).collect();
            Ok(all?.concat())
        }
    }
}

/// Reads a file's list of shapes.
fn read<P>(
    file: &Path,
    parse: impl Fn(&str) -> std::result::Result<Vec<P>, String>,
) -> Result<Vec<P>> {
    let text = std::fs::read_to_string(file).map_err(|error| {
        CommandError::Said(format!(
            "{} cannot be read ({error}); name a file of shapes, or one shape by -m M -n N -k K",
            file.display()
        ))
    })?;
    parse(&text).map_err(|what| CommandError::Said(format!("{}: {what}", file.display())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_that_cannot_be_used_is_named() {
        let error = read(Path::new("/no/such/file.json"), |_| Ok(vec![()])).unwrap_err();
        assert!(error.to_string().contains("/no/such/file.json"));
    }
}
