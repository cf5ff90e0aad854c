//! Tests of where the user's secret file lies, who makes it, and when it is refused.

use super::*;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::sync::Barrier;

/// An empty folder of this user's own, removed at the end of its test.
struct Folder(PathBuf);

impl Folder {
    fn new() -> Self {
        let name = format!("symmem-test-{}", hex(&random_bytes().unwrap()[..8]));
        let path = std::env::temp_dir().join(name);
        std::fs::create_dir(&path).unwrap();
        let folder = Self(path);
        folder.allow(0o700);
        folder
    }

    fn allow(&self, mode: u32) {
        allow(&self.0, mode);
    }

    fn file(&self) -> PathBuf {
        self.0.join("symmem-secret")
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(&self.0).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        self.allow(0o700);
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn allow(path: &Path, mode: u32) {
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// What the ranks of this user find if the file may lie in `folders`.
fn find(folders: &[&Folder]) -> Result<Option<UserSecret>, Unusable> {
    first_of(folders.iter().map(|folder| folder.file()), uid())
}

fn refused(folder: &Folder) -> String {
    let unusable = find(&[folder]).unwrap_err();
    assert_eq!(unusable.path, folder.file());
    unusable.source.to_string()
}

#[test]
fn the_first_rank_makes_it_for_its_user_alone_and_all_others_read_it() {
    let folder = Folder::new();
    const RANKS: usize = 16;
    let together = Barrier::new(RANKS);
    let found: Vec<UserSecret> = std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..RANKS)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    find(&[&folder]).unwrap().unwrap()
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    assert!(found.iter().all(|one| *one == found[0]));
    let metadata = std::fs::metadata(folder.file()).unwrap();
    assert_eq!((metadata.mode() & 0o7777, metadata.uid()), (0o600, uid()));
    assert_eq!(folder.names(), ["symmem-secret"], "nothing else is left");
}

#[test]
fn a_folder_of_others_or_that_cannot_be_written_is_passed_over() {
    let (first, second) = (Folder::new(), Folder::new());
    first.allow(0o770);
    let found = find(&[&first, &second]).unwrap().unwrap();
    assert_eq!(found.path, second.file(), "others may write to the first");
    assert!(first.names().is_empty());
    let gone = Folder(PathBuf::from("/nonexistent"));
    let there = [gone.file(), second.file()].into_iter();
    assert_eq!(first_of(there, uid()).unwrap(), Some(found));
    std::mem::forget(gone);
    let another = first_of([second.file()].into_iter(), uid() + 1).unwrap();
    assert_eq!(another, None, "the folder is not theirs");
    // Not even root can make a file there.
    let kernel = [PathBuf::from("/proc/self/symmem-secret")];
    assert_eq!(first_of(kernel.into_iter(), uid()).unwrap(), None);
}

#[test]
fn a_file_that_others_may_read_or_that_holds_no_secret_is_refused_with_the_reason() {
    let folder = Folder::new();
    let found = find(&[&folder]).unwrap().unwrap();
    for mode in [0o640, 0o604, 0o620] {
        allow(&folder.file(), mode);
        assert!(refused(&folder).contains(&format!("{mode:04o}")));
    }
    allow(&folder.file(), 0o600);
    assert_eq!(find(&[&folder]).unwrap().unwrap(), found);
    let digits = found.secret.to_hex();
    for text in ["", "secret", &digits[1..], &format!("{digits}\n{digits}\n")] {
        std::fs::write(folder.file(), text).unwrap();
        assert!(refused(&folder).contains("64 hexadecimal digits"), "{text}");
    }
    std::fs::write(folder.file(), [0xff; 64]).unwrap();
    refused(&folder);
    std::fs::remove_file(folder.file()).unwrap();
    std::fs::create_dir(folder.file()).unwrap();
    allow(&folder.file(), 0o700);
    assert!(refused(&folder).contains("regular file"));
}

#[test]
fn a_file_of_another_user_is_refused() {
    if uid() != 0 {
        println!("skipped: only root can give a file away");
        return;
    }
    let folder = Folder::new();
    find(&[&folder]).unwrap();
    std::os::unix::fs::chown(folder.file(), Some(65534), None).unwrap();
    assert!(refused(&folder).contains("another user (ID 65534)"));
}

#[test]
fn a_folder_where_no_rank_can_make_the_file_is_told_from_a_rank_that_could_not() {
    use rustix::io::Errno;
    let of_all = [
        Errno::ACCESS,
        Errno::DQUOT,
        Errno::MLINK,
        Errno::NOSPC,
        Errno::NOSYS,
        Errno::NOTSUP,
        Errno::PERM,
        Errno::ROFS,
    ];
    assert!(of_all.iter().all(|&error| is_for_all_ranks(&error.into())));
    // The next rank may have more luck, and would wait elsewhere for ever.
    let of_one = [Errno::IO, Errno::MFILE, Errno::NFILE, Errno::NOMEM];
    assert!(!of_one.iter().any(|&error| is_for_all_ranks(&error.into())));
}

#[test]
fn a_link_of_the_users_own_is_followed() {
    let (folder, elsewhere) = (Folder::new(), Folder::new());
    let found = find(&[&elsewhere]).unwrap().unwrap();
    symlink(elsewhere.file(), folder.file()).unwrap();
    assert_eq!(find(&[&folder]).unwrap().unwrap().secret, found.secret);
    allow(&elsewhere.file(), 0o644);
    assert!(refused(&folder).contains("0644"));
}
