//! Notices that a process is a fork of the one that made a value.
//!
//! A fork has its parent's memory, sockets and device handles, but not its threads: what the parent has begun never
//! ends there, and what the fork sends or frees harms the parent. A page that the kernel clears in every fork
//! (`MADV_WIPEONFORK`, see madvise(2)) tells the two apart by one load, so that calls on the launch path can ask.

use rustix::mm::{Advice, MapFlags, ProtFlags};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, Ordering};

/// A mark of the process that made it.
#[derive(Debug)]
pub struct ForkMark {
    owner: u32,
    /// A word that is 0 in a fork; `None` if the kernel (before Linux 4.14) cannot clear it.
    word: Option<NonNull<AtomicU32>>,
}

// SAFETY: the word belongs to the process, not to a thread, and is only accessed atomically.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// Marks this process.
    pub fn new() -> Self {
        Self {
            owner: std::process::id(),
            word: wiped_word(),
        }
    }

    /// Returns the number of the process that made the mark.
    pub fn owner(&self) -> u32 {
        self.owner
    }

    /// Returns whether this process is a fork of that process. Does not block: one load.
    #[inline]
    pub fn is_fork(&self) -> bool {
        match self.word {
            // SAFETY: the word is mapped while the value lives.
            Some(word) => unsafe { word.as_ref() }.load(Ordering::Relaxed) == 0,
            None => std::process::id() != self.owner,
        }
    }
}

/// Maps a page that is cleared in a fork, and sets its first word to 1.
fn wiped_word() -> Option<NonNull<AtomicU32>> {
    let bytes = rustix::param::page_size();
    let (protection, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE);
    // SAFETY: a new mapping at an address that the kernel chooses.
    let page =
        unsafe { rustix::mm::mmap_anonymous(std::ptr::null_mut(), bytes, protection, flags) };
    let page = page.ok()?;
    // SAFETY: the advice concerns the new page only, which nothing uses yet.
    if unsafe { rustix::mm::madvise(page, bytes, Advice::LinuxWipeOnFork) }.is_err() {
        // SAFETY: mapped above, and not used. Failure would only leave the page mapped.
        let _ = unsafe { rustix::mm::munmap(page, bytes) };
        return None;
    }
    let word = NonNull::new(page.cast::<AtomicU32>())?;
    // SAFETY: the page is mapped, zeroed and aligned.
    unsafe { word.as_ref() }.store(1, Ordering::Relaxed);
    Some(word)
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        if let Some(word) = self.word {
            // SAFETY: mapped by `wiped_word` with this size; nothing uses it after this. Failure would only leave the
            // page mapped.
            let _ = unsafe { rustix::mm::munmap(word.as_ptr().cast(), rustix::param::page_size()) };
        }
    }
}

#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;
    use rustix::process::{Pid, WaitOptions, waitpid};

    unsafe extern "C" {
        safe fn fork() -> i32;
        safe fn _exit(status: i32) -> !;
    }

    /// Returns what `ask` returns in a fork of this process.
    fn in_a_fork(ask: impl Fn() -> bool) -> bool {
        match fork() {
            // Other threads' locks stay locked here, so nothing but the question is asked.
            0 => _exit(ask().into()),
            child => {
                let child = Pid::from_raw(child).expect("a fork");
                let ended = waitpid(Some(child), WaitOptions::empty()).expect("a child");
                let (_, status) = ended.expect("it has ended");
                status.exit_status().expect("no signal") == 1
            }
        }
    }

    #[test]
    fn only_a_fork_is_a_fork() {
        let mark = ForkMark::new();
        assert!(!mark.is_fork());
        assert!(in_a_fork(|| mark.is_fork()));
        assert!(!mark.is_fork(), "the parent is not marked by its forks");
        assert_eq!(mark.owner(), std::process::id());
        assert!(
            !in_a_fork(|| ForkMark::new().is_fork()),
            "a fork's own mark is its own"
        );
    }

    #[test]
    fn without_the_kernels_help_the_process_number_tells() {
        let mark = ForkMark {
            owner: std::process::id(),
            word: None,
        };
        assert!(!mark.is_fork());
        assert!(in_a_fork(|| mark.is_fork()));
    }
}
