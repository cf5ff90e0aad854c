//! Compression of committed kernel images. Each image is compressed separately, so that a rebuild's diff contains only
//! changed images. The library's decoder reads them.
//!
//! The format is zstd. xz saves a seventh more, but decompresses many times slower. DEFLATE and LZ4 look back 32 and 64
//! KiB, less than the distance between two kernels that differ in element type, and produce twice as many bytes.

use std::path::Path;
use std::process::Command;

use symmem_kernels_image::decompress;

use crate::error::{Error, Result, at};
use crate::tools;

/// The file extension of an image.
pub const EXTENSION: &str = "zst";

/// zstd's highest regular level. `--ultra -22` would save only 300 of 2 million bytes.
const LEVEL: &str = "-19";

/// Writes a file's bytes to `target`, compressed if the name of `target` says so.
pub fn store(source: &Path, target: &Path) -> Result<()> {
    let bytes = if is_compressed(target) {
        compress(source)?
    } else {
        at(source, std::fs::read(source))?
    };
    at(target, std::fs::write(target, bytes))
}

/// Reads a file's bytes, decompressed if its name says that they are compressed.
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

/// Compresses a file to one frame with content size and checksum, which the decoder needs. Uses one thread, since the
/// bytes would otherwise depend on the machine.
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
