//! Slots: a table of small records that many threads add to without a lock, and that any thread goes through.
//!
//! Each slot has a sequence number, which only counts up. Its remainder by four tells the slot's state: free, being
//! written, or holding a record. Whoever finds the same number after reading a record as before has read one whole
//! record, because each change of the record changes the number.

#[cfg(loom)]
use loom::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(not(loom))]
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering, fence};

// States of a slot: the sequence number modulo 4.
const FREE: u64 = 0;
const WRITTEN: u64 = 1;
const HELD: u64 = 2;
const STATES: u64 = 4;

/// A table of records of `WORDS` words each.
pub struct Slots<const WORDS: usize> {
    slots: Box<[Slot<WORDS>]>,
    /// The slot to try first.
    next: AtomicUsize,
    closed: AtomicBool,
}

struct Slot<const WORDS: usize> {
    sequence: AtomicU64,
    words: [AtomicU64; WORDS],
}

impl<const WORDS: usize> Slots<WORDS> {
    /// Makes a table of `count` free slots.
    pub fn new(count: usize) -> Self {
        let slot = |_| Slot {
            sequence: AtomicU64::new(FREE),
            words: std::array::from_fn(|_| AtomicU64::new(0)),
        };
        Self {
            slots: (0..count).map(slot).collect(),
            next: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
        }
    }

    /// Puts a record into a slot that is free, or whose record `is_over`. Returns false if there is none. Neither
    /// blocks nor allocates.
    pub fn add(&self, record: [u64; WORDS], is_over: impl Fn([u64; WORDS]) -> bool) -> bool {
        let (count, first) = (self.slots.len(), self.next.fetch_add(1, Ordering::Relaxed));
        let mut slots = (0..count).map(|at| &self.slots[first.wrapping_add(at) % count]);
        slots.any(|slot| slot.write(record, &is_over))
    }

    /// Calls `keep` with every record, and frees the slots for which it returns false. A record that is being added
    /// meanwhile may be passed over. Neither blocks nor allocates.
    pub fn retain(&self, mut keep: impl FnMut([u64; WORDS]) -> bool) {
        self.slots
            .iter()
            .for_each(|slot| slot.free_if(|record| !keep(record)));
    }

    /// Tells threads that add records that nobody goes through them any more. Call [`Slots::retain`] afterwards: a
    /// record that it passes over belongs to a thread for which [`Slots::is_closed`] returns true.
    pub fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        // Pairs with the fence in `is_closed`: one of the two threads sees what the other did before its fence.
        fence(Ordering::SeqCst);
    }

    /// Returns whether the table was closed. Call it after [`Slots::add`].
    pub fn is_closed(&self) -> bool {
        fence(Ordering::SeqCst);
        self.closed.load(Ordering::Relaxed)
    }
}

impl<const WORDS: usize> Slot<WORDS> {
    /// Returns the record and its sequence number, unless there is none or it is being replaced.
    fn read(&self) -> Option<(u64, [u64; WORDS])> {
        let sequence = self.sequence.load(Ordering::Acquire);
        if sequence % STATES != HELD {
            return None;
        }
        let record = std::array::from_fn(|at| self.words[at].load(Ordering::Relaxed));
        // Pairs with the fence in `write`: who has read a word of a later record sees a later number here.
        fence(Ordering::Acquire);
        (self.sequence.load(Ordering::Relaxed) == sequence).then_some((sequence, record))
    }

    /// Frees the slot if `is_over` says so of its record.
    fn free_if(&self, is_over: impl FnOnce([u64; WORDS]) -> bool) {
        if let Some((sequence, record)) = self.read()
            && is_over(record)
        {
            // If the number has changed, another thread has freed the slot.
            let free = sequence - HELD + STATES;
            let _ = self.exchange(sequence, free);
        }
    }

    /// Writes a record if the slot is free, or if its record `is_over`. Returns whether it did.
    fn write(&self, record: [u64; WORDS], is_over: impl FnOnce([u64; WORDS]) -> bool) -> bool {
        let sequence = self.sequence.load(Ordering::Relaxed);
        let usable = match sequence % STATES {
            FREE => true,
            // If a later record was read, the exchange below fails.
            HELD => self.read().is_some_and(|(_, old)| is_over(old)),
            _ => false,
        };
        // Also from HELD to WRITTEN, the number counts up.
        let written = sequence.next_multiple_of(STATES) + WRITTEN;
        if !usable || !self.exchange(sequence, written) {
            return false;
        }
        fence(Ordering::Release);
        for (word, value) in self.words.iter().zip(record) {
            word.store(value, Ordering::Relaxed);
        }
        self.sequence
            .store(written - WRITTEN + HELD, Ordering::Release);
        true
    }

    /// Replaces the sequence number, if it is `current`. Acquire: the words that follow are stored after those of the
    /// record before.
    fn exchange(&self, current: u64, new: u64) -> bool {
        self.sequence
            .compare_exchange(current, new, Ordering::Acquire, Ordering::Relaxed)
            .is_ok()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn records(slots: &Slots<1>) -> Vec<u64> {
        let mut found = Vec::new();
        slots.retain(|[record]| {
            found.push(record);
            true
        });
        found.sort_unstable();
        found
    }

    #[test]
    fn a_record_stays_until_it_is_over_or_not_retained() {
        let slots = Slots::new(3);
        let never = |_| false;
        assert!(slots.add([1], never) && slots.add([2], never) && slots.add([3], never));
        assert!(!slots.add([4], never), "all slots hold records");
        assert_eq!(records(&slots), [1, 2, 3]);
        assert!(slots.add([5], |[record]| record == 2));
        assert_eq!(records(&slots), [1, 3, 5]);
        slots.retain(|[record]| record == 3);
        assert!(slots.add([6], never) && slots.add([7], never));
        assert_eq!(records(&slots), [3, 6, 7]);
        assert!(!Slots::new(0).add([1], never), "there are no slots");
    }

    #[test]
    fn a_table_is_closed_once_it_was_closed() {
        let slots = Slots::<1>::new(1);
        assert!(!slots.is_closed());
        slots.close();
        assert!(slots.is_closed());
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::sync::Arc;
    use loom::thread;

    // The thread that writes begins: loom compares an access with the last one of its object only, so that a write after
    // a read of the same thread would hide the reads of others before it.

    #[test]
    fn a_record_that_is_read_is_one_whole_record() {
        loom::model(|| {
            let slots = Arc::new(Slots::<2>::new(1));
            assert!(slots.add([1, 1], |_| false));
            let reader = {
                let slots = slots.clone();
                thread::spawn(move || {
                    slots.retain(|[one, other]| {
                        assert_eq!(one, other, "words of two records");
                        true
                    });
                })
            };
            assert!(slots.add([2, 2], |[one, _]| one == 1));
            reader.join().unwrap();
            let mut found = Vec::new();
            slots.retain(|record| {
                found.push(record);
                true
            });
            assert_eq!(found, [[2, 2]]);
        });
    }

    #[test]
    fn a_slot_that_one_thread_frees_for_another_holds_one_whole_record() {
        let mut model = loom::model::Builder::new();
        // All interleavings of three threads take a minute.
        model.preemption_bound = Some(2);
        model.check(|| {
            let slots = Arc::new(Slots::<2>::new(1));
            let run = |act: fn(&Slots<2>)| {
                let slots = slots.clone();
                thread::spawn(move || act(&slots))
            };
            let adder = run(|slots| {
                slots.add([1, 1], |_| false);
            });
            let freeing = run(|slots| slots.retain(|_| false));
            slots.add([2, 2], |_| false);
            adder.join().unwrap();
            freeing.join().unwrap();
            slots.retain(|[one, other]| {
                assert_eq!(one, other, "words of two records");
                true
            });
        });
    }

    #[test]
    fn a_closed_table_leaves_no_record_to_nobody() {
        loom::model(|| {
            let slots = Arc::new(Slots::<1>::new(1));
            let ended = Arc::new(AtomicUsize::new(0));
            let adder = {
                let (slots, ended) = (slots.clone(), ended.clone());
                thread::spawn(move || {
                    assert!(slots.add([7], |_| false));
                    if slots.is_closed() {
                        ended.fetch_add(1, Ordering::Relaxed);
                    }
                })
            };
            slots.close();
            slots.retain(|_| {
                ended.fetch_add(1, Ordering::Relaxed);
                false
            });
            adder.join().unwrap();
            assert_ne!(ended.load(Ordering::Relaxed), 0, "nobody ended the record");
        });
    }
}
