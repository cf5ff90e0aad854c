//! Checks of a plugin file, before the dynamic loader sees it.

use super::load_error::LoadError;
use super::shared_object;
use std::fs::{File, Metadata, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Whether a plugin file that every user may replace is loaded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum WorldWritable {
    /// A file or directory that every user may write is refused.
    #[default]
    Refuse,
    /// It is loaded; the caller trusts every user of the machine.
    Allow,
}

/// The permission of all users to write, in a file's mode.
const OTHERS_WRITE: u32 = 0o002;

/// Checks that `path` is a whole shared object for this machine, which not every user may replace if `world_writable`
/// says so.
///
/// Both the directory of `path` and that of the file behind symbolic links count, because who may write one of them
/// may put another file there. A sticky bit, as of `/tmp`, does not help: the file may be another user's. Directories
/// above these two are not examined, nor those of links between, nor the rights of groups.
///
/// A file that changes between this check and its loading is not noticed: a plugin must be replaced by renaming.
///
/// # Errors
/// [`LoadError`] with the file and the first thing that is wrong.
pub(super) fn check(path: &Path, world_writable: WorldWritable) -> Result<(), LoadError> {
    let failed = |call| {
        move |source| LoadError::NotReadable {
            path: path.into(),
            call,
            source,
        }
    };
    // Opening a FIFO or device may block or act, so its type is checked first.
    let behind = std::fs::metadata(path).map_err(failed("stat"))?;
    if !behind.is_file() {
        return Err(LoadError::NotAFile {
            path: path.into(),
            found: kind_of(&behind),
        });
    }
    if world_writable == WorldWritable::Refuse {
        let behind_links = std::fs::canonicalize(path).map_err(failed("realpath"))?;
        let directories = [path.parent(), behind_links.parent()];
        for place in [Some(path)].into_iter().chain(directories).flatten() {
            let mode = std::fs::metadata(place).map_err(failed("stat"))?.mode();
            if mode & OTHERS_WRITE != 0 {
                return Err(LoadError::WorldWritable {
                    path: path.into(),
                    place: place.into(),
                    mode: mode & 0o7777,
                });
            }
        }
    }
    let file = open(path).map_err(failed("open"))?;
    let length = file.metadata().map_err(failed("fstat"))?.len();
    shared_object::check(length, |buffer, offset| file.read_exact_at(buffer, offset)).map_err(
        |error| LoadError::NotASharedObject {
            path: path.into(),
            error,
        },
    )
}

/// Opens a file without blocking, even if it has become a FIFO meanwhile.
fn open(path: &Path) -> io::Result<File> {
    let flags = rustix::fs::OFlags::NONBLOCK | rustix::fs::OFlags::NOCTTY;
    OpenOptions::new()
        .read(true)
        .custom_flags(flags.bits() as i32)
        .open(path)
}

fn kind_of(metadata: &Metadata) -> &'static str {
    let kind = metadata.file_type();
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else if kind.is_socket() {
        "a socket"
    } else {
        "a device"
    }
}
