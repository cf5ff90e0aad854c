//! Signal epochs: the rules by which one rank tells another that something has happened.
//!
//! A signal is a 32-bit word that only counts up. Nothing is reset between uses, so values are
//! compared with wrapping arithmetic: two epochs less than 2³¹ apart have an order. A waiter that
//! wants to sleep counts itself beside the word, and the giver looks there after it has written.
//!
//! The functions work on any [`Word`], so that loom runs the very code that ships:
//! `RUSTFLAGS="--cfg loom" cargo test -p symmem-core --lib loom`.

use std::sync::atomic::{AtomicU32, Ordering};

/// A 32-bit atomic: the standard library's, or loom's in a model.
pub trait Word {
    /// Reads the word.
    fn load(&self, order: Ordering) -> u32;
    /// Writes the word.
    fn store(&self, value: u32, order: Ordering);
    /// Adds, wrapping; returns what was there before.
    fn fetch_add(&self, value: u32, order: Ordering) -> u32;
    /// Writes `new` if the word is `current`; else returns what it is.
    fn compare_exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32>;
    /// A sequentially consistent fence.
    fn full_fence();
}

impl Word for AtomicU32 {
    #[inline]
    fn load(&self, order: Ordering) -> u32 {
        self.load(order)
    }
    #[inline]
    fn store(&self, value: u32, order: Ordering) {
        self.store(value, order);
    }
    #[inline]
    fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
        self.fetch_add(value, order)
    }
    #[inline]
    fn compare_exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
        self.compare_exchange(current, new, order, Ordering::Relaxed)
    }
    #[inline]
    fn full_fence() {
        std::sync::atomic::fence(Ordering::SeqCst);
    }
}

/// What a waiter finds when it looks at its word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outlook {
    /// The signal has come, and what its giver did before is visible.
    Reached,
    /// It has not, and the abort word is set.
    Aborted {
        /// The word's value.
        seen: u32,
    },
    /// It has not yet.
    Waiting {
        /// The word's value.
        seen: u32,
    },
}

/// Whether `seen` is `expected` or one of the 2³¹ − 1 epochs after it.
#[inline]
pub fn reached(seen: u32, expected: u32) -> bool {
    seen.wrapping_sub(expected) < 1 << 31
}

/// Advances a counter of uses and returns the new epoch. Streams may share the counter.
#[inline]
pub fn next<W: Word>(counter: &W) -> u32 {
    counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1)
}

/// Writes `value` to the word: whoever reads it with acquire order sees all that came before.
/// Returns whether somebody may be asleep on the word and has to be woken.
#[inline]
#[must_use]
pub fn publish<W: Word>(word: &W, sleepers: &W, value: u32) -> bool {
    word.store(value, Ordering::Release);
    somebody_sleeps(sleepers)
}

/// As [`publish`], for several words, each with its count of sleepers, and with one fence for all.
/// `wake` is given each word on which somebody may be asleep.
#[inline]
pub fn publish_all<'a, W: Word + 'a>(
    words: impl Iterator<Item = (&'a W, &'a W)> + Clone,
    value: u32,
    mut wake: impl FnMut(&'a W),
) {
    for (word, _) in words.clone() {
        word.store(value, Ordering::Release);
    }
    W::full_fence();
    for (word, sleepers) in words {
        if sleepers.load(Ordering::Relaxed) != 0 {
            wake(word);
        }
    }
}

/// The half of an inbox that a use is for, of two used in turn.
///
/// Every member sends to every other in every use and waits for all of them. So before it begins a
/// use, it has received the one before from each, who by then had read the use before that: that one's
/// half is free again.
#[inline]
pub fn half_of(number: u32) -> u32 {
    number & 1
}

/// As [`publish`], but never takes the word back: of two streams that count with one counter, the
/// one with the earlier epoch may come second. Which of the two made a waiter go on is not defined.
#[inline]
#[must_use]
pub fn raise<W: Word>(word: &W, sleepers: &W, value: u32) -> bool {
    let mut seen = word.load(Ordering::Relaxed);
    while !reached(seen, value) {
        match word.compare_exchange(seen, value, Ordering::Release) {
            Ok(_) => break,
            Err(other) => seen = other,
        }
    }
    somebody_sleeps(sleepers)
}

/// The giver's half of the handshake with a sleeper. The fence orders the giver's store before this
/// load; [`register_sleeper`] orders the sleeper's count before its last look. So one of the two
/// sees the other (Dekker), and no wake-up is lost.
#[inline]
fn somebody_sleeps<W: Word>(sleepers: &W) -> bool {
    W::full_fence();
    sleepers.load(Ordering::Relaxed) != 0
}

/// Counts the caller as asleep. It must look at the word once more before it sleeps, which
/// `FUTEX_WAIT` does.
#[inline]
pub fn register_sleeper<W: Word>(sleepers: &W) {
    sleepers.fetch_add(1, Ordering::SeqCst);
    W::full_fence();
}

/// Takes back one [`register_sleeper`].
#[inline]
pub fn unregister_sleeper<W: Word>(sleepers: &W) {
    sleepers.fetch_add(u32::MAX, Ordering::Relaxed);
}

/// Looks once. A signal that has come counts even if the abort word is set too.
#[inline]
pub fn look<W: Word>(word: &W, expected: u32, abort: Option<&W>) -> Outlook {
    let seen = word.load(Ordering::Acquire);
    if reached(seen, expected) {
        Outlook::Reached
    } else if abort.is_some_and(|abort| abort.load(Ordering::Acquire) != 0) {
        Outlook::Aborted { seen }
    } else {
        Outlook::Waiting { seen }
    }
}

/// Claims a record whose state goes 0 → 1 → 2: true for exactly one caller, who then fills it and
/// calls [`complete`].
#[inline]
#[must_use]
pub fn claim<W: Word>(state: &W) -> bool {
    state.compare_exchange(0, 1, Ordering::Relaxed).is_ok()
}

/// Declares a claimed record complete: whoever reads 2 with acquire order sees its fields.
#[inline]
pub fn complete<W: Word>(state: &W) {
    state.store(2, Ordering::Release);
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn an_epoch_is_reached_by_itself_and_by_later_ones_across_the_wrap() {
        for expected in [0, 1, 7, u32::MAX - 1, u32::MAX, 1 << 31] {
            assert!(reached(expected, expected));
            assert!(reached(expected.wrapping_add(1), expected));
            assert!(reached(expected.wrapping_add((1 << 31) - 1), expected));
            assert!(!reached(expected.wrapping_add(1 << 31), expected));
            assert!(!reached(expected.wrapping_sub(1), expected));
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, cases: if cfg!(miri) { 8 } else { 256 }, ..ProptestConfig::default() })]
        #[test]
        fn of_two_different_epochs_one_comes_first(first: u32, ahead in 1..1u32 << 31) {
            let second = first.wrapping_add(ahead);
            prop_assert!(reached(second, first));
            prop_assert!(!reached(first, second));
        }
    }

    #[test]
    fn a_raised_word_never_goes_back_and_counts_across_the_wrap() {
        let (word, sleepers) = (AtomicU32::new(u32::MAX), AtomicU32::new(0));
        assert!(!raise(&word, &sleepers, 1));
        assert!(!raise(&word, &sleepers, 0));
        assert_eq!(word.load(Ordering::Relaxed), 1);
    }

    #[test]
    fn the_giver_hears_of_a_sleeper_until_it_has_left() {
        let (word, sleepers) = (AtomicU32::new(0), AtomicU32::new(0));
        register_sleeper(&sleepers);
        assert!(publish(&word, &sleepers, 1));
        unregister_sleeper(&sleepers);
        assert!(!publish(&word, &sleepers, 2));
    }

    #[test]
    fn of_several_words_those_are_woken_on_which_somebody_sleeps() {
        let words = [AtomicU32::new(0), AtomicU32::new(0)];
        let sleepers = [AtomicU32::new(0), AtomicU32::new(2)];
        let mut woken = Vec::new();
        publish_all(words.iter().zip(&sleepers), 5, |word| woken.push(word));
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 5));
        assert!(woken.len() == 1 && std::ptr::eq(woken[0], &words[1]));
    }

    #[test]
    fn halves_take_turns_across_the_wrap() {
        let halves = [u32::MAX - 1, u32::MAX, 0, 1].map(half_of);
        assert_eq!(halves, [0, 1, 0, 1]);
    }

    #[test]
    fn a_signal_that_has_come_counts_although_the_abort_word_is_set() {
        let (word, abort) = (AtomicU32::new(4), AtomicU32::new(1));
        assert_eq!(look(&word, 4, Some(&abort)), Outlook::Reached);
        assert_eq!(look(&word, 5, Some(&abort)), Outlook::Aborted { seen: 4 });
        assert_eq!(look(&word, 5, None), Outlook::Waiting { seen: 4 });
    }

    #[test]
    fn threads_give_and_wait_in_turn_across_the_wrap() {
        let start = u32::MAX - 3;
        let words = [AtomicU32::new(start), AtomicU32::new(start)];
        let sleepers = AtomicU32::new(0);
        std::thread::scope(|scope| {
            for rank in 0..2 {
                let (words, sleepers) = (&words, &sleepers);
                scope.spawn(move || {
                    for round in 1..=8 {
                        let epoch = start.wrapping_add(round);
                        assert!(!publish(&words[1 - rank], sleepers, epoch));
                        while look(&words[rank], epoch, None) != Outlook::Reached {
                            std::thread::yield_now();
                        }
                    }
                });
            }
        });
    }
}

#[cfg(all(test, loom))]
mod loom_models {
    use super::*;
    use loom::cell::UnsafeCell;
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU32;
    use loom::thread;

    impl Word for AtomicU32 {
        fn load(&self, order: Ordering) -> u32 {
            self.load(order)
        }
        fn store(&self, value: u32, order: Ordering) {
            self.store(value, order);
        }
        fn fetch_add(&self, value: u32, order: Ordering) -> u32 {
            self.fetch_add(value, order)
        }
        fn compare_exchange(&self, current: u32, new: u32, order: Ordering) -> Result<u32, u32> {
            self.compare_exchange(current, new, order, Ordering::Relaxed)
        }
        fn full_fence() {
            loom::sync::atomic::fence(Ordering::SeqCst);
        }
    }

    #[derive(Default)]
    struct Channel {
        word: AtomicU32,
        sleepers: AtomicU32,
        abort: AtomicU32,
        state: AtomicU32,
        data: UnsafeCell<u32>,
    }

    #[test]
    fn who_sees_the_signal_sees_the_data_across_the_wrap() {
        loom::model(|| {
            let channel = Arc::new(Channel {
                word: AtomicU32::new(u32::MAX),
                ..Channel::default()
            });
            let giver = {
                let channel = channel.clone();
                thread::spawn(move || {
                    // SAFETY: the waiter reads only after the signal; loom checks that.
                    channel.data.with_mut(|data| unsafe { *data = 7 });
                    let _ = publish(&channel.word, &channel.sleepers, 0);
                })
            };
            while look(&channel.word, 0, None) != Outlook::Reached {
                thread::yield_now();
            }
            // SAFETY: the signal came after the write; loom checks that.
            assert_eq!(channel.data.with(|data| unsafe { *data }), 7);
            giver.join().unwrap();
        });
    }

    #[test]
    fn of_two_givers_with_one_counter_the_later_epoch_stays() {
        loom::model(|| {
            let channel = Arc::new(Channel {
                word: AtomicU32::new(u32::MAX),
                abort: AtomicU32::new(u32::MAX),
                ..Channel::default()
            });
            let give = |channel: &Channel| {
                let epoch = next(&channel.abort);
                let _ = raise(&channel.word, &channel.sleepers, epoch);
            };
            let other = {
                let channel = channel.clone();
                thread::spawn(move || give(&channel))
            };
            give(&channel);
            other.join().unwrap();
            assert_eq!(channel.word.load(Ordering::Relaxed), 1);
        });
    }

    #[test]
    fn nobody_sleeps_through_a_signal() {
        loom::model(|| {
            let channel = Arc::new(Channel::default());
            let giver = {
                let channel = channel.clone();
                thread::spawn(move || publish(&channel.word, &channel.sleepers, 1))
            };
            register_sleeper(&channel.sleepers);
            // What FUTEX_WAIT does: sleep if the word is still the old value.
            let sleeps = channel.word.load(Ordering::Relaxed) == 0;
            let woken = giver.join().unwrap();
            assert!(!sleeps || woken, "asleep, and the giver did not know");
            unregister_sleeper(&channel.sleepers);
        });
    }

    #[test]
    fn an_abort_ends_a_wait_unless_the_signal_has_come() {
        loom::model(|| {
            let channel = Arc::new(Channel::default());
            let peer = {
                let channel = channel.clone();
                thread::spawn(move || {
                    // SAFETY: read only by who saw the signal; loom checks that.
                    channel.data.with_mut(|data| unsafe { *data = 7 });
                    let _ = publish(&channel.word, &channel.sleepers, 1);
                    channel.abort.store(1, Ordering::Release);
                })
            };
            let end = loop {
                match look(&channel.word, 1, Some(&channel.abort)) {
                    Outlook::Waiting { .. } => thread::yield_now(),
                    end => break end,
                }
            };
            if end == Outlook::Reached {
                // SAFETY: the signal came after the write; loom checks that.
                assert_eq!(channel.data.with(|data| unsafe { *data }), 7);
            }
            peer.join().unwrap();
        });
    }

    #[test]
    fn of_two_waits_that_give_up_one_fills_the_record() {
        loom::model(|| {
            let channel = Arc::new(Channel::default());
            let fill = |channel: &Channel| {
                let mine = claim(&channel.state);
                if mine {
                    // SAFETY: only who claimed the record writes it; loom checks that.
                    channel.data.with_mut(|data| unsafe { *data += 1 });
                    complete(&channel.state);
                }
                mine
            };
            let other = {
                let channel = channel.clone();
                thread::spawn(move || fill(&channel))
            };
            let mine = fill(&channel);
            if channel.state.load(Ordering::Acquire) == 2 {
                // SAFETY: complete, so nobody writes it any more; loom checks that.
                assert_eq!(channel.data.with(|data| unsafe { *data }), 1);
            }
            assert!(mine != other.join().unwrap());
        });
    }

    /// What one of two members has, and what the other stores there.
    #[derive(Default)]
    struct Member {
        counter: AtomicU32,
        /// A word for barriers, and the flags of both halves.
        words: [AtomicU32; 3],
        sleepers: AtomicU32,
        /// Both inboxes, or data that peers load between barriers.
        data: [UnsafeCell<u32>; 2],
    }

    impl Member {
        fn starting_at(start: u32) -> Self {
            Self {
                counter: AtomicU32::new(start),
                words: [(); 3].map(|()| AtomicU32::new(start)),
                ..Self::default()
            }
        }

        fn raise(&self, word: usize, value: u32) {
            let words = [(&self.words[word], &self.sleepers)];
            publish_all(words.into_iter(), value, |_| {});
        }

        fn wait(&self, word: usize, expected: u32) {
            while look(&self.words[word], expected, None) != Outlook::Reached {
                thread::yield_now();
            }
        }

        fn write(&self, index: usize, value: u32) {
            // SAFETY: whoever reads it before or after is ordered with us; loom checks that.
            self.data[index].with_mut(|data| unsafe { *data = value });
        }

        fn read(&self, index: usize) -> u32 {
            // SAFETY: as above.
            self.data[index].with(|data| unsafe { *data })
        }
    }

    /// Both members do the same; preemptions are bounded, since both spin.
    fn both(
        start: u32,
        preemptions: usize,
        body: impl Fn(&Member, &Member) + Copy + Sync + Send + 'static,
    ) {
        let mut model = loom::model::Builder::new();
        model.preemption_bound = Some(preemptions);
        model.check(move || {
            let members = Arc::new([Member::starting_at(start), Member::starting_at(start)]);
            let other = {
                let members = members.clone();
                thread::spawn(move || body(&members[1], &members[0]))
            };
            body(&members[0], &members[1]);
            other.join().unwrap();
        });
    }

    #[test]
    fn between_two_barriers_members_load_what_all_stored_before_the_first_across_the_wrap() {
        both(u32::MAX - 1, 2, |me, peer| {
            let barrier = || {
                let epoch = next(&me.counter);
                peer.raise(0, epoch);
                me.wait(0, epoch);
                epoch
            };
            for round in 1..3 {
                me.write(0, round);
                barrier();
                assert_eq!(peer.read(0), round);
                barrier();
            }
        });
    }

    #[test]
    fn an_inbox_of_two_halves_is_read_before_it_is_written_again_across_the_wrap() {
        both(u32::MAX - 1, 2, |me, peer| {
            for _ in 0..3 {
                let number = next(&me.counter);
                let half = half_of(number) as usize;
                peer.write(half, number);
                peer.raise(1 + half, number);
                me.wait(1 + half, number);
                assert_eq!(me.read(half), number);
            }
        });
    }
}
