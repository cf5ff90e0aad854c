//! Kernel images as they are committed: each one compressed by itself, so that a rebuild's diff has the size of what
//! changed, and read by the decoder of the library.
//!
//! The format is zstd's. xz saves a seventh more, and decompresses many times slower. DEFLATE and LZ4 look back 32 and
//! 64 KiB, less than the distance between two kernels that differ in their element type, and make twice as many bytes.

use std::path::Path;
use std::process::Command;

use symmem_kernels_image::decompress;

use crate::error::{Error, Result, at};
use crate::tools;

/// Behind the name of an image.
pub const EXTENSION: &str = "zst";

/// zstd's highest ordinary level. The highest of all, `--ultra -22`, would save 300 of 2 million bytes.
const LEVEL: &str = "-19";

/// Writes a file's bytes to `target`: compressed if its name says so.
pub fn store(source: &Path, target: &Path) -> Result<()> {
    let bytes = if is_compressed(target) {
        compress(source)?
    } else {
        at(source, std::fs::read(source))?
    };
    at(target, std::fs::write(target, bytes))
}

/// Reads a file's bytes: decompressed if its name says that they are compressed.
pub fn read(path: &Path) -> Result<Vec<u8>> {
    let bytes = at(path, std::fs::read(path))?;
    if !is_compressed(path) {
        return Ok(bytes);
    }
    let image = decompress(&bytes).map_err(|source| Error::Image {
        path: path.to_owned(),
        source,
    })?;
    Ok(image.to_vec())
}

fn is_compressed(path: &Path) -> bool {
    path.extension().is_some_and(|found| found == EXTENSION)
}

/// One frame, with the size of its contents and a checksum, both of which the decoder wants. Threads would make the
/// bytes depend on the machine.
fn compress(path: &Path) -> Result<Vec<u8>> {
    let zstd = tools::zstd()?;
    let mut command = Command::new(&zstd);
    command
        .args([LEVEL, "--check", "--single-thread", "--quiet", "--stdout"])
        .arg(path);
    let result = at(&zstd, command.output())?;
    if result.status.success() {
        Ok(result.stdout)
    } else {
        Err(Error::ToolFailed {
            command: format!("{command:?}"),
            output: String::from_utf8_lossy(&result.stderr).into_owned(),
        })
    }
}

#[cfg(test)]
mod tests;
