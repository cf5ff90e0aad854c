//! The files that a command writes, and checks that it can write them.

use super::error::{CommandError, Result};
use crate::output;
use serde::{Deserialize, Serialize};
use std::ffi::OsString;
use std::fs::{File, OpenOptions};
use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use symmem::tuning::Table;
use symmem_bench::environment;

/// The directory, in the current one, of the results that a command writes without being asked where.
pub const DIRECTORY: &str = "symmem-results";

/// The destination of a result.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Target {
    /// Standard output, which then carries nothing else.
    Standard,
    /// A file that does not exist before. If it does at the time of writing, its name gets a number.
    New(PathBuf),
    /// A file that is replaced if it exists.
    Replaced(PathBuf),
}

impl From<OsString> for Target {
    fn from(text: OsString) -> Self {
        match text == "-" {
            true => Self::Standard,
            false => Self::New(text.into()),
        }
    }
}

impl Target {
    pub fn is_standard(&self) -> bool {
        *self == Self::Standard
    }

    /// Returns a file as destination; `force` allows to replace it.
    pub fn file(file: PathBuf, force: bool) -> Self {
        match force {
            true => Self::Replaced(file),
            false => Self::New(file),
        }
    }

    /// Returns the target that the user asked for. Fails if it is not writable, or if it exists and `force` does not
    /// allow to replace it. Called before anything is measured. Reserves standard output for the result if the result
    /// goes there.
    pub fn checked(self, force: bool) -> Result<Self> {
        match self {
            Self::Standard => {
                output::keep_for_data();
                Ok(Self::Standard)
            }
            Self::New(file) | Self::Replaced(file) => {
                if file.as_os_str().is_empty() {
                    return Err(CommandError::Said(
                        "an empty file name; name a file, or write - for standard output".into(),
                    ));
                }
                // Links without a target count, too.
                let there = std::fs::symlink_metadata(&file).is_ok();
                let is_replaced = there && !is_device(&file) && !file.is_dir();
                if is_replaced && !force {
                    return Err(CommandError::Said(format!(
                        "{} exists; name another file, or replace this one with --force",
                        file.display()
                    )));
                }
                check_writable(&file)?;
                Ok(Self::file(file, force))
            }
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
        Err(error) if error.kind() == ErrorKind::NotFound => try_directory(directory),
        Err(error) => Err(error),
    };
    tried.map_err(|error| unwritable(file, &error, "name another file"))
}

/// Creates, fills and removes a file, since nothing less shows that a directory allows it and that its disk has space.
/// The file has a name of its own, so that an interrupt in between leaves no empty result.
fn try_directory(directory: &Path) -> io::Result<()> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let probe = directory.join(format!(".symmem-{}-{count}", std::process::id()));
    let mut opened = File::create_new(&probe)?;
    let filled = opened.write_all(&[0; LEAST_SPACE]);
    std::fs::remove_file(&probe)?;
    filled
}

/// Free space in bytes that a result needs; the JSON of a short run has half of it.
const LEAST_SPACE: usize = 128 << 10;

/// Fails if the directory can neither be created later nor takes files. `advice` says what the user can do.
pub fn check_directory(directory: &Path, advice: &str) -> Result<()> {
    let unwritable = |error| unwritable(directory, &error, advice);
    let whole = std::path::absolute(directory).map_err(unwritable)?;
    let there = whole.ancestors().find(|ancestor| ancestor.exists());
    match there {
        Some(there) if there.is_dir() => try_directory(there).map_err(unwritable),
        _ => Err(unwritable(ErrorKind::NotADirectory.into())),
    }
}

/// Returns the first of the names `symmem-results/COMMAND-TIME`, with -2, -3, … behind, that `is_taken` leaves. The
/// time is now, in UTC.
pub fn default_name(command: &str, is_taken: impl Fn(&Path) -> bool) -> PathBuf {
    let name = format!("{command}-{}", environment::file_time());
    let first = Path::new(DIRECTORY).join(name);
    let free = numbered(&first).find(|name| !is_taken(name));
    free.unwrap_or(first)
}

/// Returns the name, then the name with -2, -3, … in front of its extension.
fn numbered(file: &Path) -> impl Iterator<Item = PathBuf> {
    let with = |number: u32| {
        let mut name = file.file_stem().unwrap_or_default().to_owned();
        name.push(format!("-{number}"));
        if let Some(extension) = file.extension() {
            name.push(".");
            name.push(extension);
        }
        file.with_file_name(name)
    };
    std::iter::once(file.to_owned()).chain((2..=u32::MAX).map(with))
}

/// Creates the directory of a file, unless it exists.
fn create_parent(file: &Path) -> io::Result<()> {
    file.parent().map_or(Ok(()), std::fs::create_dir_all)
}

/// Writes a file that does not exist yet and returns its name, which has a number if the given one was taken.
/// A file that cannot be written whole is removed. Writes to pipes and devices as they are.
fn create(file: &Path, text: &str) -> io::Result<PathBuf> {
    if is_device(file) {
        return std::fs::write(file, text).map(|()| file.to_owned());
    }
    for name in numbered(file) {
        let mut opened = match File::create_new(&name) {
            Err(error) if error.kind() == ErrorKind::AlreadyExists => continue,
            opened => opened?,
        };
        return match opened.write_all(text.as_bytes()) {
            Ok(()) => Ok(name),
            Err(error) => {
                // The first error is the one to report.
                let _ = std::fs::remove_file(&name);
                Err(error)
            }
        };
    }
    Err(ErrorKind::AlreadyExists.into())
}

/// Writes a file, over what it had before. If that fails, the file is as before, unless its directory takes no files.
fn replace(file: &Path, text: &str) -> io::Result<()> {
    let directly = || std::fs::write(file, text);
    // What a link names is replaced, not the link.
    let Ok(whole) = file.canonicalize() else {
        return directly();
    };
    let there = std::fs::metadata(&whole)?;
    let unfinished = whole.with_file_name(format!(".symmem-{}-unfinished", std::process::id()));
    if !there.is_file() {
        return directly();
    }
    let mut opened = match File::create_new(&unfinished) {
        Err(error) if error.kind() == ErrorKind::PermissionDenied => return directly(),
        opened => opened?,
    };
    let written = opened
        .write_all(text.as_bytes())
        .and_then(|()| opened.set_permissions(there.permissions()))
        .and_then(|()| std::fs::rename(&unfinished, &whole));
    if written.is_err() {
        // The first error is the one to report.
        let _ = std::fs::remove_file(&unfinished);
    }
    written
}

/// Returns whether the name is of something that is neither a file nor a directory, such as a pipe.
fn is_device(file: &Path) -> bool {
    std::fs::metadata(file).is_ok_and(|there| !there.is_file() && !there.is_dir())
}

fn unwritable(file: &Path, error: &io::Error, advice: &str) -> CommandError {
    CommandError::Said(format!(
        "{} cannot be written ({error}); {advice}",
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
/// A command writes files before it prints text, so that a closed pipe loses no file. A file that cannot be written is
/// reported after the text, so that the text is not lost with it.
#[derive(Default)]
pub struct Written {
    files: Vec<PathBuf>,
    /// The first failed write.
    failed: Option<CommandError>,
}

impl Written {
    /// Writes to a file or to standard output. Fails only if standard output does.
    pub fn write_to(&mut self, target: &Target, text: &str) -> Result<()> {
        match target {
            Target::Standard => output::data(text)?,
            Target::New(file) => {
                let written = create_parent(file).and_then(|()| create(file, text));
                self.note(file, written);
            }
            Target::Replaced(file) => {
                let written = create_parent(file).and_then(|()| replace(file, text));
                self.note(file, written.map(|()| file.to_owned()));
            }
        }
        Ok(())
    }

    /// Writes a file, over what it had before.
    pub fn replace(&mut self, file: &Path, text: &str) {
        let written = replace(file, text);
        self.note(file, written.map(|()| file.to_owned()));
    }

    fn note(&mut self, file: &Path, written: io::Result<PathBuf>) {
        match written {
            Ok(name) => self.files.push(name),
            Err(error) => {
                let what = format!("writing {}", file.display());
                self.failed
                    .get_or_insert(CommandError::System { what, error });
            }
        }
    }

    /// Names the files on standard error. Fails if one could not be written.
    pub fn tell(self) -> Result<()> {
        for file in self.files {
            output::note(format_args!("wrote {}", file.display()))?;
        }
        self.failed.map_or(Ok(()), Err)
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
        let new = std::env::temp_dir().join(format!("symmem-new-{}", std::process::id()));
        assert!(check_directory(&new.join("directory"), "").is_ok());
        assert!(check_directory(Path::new("Cargo.toml/results"), "").is_err());
        assert!(check_directory(Path::new("/proc/results"), "").is_err());
    }

    #[test]
    fn a_taken_name_gets_a_number_and_keeps_its_text() {
        let directory = std::env::temp_dir().join(format!("symmem-files-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let file = directory.join("a.json");
        let names: Vec<PathBuf> = (["1", "2", "3"].iter())
            .map(|text| create(&file, text).unwrap())
            .collect();
        let expected = ["a.json", "a-2.json", "a-3.json"].map(|name| directory.join(name));
        assert_eq!(names, expected);
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "1");
        assert!(create(&directory.join("no/a.json"), "4").is_err());
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_replaced_file_keeps_its_permissions_and_a_link_stays_one() {
        use std::os::unix::fs::PermissionsExt;
        let directory = std::env::temp_dir().join(format!("symmem-over-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let (file, link) = (directory.join("t.json"), directory.join("link"));
        std::fs::write(&file, "old").unwrap();
        std::fs::set_permissions(&file, PermissionsExt::from_mode(0o640)).unwrap();
        std::os::unix::fs::symlink(&file, &link).unwrap();
        replace(&link, "new").unwrap();
        assert!(link.is_symlink());
        assert_eq!(std::fs::read_to_string(&file).unwrap(), "new");
        let mode = std::fs::metadata(&file).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        assert_eq!(std::fs::read_dir(&directory).unwrap().count(), 2);
        std::fs::remove_dir_all(&directory).unwrap();
    }

    #[test]
    fn a_file_that_exists_is_refused_without_force_and_a_device_is_not() {
        let target = |name: &str| Target::from(OsString::from(name));
        let error = target("Cargo.toml").checked(false).unwrap_err().to_string();
        assert!(
            error.contains("Cargo.toml exists") && error.contains("--force"),
            "{error}"
        );
        let replaced = target("Cargo.toml").checked(true).unwrap();
        assert_eq!(replaced, Target::Replaced("Cargo.toml".into()));
        assert!(target("/dev/null").checked(false).is_ok());
    }

    #[test]
    fn a_default_name_has_command_and_time_and_is_not_taken() {
        let first = default_name("p2p", |_| false);
        let name = first.to_str().unwrap();
        assert!(
            name.starts_with("symmem-results/p2p-20") && name.ends_with('Z'),
            "{name}"
        );
        let taken = default_name("p2p", |name| name.to_str().unwrap().ends_with('Z'));
        assert!(taken.to_str().unwrap().ends_with("Z-2"), "{taken:?}");
    }
}
