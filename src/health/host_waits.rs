//! Waits of streams for words in host memory, which only a store to the word can end.
//!
//! A wait is registered on the launch path, so that neither locks nor allocates: waits lie in slots, and a slot is
//! taken again once its wait is satisfied. Each slot has a sequence number, odd while a thread writes the slot; a
//! reader that finds another number after reading ignores what it read. That harms nothing: only the slots of
//! satisfied waits are written. Beyond [`SLOTS`] waits that are not satisfied, further ones go to a list with a lock.

use crate::base::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{
    AtomicBool, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence,
};
use std::time::{Duration, Instant};

/// Number of waits that can be under way without a lock.
const SLOTS: usize = 256;

/// A stream's hardware wait that only a store to its word can end.
#[derive(Clone, Copy, Debug)]
pub struct HostWait {
    /// The word, in host memory mapped while the communicator lives.
    pub word: *const AtomicU32,
    /// The value that satisfies the wait.
    pub value: u32,
    /// The rank that should signal.
    pub peer: usize,
    /// The channel.
    pub channel: u32,
    /// The time at which the wait was enqueued.
    pub since: Instant,
    /// Its deadline, from then on.
    pub limit: Duration,
}

// SAFETY: the word is shared memory accessed atomically.
unsafe impl Send for HostWait {}

impl HostWait {
    /// Returns the value of the word.
    pub fn seen(&self) -> u32 {
        // SAFETY: the word is mapped while the communicator lives.
        unsafe { &*self.word }.load(Ordering::Acquire)
    }

    fn is_satisfied(&self) -> bool {
        symmem_core::epoch::reached(self.seen(), self.value)
    }

    /// Ends the wait by the store that it waits for.
    pub fn release(&self) {
        if !self.is_satisfied() {
            // SAFETY: as above.
            unsafe { &*self.word }.store(self.value, Ordering::SeqCst);
        }
    }
}

/// A place for one wait.
#[derive(Default)]
struct Slot {
    /// 0 if never used, odd while it is being written.
    sequence: AtomicU64,
    word: AtomicPtr<AtomicU32>,
    value: AtomicU32,
    peer: AtomicU32,
    channel: AtomicU32,
    /// Nanoseconds from the origin of the table to the wait's start.
    since: AtomicU64,
    /// Nanoseconds from there to its deadline.
    limit: AtomicU64,
}

impl Slot {
    /// Reads the wait, which is not valid if the sequence number has changed since `origin` was asked for.
    fn fields(&self, origin: Instant) -> HostWait {
        let number = |field: &AtomicU32| field.load(Ordering::Relaxed);
        let time = |field: &AtomicU64| Duration::from_nanos(field.load(Ordering::Relaxed));
        HostWait {
            word: self.word.load(Ordering::Relaxed),
            value: number(&self.value),
            peer: number(&self.peer) as usize,
            channel: number(&self.channel),
            since: origin + time(&self.since),
            limit: time(&self.limit),
        }
    }

    /// Returns the wait, unless there is none or it is being replaced.
    fn read(&self, origin: Instant) -> Option<HostWait> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence == 0 || sequence % 2 == 1 {
            return None;
        }
        let wait = self.fields(origin);
        // Pairs with the fence in `replace`: who has read a field of a later wait sees a later number here.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some(wait)
    }

    /// Replaces a wait that is satisfied, or none. Returns whether it did.
    fn replace(&self, wait: &HostWait, origin: Instant) -> bool {
        let sequence = self.sequence.load(Ordering::Acquire);
        let free = sequence == 0
            || sequence.is_multiple_of(2) && self.read(origin).is_some_and(|wait| wait.is_satisfied());
        let claimed = free
            && self
                .sequence
                .compare_exchange(sequence, sequence + 1, Ordering::Acquire, Ordering::Relaxed)
                .is_ok();
        if !claimed {
            return false;
        }
        fence(Ordering::Release);
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let since = nanoseconds(wait.since.saturating_duration_since(origin));
        self.word.store(wait.word.cast_mut(), Ordering::Relaxed);
        self.value.store(wait.value, Ordering::Relaxed);
        self.peer.store(wait.peer as u32, Ordering::Relaxed);
        self.channel.store(wait.channel, Ordering::Relaxed);
        self.since.store(since, Ordering::Relaxed);
        self.limit.store(nanoseconds(wait.limit), Ordering::Relaxed);
        self.sequence.store(sequence + 2, Ordering::Release);
        true
    }
}

/// The waits that are under way.
pub struct HostWaits {
    origin: Instant,
    slots: Box<[Slot]>,
    /// The slot to try first.
    next: AtomicUsize,
    /// Waits for which there was no slot.
    more: Mutex<Vec<HostWait>>,
    /// Whether no wait may last any longer.
    ended: AtomicBool,
}

impl HostWaits {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            slots: (0..SLOTS).map(|_| Slot::default()).collect(),
            next: AtomicUsize::new(0),
            more: Mutex::default(),
            ended: AtomicBool::new(false),
        }
    }

    /// Adds a wait, or releases it if all were released before. Neither locks nor allocates while fewer than
    /// [`SLOTS`] waits are not satisfied.
    pub fn add(&self, wait: HostWait) {
        let first = self.next.fetch_add(1, Ordering::Relaxed);
        let mut slots = (0..SLOTS).map(|at| &self.slots[first.wrapping_add(at) % SLOTS]);
        if !slots.any(|slot| slot.replace(&wait, self.origin)) {
            let mut more = lock(&self.more);
            more.retain(|wait| !wait.is_satisfied());
            more.push(wait);
        }
        // Pairs with the fence in `release_all`: one of the two sees what the other did before it.
        fence(Ordering::SeqCst);
        if self.ended.load(Ordering::Relaxed) {
            wait.release();
        }
    }

    /// Releases all waits, also those that are added later.
    pub fn release_all(&self) {
        self.ended.store(true, Ordering::Relaxed);
        fence(Ordering::SeqCst);
        self.each().for_each(|wait| wait.release());
        lock(&self.more).drain(..).for_each(|wait| wait.release());
    }

    /// Returns a wait that is past its deadline and not satisfied.
    pub fn expired(&self) -> Option<HostWait> {
        let late = |wait: &HostWait| wait.since.elapsed() > wait.limit && !wait.is_satisfied();
        self.each().find(late).or_else(|| {
            let mut more = lock(&self.more);
            more.retain(|wait| !wait.is_satisfied());
            more.iter().copied().find(late)
        })
    }

    /// Returns the waits in the slots.
    fn each(&self) -> impl Iterator<Item = HostWait> {
        self.slots.iter().filter_map(|slot| slot.read(self.origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(3600);

    fn wait(word: &AtomicU32, value: u32, limit: Duration) -> HostWait {
        HostWait {
            word,
            value,
            peer: 3,
            channel: 2,
            since: Instant::now(),
            limit,
        }
    }

    #[test]
    fn a_slot_is_taken_again_once_its_wait_is_satisfied() {
        let (waits, word) = (HostWaits::new(), AtomicU32::new(0));
        // No lock is taken either: this thread holds the only one.
        let more = lock(&waits.more);
        for value in 1..10 * SLOTS as u32 {
            waits.add(wait(&word, value, LONG));
            word.store(value, Ordering::Release);
        }
        assert!(more.is_empty() && waits.each().all(|wait| wait.is_satisfied()));
    }

    #[test]
    fn more_waits_than_slots_are_all_released_and_so_is_one_that_comes_later() {
        let waits = HostWaits::new();
        let words: Vec<AtomicU32> = (0..2 * SLOTS).map(|_| AtomicU32::new(0)).collect();
        words.iter().for_each(|word| waits.add(wait(word, 7, LONG)));
        assert_eq!(lock(&waits.more).len(), SLOTS);
        assert!(words.iter().all(|word| word.load(Ordering::Acquire) == 0));
        waits.release_all();
        assert!(words.iter().all(|word| word.load(Ordering::Acquire) == 7));
        let late = AtomicU32::new(0);
        waits.add(wait(&late, 9, LONG));
        assert_eq!(late.load(Ordering::Acquire), 9);
    }

    #[test]
    fn the_wait_that_is_past_its_deadline_is_found_with_all_that_the_error_says() {
        let (waits, words) = (HostWaits::new(), [0, 0, 5].map(AtomicU32::new));
        waits.add(wait(&words[0], 1, LONG));
        assert!(waits.expired().is_none());
        // This one is satisfied, as 5 has reached 4; the next is not.
        waits.add(wait(&words[2], 4, Duration::ZERO));
        waits.add(wait(&words[1], 6, Duration::ZERO));
        std::thread::sleep(Duration::from_millis(1));
        let found = waits.expired().expect("one is late");
        assert_eq!(
            (found.value, found.peer, found.channel, found.seen()),
            (6, 3, 2, 0)
        );
        assert_eq!(
            (found.word, found.limit),
            (&raw const words[1], Duration::ZERO)
        );
        found.release();
        assert!(waits.expired().is_none());
    }

    #[test]
    fn a_wait_beyond_the_slots_expires_like_any_other() {
        let (waits, words) = (HostWaits::new(), [0, 0].map(AtomicU32::new));
        (0..SLOTS).for_each(|_| waits.add(wait(&words[0], 1, LONG)));
        waits.add(wait(&words[1], 8, Duration::ZERO));
        std::thread::sleep(Duration::from_millis(1));
        assert_eq!(waits.expired().expect("it is late").value, 8);
    }

    /// Threads add waits, some of which are satisfied at once, while another releases all.
    #[test]
    fn no_wait_outlasts_the_release_of_all_however_threads_meet() {
        let (threads, each) = match cfg!(miri) {
            true => (2, 20),
            false => (4, 2000),
        };
        for round in 0..if cfg!(miri) { 2 } else { 20 } {
            let waits = HostWaits::new();
            let words: Vec<AtomicU32> = (0..threads * each).map(|_| AtomicU32::new(0)).collect();
            std::thread::scope(|scope| {
                for words in words.chunks(each) {
                    let waits = &waits;
                    scope.spawn(move || {
                        for (number, word) in words.iter().enumerate() {
                            waits.add(wait(word, 1, LONG));
                            if number % 16 != 0 {
                                word.store(1, Ordering::Release);
                            }
                        }
                    });
                }
                scope.spawn(|| {
                    (0..round * 10).for_each(|_| assert!(waits.expired().is_none()));
                    waits.release_all();
                });
            });
            let left = words
                .iter()
                .filter(|word| word.load(Ordering::Acquire) == 0);
            assert_eq!(left.count(), 0, "waits are left in round {round}");
        }
    }
}
