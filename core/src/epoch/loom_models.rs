//! Models in which loom explores every interleaving of threads that follow the rules.

use super::*;
use loom::cell::UnsafeCell;
use loom::sync::Arc;
use loom::sync::atomic::AtomicU32;
use loom::thread;
use std::sync::atomic::Ordering;

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
                // SAFETY: the waiter reads only after the signal; loom checks this.
                channel.data.with_mut(|data| unsafe { *data = 7 });
                let _ = publish(&channel.word, &channel.sleepers, 0);
            })
        };
        while look(&channel.word, 0, None) != Outlook::Reached {
            thread::yield_now();
        }
        // SAFETY: the write happened before the signal; loom checks this.
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
        // Models FUTEX_WAIT: sleep if the word still has the old value.
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
                // SAFETY: only a thread that saw the signal reads the data; loom checks this.
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
            // SAFETY: the write happened before the signal; loom checks this.
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
                // SAFETY: only the thread that claimed the record writes it; loom checks this.
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
            // SAFETY: the record is complete, so no thread writes it; loom checks this.
            assert_eq!(channel.data.with(|data| unsafe { *data }), 1);
        }
        assert!(mine != other.join().unwrap());
    });
}

/// The memory of one of two members, in part written by the other.
#[derive(Default)]
struct Member {
    counter: AtomicU32,
    /// A word for barriers, then a flag for each half of the inbox.
    words: [AtomicU32; 3],
    sleepers: AtomicU32,
    /// Two inboxes, or data that peers load between barriers.
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
        // SAFETY: every read is ordered before or after this write; loom checks this.
        self.data[index].with_mut(|data| unsafe { *data = value });
    }

    fn read(&self, index: usize) -> u32 {
        // SAFETY: every write is ordered before or after this read; loom checks this.
        self.data[index].with(|data| unsafe { *data })
    }
}

/// Runs `body` on both members. Preemptions are bounded because both members spin.
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

/// Places for Lamport packets of one word from one peer.
#[derive(Default)]
struct Inbox([AtomicU32; 2]);

#[test]
fn the_places_of_lamport_packets_are_empty_again_before_the_peer_uses_them_again() {
    let mut model = loom::model::Builder::new();
    model.preemption_bound = Some(2);
    model.check(|| {
        let call_all = |me: &Inbox, peer: &Inbox| {
            let mut buffer = 0;
            // The last calls use the places of the first ones.
            for call in 1..5u32 {
                lamport::fence::<AtomicU32>();
                lamport::send(&peer.0[buffer as usize], call);
                let data = loop {
                    match lamport::received(&me.0[buffer as usize]) {
                        Some(data) => break data,
                        None => thread::yield_now(),
                    }
                };
                lamport::fence::<AtomicU32>();
                lamport::empty(&me.0[buffer as usize]);
                assert_eq!(data, call);
                buffer = lamport::next_buffer(buffer);
            }
        };
        let inboxes = Arc::new([Inbox::default(), Inbox::default()]);
        let other = {
            let inboxes = inboxes.clone();
            thread::spawn(move || call_all(&inboxes[1], &inboxes[0]))
        };
        call_all(&inboxes[0], &inboxes[1]);
        other.join().unwrap();
    });
}
