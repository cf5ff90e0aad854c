//! The user's secret file: the secret of jobs whose launcher gave them none.
//!
//! The first rank that needs it makes it, with mode 0600, and all later jobs of the user on the machine read it. So no
//! other user can guess the names of the sockets at which the user's ranks meet, and take them first.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::base::env::value_of;
use crate::bootstrap::secret::{Secret, hex, random_bytes};

/// Permissions that no other user needs: the file's own are none of them, and its folder's none to write.
const OTHERS: u32 = 0o077;
const OTHERS_WRITE: u32 = 0o022;

/// A secret and the file that holds it.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct UserSecret {
    pub(super) secret: Secret,
    pub(super) path: PathBuf,
}

/// A secret file that exists and cannot be used.
#[derive(Debug)]
pub(super) struct Unusable {
    pub(super) path: PathBuf,
    pub(super) source: io::Error,
}

/// Returns the secret of user `uid`; makes its file if there is none. `None` if no folder of the user's own can hold it.
///
/// The folders are `XDG_RUNTIME_DIR` (`/run/user/UID` if it is not set) and then `HOME`. One that belongs to another
/// user, to which others may write, or in which no file can be made, is passed over.
pub(super) fn of_user(uid: u32) -> Result<Option<UserSecret>, Unusable> {
    let runtime = value_of("XDG_RUNTIME_DIR").map_or_else(
        || PathBuf::from(format!("/run/user/{uid}")),
        |folder| PathBuf::from(&folder),
    );
    let home = value_of("HOME").map(PathBuf::from);
    let runtime = Some(runtime.join("symmem-secret"));
    let home = home.map(|folder| folder.join(".symmem-secret"));
    first_of(runtime.into_iter().chain(home), uid)
}

/// Returns the secret in the first of `files` that lies, or can be made, in a folder of the user's own.
fn first_of(
    files: impl Iterator<Item = PathBuf>,
    uid: u32,
) -> Result<Option<UserSecret>, Unusable> {
    for path in files {
        if !is_in_own_folder(&path, uid) {
            continue;
        }
        match read_or_make(&path, uid) {
            Ok(Some(secret)) => return Ok(Some(UserSecret { secret, path })),
            Ok(None) => {}
            Err(source) => return Err(Unusable { path, source }),
        }
    }
    Ok(None)
}

/// Returns the secret at `path`, and makes the file if there is none; `None` if no rank can make it there.
fn read_or_make(path: &Path, uid: u32) -> io::Result<Option<Secret>> {
    let is_missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
    match read(path, uid) {
        Err(error) if is_missing(&error) => {}
        found => return found.map(Some),
    }
    let made = make(path, uid);
    match (read(path, uid), made) {
        // If another rank made it meanwhile, it is there in any case.
        (Err(missing), Err(error)) if is_missing(&missing) => {
            if !is_for_all_ranks(&error) {
                return Err(error);
            }
            tracing::debug!(path = %path.display(), %error, "no secret file can be made here");
            Ok(None)
        }
        (found, _) => found.map(Some),
    }
}

/// Returns whether only the user can put a file at `path`.
fn is_in_own_folder(path: &Path, uid: u32) -> bool {
    let folder = path.parent().filter(|folder| folder.is_absolute());
    let metadata = folder.and_then(|folder| std::fs::metadata(folder).ok());
    metadata.is_some_and(|folder| {
        folder.is_dir() && folder.uid() == uid && folder.mode() & OTHERS_WRITE == 0
    })
}

/// Reads the secret at `path`, which no other user may be able to read.
fn read(path: &Path, uid: u32) -> io::Result<Secret> {
    let refused = |reason: String| io::Error::new(io::ErrorKind::InvalidData, reason);
    // A pipe in its place would make a blocking open wait.
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(nonblocking)
        .open(path)?;
    let metadata = file.metadata()?;
    let (owner, mode) = (metadata.uid(), metadata.mode() & 0o7777);
    if !metadata.is_file() {
        return Err(refused("it is not a regular file".into()));
    }
    if owner != uid {
        return Err(refused(format!("it belongs to another user (ID {owner})")));
    }
    if mode & OTHERS != 0 {
        return Err(refused(format!(
            "its mode is {mode:04o}, so other users may read it; run `chmod 600` on it if none has"
        )));
    }
    let mut text = String::new();
    file.take(256).read_to_string(&mut text)?;
    Secret::from_hex(text.trim_end())
        .ok_or_else(|| refused("it does not hold 64 hexadecimal digits".into()))
}

/// Makes the file at `path`, whole from the first moment that it is there; another rank may be faster.
fn make(path: &Path, uid: u32) -> io::Result<()> {
    let secret = Secret::random()?;
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}", hex(&random_bytes()?[..8])));
    let temporary = PathBuf::from(temporary);
    let file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&temporary)?;
    let made = write(file, &secret, uid).and_then(|()| std::fs::hard_link(&temporary, path));
    let removed = std::fs::remove_file(&temporary);
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => removed,
        made => made.and(removed),
    }
}

fn write(mut file: File, secret: &Secret, uid: u32) -> io::Result<()> {
    let metadata = file.metadata()?;
    if metadata.uid() != uid || metadata.mode() & OTHERS != 0 {
        let reason = "this file system does not keep a file's owner and mode";
        return Err(io::Error::new(io::ErrorKind::Unsupported, reason));
    }
    writeln!(file, "{}", secret.to_hex())?;
    // Or else a machine that crashes could leave an empty file, which no rank could use.
    file.sync_all()
}

/// Returns whether a file could not be made because of the folder where it was to be, so that no rank can make it:
/// there are no hard links, no file may be written, or there is no room for one.
fn is_for_all_ranks(error: &io::Error) -> bool {
    use io::ErrorKind::{
        NotFound, PermissionDenied, QuotaExceeded, ReadOnlyFilesystem, StorageFull, TooManyLinks,
        Unsupported,
    };
    matches!(
        error.kind(),
        NotFound
            | PermissionDenied
            | QuotaExceeded
            | ReadOnlyFilesystem
            | StorageFull
            | TooManyLinks
            | Unsupported
    )
}

#[cfg(test)]
mod tests;
