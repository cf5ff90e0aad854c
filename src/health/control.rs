//! The control block: a page of host memory that all ranks of a communicator on one node map. It records which ranks are
//! up, which failed, which allocations each rank has given up, and which ranks the survivors of a failure know
//! to be gone.
//!
//! It carries information that must not need a round trip: a drop cannot wait for peers, and an abort must
//! reach peers that receive no messages. It outlives every rank, rank 0 and its store included.

pub use crate::base::limits::MAX_ALLOCATIONS;
use crate::base::limits::MAX_WORLD;
use crate::base::shared_file;
use crate::base::shared_file::SharedFile;
use rustix::fd::{BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// State of a rank.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum RankState {
    /// Not set up yet.
    Joining = 0,
    /// Taking part.
    Up = 1,
    /// Finalized or dropped in good order.
    Left = 2,
    /// Alive, but its communicator is poisoned.
    Failed = 3,
    /// Poisoned, and its communicator is gone: it touches no rank's memory any more.
    FailedAndLeft = 4,
}

/// The rank that another rank blames for its failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blame {
    /// The rank blamed.
    pub rank: usize,
    /// Whether that rank only reported its own failure: the cause lies further on.
    pub heard: bool,
    /// Whether that rank has died.
    pub died: bool,
}

/// In [`RankEntry::culprit`]: see [`Blame::heard`].
const HEARD: u32 = 1 << 31;
/// In [`RankEntry::culprit`]: see [`Blame::died`].
const DIED: u32 = 1 << 30;

/// Words of a set of ranks.
const WORDS: usize = MAX_WORLD / 64;

/// One bit for each rank of the world.
type Bits = [AtomicU64; WORDS];

#[repr(C)]
struct RankEntry {
    state: AtomicU32,
    /// 1 + the rank to blame, with [`HEARD`] if that rank reported its own failure and [`DIED`] if it died; 0 if none.
    culprit: AtomicU32,
    /// 1 once the rank has begun to rebuild.
    rebuilding: AtomicU32,
    /// Counts the rounds of the rank's watcher.
    beats: AtomicU32,
    /// Bit r: this rank knows that rank r is gone.
    gone: Bits,
    padding: [u64; 6],
}

#[repr(C)]
struct AllocationEntry {
    /// Bit r: rank r no longer addresses any peer's copy.
    given_up: Bits,
    /// Bit r: rank r has released its own copy too, and no longer reads this entry.
    released: Bits,
    /// 1 from the entry's first use on, 0 again if that allocation failed; written by the node's lowest rank.
    taken: AtomicU64,
    padding: [u64; 7],
}

#[repr(C)]
struct Page {
    ranks: [RankEntry; MAX_WORLD],
    allocations: [AllocationEntry; MAX_ALLOCATIONS],
}

/// A set of a communicator's ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RankSet([u64; WORDS]);

impl RankSet {
    /// Returns the set with `rank` added.
    pub fn with(mut self, rank: usize) -> Self {
        self.0[rank / 64] |= 1 << (rank % 64);
        self
    }

    /// Returns whether `rank` is in the set.
    pub fn contains(self, rank: usize) -> bool {
        self.0[rank / 64] & 1 << (rank % 64) != 0
    }

    /// Returns the union of the sets.
    pub fn union(self, other: Self) -> Self {
        Self(std::array::from_fn(|word| self.0[word] | other.0[word]))
    }

    /// Returns its members below `world`.
    pub fn members(self, world: usize) -> impl Iterator<Item = usize> {
        (0..world).filter(move |&rank| self.contains(rank))
    }

    /// Returns a text that identifies the set: its bits as a hexadecimal number, without leading zeros.
    pub fn text(self) -> String {
        let mut digits = String::new();
        for word in self.0.iter().rev() {
            digits.push_str(&format!("{word:016x}"));
        }
        match digits.trim_start_matches('0') {
            "" => "0".into(),
            digits => digits.into(),
        }
    }
}

/// This process's mapping of the page.
pub struct ControlBlock {
    file: SharedFile,
}

impl ControlBlock {
    /// Creates a zeroed page, which has no name in any file system.
    ///
    /// # Errors
    /// The operating system's errors.
    pub fn create() -> rustix::io::Result<Self> {
        Self::map(shared_file::create("symmem-control", size_of::<Page>())?)
    }

    /// Maps a page that another rank created.
    ///
    /// # Errors
    /// The operating system's errors; `INVAL` for a file that is not a page.
    pub fn map(file: OwnedFd) -> rustix::io::Result<Self> {
        let file = SharedFile::map(file, size_of::<Page>())?;
        Ok(Self { file })
    }

    /// Returns the file descriptor to hand to the other ranks.
    pub fn descriptor(&self) -> BorrowedFd<'_> {
        self.file.descriptor()
    }

    fn page(&self) -> &Page {
        // SAFETY: mapped while `self` lives; zeroed, and written by atomics only, in this layout: the
        // rendezvous compares versions before the page is handed out.
        unsafe { &*self.file.pointer().cast::<Page>() }
    }

    /// Returns a rank's state, and the rank that it blames.
    pub fn state(&self, rank: usize) -> (RankState, Option<Blame>) {
        let entry = &self.page().ranks[rank];
        let state = match entry.state.load(Ordering::Acquire) {
            0 => RankState::Joining,
            1 => RankState::Up,
            2 => RankState::Left,
            3 => RankState::Failed,
            _ => RankState::FailedAndLeft,
        };
        let culprit = entry.culprit.load(Ordering::Relaxed);
        let blame = ((culprit & !(HEARD | DIED)) as usize)
            .checked_sub(1)
            // A peer wrote it, so it may name a rank that does not exist.
            .filter(|&rank| rank < MAX_WORLD)
            .map(|rank| Blame {
                rank,
                heard: culprit & HEARD != 0,
                died: culprit & DIED != 0,
            });
        (state, blame)
    }

    /// Returns the rank where a failure began, seen from `rank`, which failed. Follows the blame from rank to
    /// rank, up to the last that failed too and has a cause of its own.
    pub fn origin(&self, rank: usize) -> usize {
        let mut origin = rank;
        // Ranks may blame each other in a ring.
        for _ in 0..MAX_WORLD {
            let Some(blame) = self.state(origin).1 else {
                break;
            };
            let (state, further) = self.state(blame.rank);
            let failed = matches!(state, RankState::Failed | RankState::FailedAndLeft);
            // A rank that only received a report is not the origin; nor does the blame of a rank with its own
            // cause lead there.
            let heard = further.is_some_and(|further| further.heard);
            if !failed || heard && !blame.heard {
                break;
            }
            origin = blame.rank;
        }
        origin
    }

    /// Sets this rank's state.
    pub fn set_state(&self, rank: usize, state: RankState, blame: Option<Blame>) {
        let entry = &self.page().ranks[rank];
        let culprit = blame.map_or(0, |blame| {
            let flag = |is_set, flag| if is_set { flag } else { 0 };
            (blame.rank as u32 + 1) | flag(blame.heard, HEARD) | flag(blame.died, DIED)
        });
        entry.culprit.store(culprit, Ordering::Relaxed);
        entry.state.store(state as u32, Ordering::Release);
    }

    /// Counts a round of this rank's watcher.
    pub fn beat(&self, rank: usize) {
        self.page().ranks[rank]
            .beats
            .fetch_add(1, Ordering::Relaxed);
    }

    /// Returns a rank's count of rounds, wrapping.
    pub fn beats(&self, rank: usize) -> u32 {
        self.page().ranks[rank].beats.load(Ordering::Relaxed)
    }

    /// Records that this rank is rebuilding and knows the ranks in `gone` to be gone. Sets only grow.
    pub fn post_gone(&self, rank: usize, gone: RankSet) {
        let entry = &self.page().ranks[rank];
        for (known, gone) in entry.gone.iter().zip(gone.0) {
            known.fetch_or(gone, Ordering::AcqRel);
        }
        entry.rebuilding.store(1, Ordering::Release);
    }

    /// Returns the ranks that a rebuilding rank knows to be gone; `None` for a rank that is not rebuilding.
    pub fn gone(&self, rank: usize) -> Option<RankSet> {
        let entry = &self.page().ranks[rank];
        (entry.rebuilding.load(Ordering::Acquire) != 0).then(|| {
            RankSet(std::array::from_fn(|word| {
                entry.gone[word].load(Ordering::Acquire)
            }))
        })
    }

    /// Takes, on the node's lowest rank, a free entry for a new allocation among `ranks`, those of the node. A rank that
    /// `is_gone` need not have released its copy.
    pub fn take_entry(&self, ranks: &[usize], is_gone: impl Fn(usize) -> bool) -> Option<usize> {
        let entries = &self.page().allocations;
        let index = entries.iter().position(|entry| {
            entry.taken.load(Ordering::Acquire) == 0
                || (ranks.iter()).all(|&rank| bit(&entry.released, rank) || is_gone(rank))
        })?;
        for word in entries[index]
            .given_up
            .iter()
            .chain(&entries[index].released)
        {
            word.store(0, Ordering::Relaxed);
        }
        entries[index].taken.store(1, Ordering::Release);
        Some(index)
    }

    /// Returns, on the node's lowest rank, the entry of an allocation that failed.
    pub fn give_back_entry(&self, index: usize) {
        self.page().allocations[index]
            .taken
            .store(0, Ordering::Release);
    }

    /// Records that this rank no longer addresses any peer's copy.
    pub fn give_up(&self, index: usize, rank: usize) {
        set_bit(&self.page().allocations[index].given_up, rank);
    }

    /// Returns whether a rank no longer addresses any peer's copy.
    pub fn has_given_up(&self, index: usize, rank: usize) -> bool {
        bit(&self.page().allocations[index].given_up, rank)
    }

    /// Records that this rank has released its own copy, and no longer reads the entry.
    pub fn release(&self, index: usize, rank: usize) {
        set_bit(&self.page().allocations[index].released, rank);
    }
}

fn bit(words: &Bits, rank: usize) -> bool {
    words[rank / 64].load(Ordering::Acquire) & (1 << (rank % 64)) != 0
}

fn set_bit(words: &Bits, rank: usize) {
    words[rank / 64].fetch_or(1 << (rank % 64), Ordering::AcqRel);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_is_reused_only_after_every_living_rank_released_its_copy() {
        let mine = ControlBlock::create().unwrap();
        let theirs = ControlBlock::map(rustix::io::dup(mine.descriptor()).unwrap()).unwrap();
        let entry = mine.take_entry(&[0, 1, 2], |_| false).unwrap();
        theirs.give_up(entry, 2);
        assert!(mine.has_given_up(entry, 2) && !mine.has_given_up(entry, 1));
        mine.release(entry, 0);
        theirs.release(entry, 2);
        assert_ne!(
            mine.take_entry(&[0, 1, 2], |_| false),
            Some(entry),
            "rank 1 still holds its copy"
        );
        assert_eq!(
            mine.take_entry(&[0, 1, 2], |rank| rank == 1),
            Some(entry),
            "unless it is gone"
        );
        assert!(
            !mine.has_given_up(entry, 2),
            "a new allocation starts with nobody gone"
        );
        mine.give_back_entry(entry);
        assert_eq!(mine.take_entry(&[0, 1, 2], |_| false), Some(entry));
    }

    #[test]
    fn a_failure_and_its_culprit_are_seen_by_the_others() {
        let mine = ControlBlock::create().unwrap();
        let theirs = ControlBlock::map(rustix::io::dup(mine.descriptor()).unwrap()).unwrap();
        assert_eq!(theirs.state(3), (RankState::Joining, None));
        for heard in [false, true] {
            let died = !heard;
            let blame = Some(Blame {
                rank: 0,
                heard,
                died,
            });
            mine.set_state(3, RankState::Failed, blame);
            assert_eq!(theirs.state(3), (RankState::Failed, blame));
        }
    }

    #[test]
    fn the_origin_of_a_failure_is_found_from_whoever_heard_of_it() {
        let control = ControlBlock::create().unwrap();
        let failed = |rank, of: Option<(usize, bool)>| {
            let died = false;
            let blame = of.map(|(rank, heard)| Blame { rank, heard, died });
            control.set_state(rank, RankState::Failed, blame);
        };
        // Rank 1 gave up on rank 0, which received its report; ranks 2 and 3 received reports one after the
        // other.
        control.set_state(4, RankState::Up, None);
        failed(1, Some((0, false)));
        failed(0, Some((1, true)));
        failed(2, Some((0, true)));
        failed(3, Some((2, true)));
        for rank in 0..4 {
            assert_eq!(control.origin(rank), 1, "seen from {rank}");
        }
        // The rank awaited may itself have waited for another.
        failed(5, Some((1, false)));
        assert_eq!(control.origin(5), 1);
        // A rank that is up has not failed, whichever rank blames it.
        failed(6, Some((4, false)));
        assert_eq!(control.origin(6), 6);
        // Ranks that gave up on each other, or only received each other's reports: the search ends all the
        // same.
        failed(7, Some((8, false)));
        failed(8, Some((7, false)));
        assert!(matches!(control.origin(7), 7 | 8));
        failed(7, Some((8, true)));
        failed(8, Some((7, true)));
        assert!(matches!(control.origin(7), 7 | 8));
    }

    #[test]
    fn whom_a_rank_knows_to_be_gone_is_seen_by_the_others_and_only_grows() {
        let mine = ControlBlock::create().unwrap();
        let theirs = ControlBlock::map(rustix::io::dup(mine.descriptor()).unwrap()).unwrap();
        assert_eq!(theirs.gone(1), None, "it is not rebuilding");
        mine.post_gone(1, RankSet::default());
        assert_eq!(theirs.gone(1), Some(RankSet::default()));
        let last = MAX_WORLD - 1;
        mine.post_gone(1, RankSet::default().with(last));
        mine.post_gone(1, RankSet::default().with(0));
        let both = RankSet::default().with(0).with(last);
        assert_eq!(theirs.gone(1), Some(both));
        assert_eq!(both.members(MAX_WORLD).collect::<Vec<_>>(), [0, last]);
        assert_eq!(
            both.text(),
            format!("8{:0>width$}", 1, width = MAX_WORLD / 4 - 1)
        );
        assert_eq!(RankSet::default().text(), "0");
        assert_eq!(RankSet::default().with(4).text(), "10");
    }

    #[test]
    fn a_file_that_is_too_short_is_refused() {
        let file = rustix::fs::memfd_create("short", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
        assert!(ControlBlock::map(file).is_err());
    }
}
