//! Waits of streams for words in host memory, which only a store to the word can end.
//!
//! A wait is registered on the launch path, so it goes to one of [`SLOTS`] slots, without a lock. A slot is free again
//! once its wait is satisfied. Beyond [`SLOTS`] waits that are not satisfied, further ones go to a list with a lock.

use crate::base::lock::lock;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use symmem_core::epoch::reached;
use symmem_core::slots::Slots;

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
        reached(self.seen(), self.value)
    }

    /// Ends the wait by the store that it waits for.
    pub fn release(&self) {
        if !self.is_satisfied() {
            // SAFETY: as above.
            unsafe { &*self.word }.store(self.value, Ordering::SeqCst);
        }
    }
}

/// A wait as a record of [`Slots`]: word, value, peer, channel, start and limit. The start is in nanoseconds from the
/// origin of the table, and the limit in nanoseconds.
type Record = [u64; WORDS];
const WORDS: usize = 6;

/// Returns whether the wait of this record is satisfied, without making the rest of the wait: the launch path asks.
fn is_over([word, value, ..]: Record) -> bool {
    // SAFETY: the word is mapped while the communicator lives.
    let word = unsafe { &*(word as *const AtomicU32) };
    reached(word.load(Ordering::Acquire), value as u32)
}

/// The waits that are under way.
pub struct HostWaits {
    origin: Instant,
    slots: Slots<WORDS>,
    /// Waits for which there was no slot.
    more: Mutex<Vec<HostWait>>,
}

impl HostWaits {
    /// Makes an empty table.
    pub fn new() -> Self {
        Self {
            origin: Instant::now(),
            slots: Slots::new(SLOTS),
            more: Mutex::default(),
        }
    }

    /// Adds a wait, or releases it if all were released before. Neither locks nor allocates while fewer than
    /// [`SLOTS`] waits are not satisfied.
    pub fn add(&self, wait: HostWait) {
        if !self.slots.add(self.record(&wait), is_over) {
            let mut more = lock(&self.more);
            more.retain(|wait| !wait.is_satisfied());
            more.push(wait);
        }
        if self.slots.is_closed() {
            wait.release();
        }
    }

    /// Releases all waits, also those that are added later.
    pub fn release_all(&self) {
        self.slots.close();
        self.slots.retain(|record| {
            self.wait(record).release();
            false
        });
        lock(&self.more).drain(..).for_each(|wait| wait.release());
    }

    /// Returns a wait that is past its deadline and not satisfied, and forgets those that are satisfied.
    pub fn expired(&self) -> Option<HostWait> {
        let mut found = None;
        let mut keep = |wait: HostWait| {
            let waits = !wait.is_satisfied();
            if waits && wait.since.elapsed() > wait.limit {
                found.get_or_insert(wait);
            }
            waits
        };
        self.slots.retain(|record| keep(self.wait(record)));
        lock(&self.more).retain(|wait| keep(*wait));
        found
    }

    fn record(&self, wait: &HostWait) -> Record {
        let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        [
            wait.word as u64,
            u64::from(wait.value),
            wait.peer as u64,
            u64::from(wait.channel),
            nanoseconds(wait.since.saturating_duration_since(self.origin)),
            nanoseconds(wait.limit),
        ]
    }

    /// Returns the wait of which [`HostWaits::record`] made this record.
    fn wait(&self, [word, value, peer, channel, since, limit]: Record) -> HostWait {
        HostWait {
            word: word as *const AtomicU32,
            value: value as u32,
            peer: peer as usize,
            channel: channel as u32,
            since: self.origin + Duration::from_nanos(since),
            limit: Duration::from_nanos(limit),
        }
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
        assert!(more.is_empty());
    }

    /// The number of a satisfied wait is passed by half of all numbers after 2^31 signals, and would count as ahead.
    #[test]
    fn a_wait_that_the_watcher_has_seen_satisfied_is_forgotten() {
        let (waits, word) = (HostWaits::new(), AtomicU32::new(1));
        waits.add(wait(&word, 1, Duration::ZERO));
        assert!(waits.expired().is_none());
        word.store(2 + (1 << 31), Ordering::Release);
        std::thread::sleep(Duration::from_millis(1));
        assert!(waits.expired().is_none());
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
