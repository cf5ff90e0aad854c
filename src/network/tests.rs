//! The engines of several ranks in one process, over UCX's loopback transports. Without UCX the tests are skipped.

use super::command::{Action, Command, Place};
use super::delivery::HostDelivery;
use super::engine::Engine;
use super::fault::{Cause, Fault};
use super::inbox::Inbox;
use super::lane::Lane;
use super::leg::leg::Leg;
use super::leg::parts::{Parts, Span};
use super::legs::LegCall;
use super::message::{Header, kind};
use super::slots::Slot;
use super::wires::Wires;
use crate::backend::abi::{DeviceAddress, SIGNAL_STRIDE, WordUpdate};
use crate::base::lock::lock;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use symmem_core::epoch::reached;
use symmem_ucx::{Config, Context, Library, Memory, Worker};

const SESSION: u64 = 0x5e55_1017;
/// Number of the one allocation of every rank.
const NUMBER: u64 = 7;
const WORDS: usize = 1 << 18;
const BYTES: u64 = WORDS as u64 * 8;
/// No test takes as long.
const LONG: Duration = Duration::from_secs(20);

/// One rank: its engine, a queue, and its copy of the allocation.
struct Rank {
    engine: Engine,
    lane: Arc<Lane>,
    memory: Box<[u64]>,
    /// The words of signals, by source.
    signals: Arc<[[u64; 16]]>,
    _registered: Memory,
}

impl Rank {
    fn base(&self) -> u64 {
        self.memory.as_ptr().expose_provenance() as u64
    }

    fn read(&self, index: usize) -> u64 {
        // SAFETY: inside the memory, which peers write through UCX, behind the compiler's back.
        unsafe { (&raw const self.memory[index]).read_volatile() }
    }

    /// Enqueues a command on a stream that gives its start at once.
    fn enqueue(&self, action: Action) -> u32 {
        self.enqueue_within(LONG, action)
    }

    fn enqueue_within(&self, deadline: Duration, action: Action) -> u32 {
        let mut enqueued = self.lane.enqueued();
        let command = Command {
            operation: "test",
            deadline,
            action,
        };
        self.lane.push(&mut enqueued, command);
        enqueued.commands
    }

    fn signals(&self, source: usize) -> u32 {
        let word = (&raw const self.signals[source]).cast::<u32>();
        // SAFETY: a word of this rank, accessed atomically only.
        unsafe { AtomicU32::from_ptr(word.cast_mut()) }.load(Ordering::Acquire)
    }
}

/// Makes the ranks of a world, each on a node of its own; `None` without UCX.
fn ranks(world: usize) -> Option<Vec<Rank>> {
    let library = Library::open()
        .inspect_err(|error| eprintln!("skipped: {error}"))
        .ok()?;
    let config = Config {
        tls: Some("tcp,self".into()),
        ..Config::default()
    };
    let context = Context::new(&library, &config).unwrap();
    let workers: Vec<Arc<Worker>> = (0..world)
        .map(|_| Arc::new(Worker::new(&context).unwrap()))
        .collect();
    let mut all = Vec::new();
    let mut keys = Vec::new();
    for rank in 0..world {
        let mut memory = vec![0_u64; WORDS].into_boxed_slice();
        let base = memory.as_mut_ptr().cast::<u8>();
        // SAFETY: the memory outlives the registration, and is accessed by address while peers write it.
        let registered = unsafe { context.register(base, BYTES as usize) }.unwrap();
        keys.push((
            base.expose_provenance() as u64,
            registered.packed_key().unwrap(),
        ));
        let signals: Arc<[[u64; 16]]> = vec![[0; 16]; world].into();
        let first = signals.as_ptr().expose_provenance() as u64;
        // SAFETY: one word for each source, which `Rank` keeps as long as the engine.
        let delivery = unsafe {
            HostDelivery::new(move |_, source| DeviceAddress(first + source as u64 * SIGNAL_STRIDE))
        };
        let mut inbox = Inbox::new(SESSION, world, Box::new(delivery));
        inbox.open_window(NUMBER, DeviceAddress(keys[rank].0), BYTES);
        let addresses: Vec<_> = (0..world)
            .map(|peer| (peer != rank).then(|| workers[peer].address().to_vec()))
            .collect();
        let worker = workers[rank].clone();
        let leaders = (0..world).collect();
        let wires = Wires::new(rank, SESSION, worker, &addresses, inbox, leaders).unwrap();
        let mut engine = Engine::new(wires);
        let lane = Arc::new(Lane::new(Slot::leaked()));
        engine.add_lane(lane.clone());
        all.push(Rank {
            engine,
            lane,
            memory,
            signals,
            _registered: registered,
        });
    }
    for (rank, one) in all.iter_mut().enumerate() {
        let copies: Vec<_> = (0..world)
            .map(|peer| (peer != rank).then(|| keys[peer].clone()))
            .collect();
        one.engine.wires.add_keys(NUMBER, &copies).unwrap();
    }
    Some(all)
}

/// Advances all engines until the condition holds.
fn run(ranks: &mut [Rank], mut until: impl FnMut(&[Rank]) -> bool) -> Result<(), Fault> {
    let start = Instant::now();
    while !until(ranks) {
        assert!(start.elapsed() < LONG, "nothing more happens");
        for rank in &mut *ranks {
            rank.engine.step()?;
        }
    }
    Ok(())
}

fn finish(ranks: &mut [Rank]) {
    run(ranks, |ranks| {
        ranks
            .iter()
            .all(|rank| reached(rank.lane.slot.done(), rank.lane.enqueued().commands))
    })
    .unwrap();
}

fn at(index: usize) -> Place {
    Place {
        number: NUMBER,
        offset: index as u64 * 8,
    }
}

fn put(peer: usize, to: usize, from: u64, words: usize, channel: Option<u32>) -> Action {
    Action::Put {
        peer,
        to: at(to),
        from,
        bytes: words as u64 * 8,
        channel,
    }
}

/// A sequence of numbers that looks random.
fn next(state: &mut u64) -> usize {
    *state = state
        .wrapping_mul(6364136223846793005)
        .wrapping_add(1442695040888963407);
    (*state >> 33) as usize
}

#[test]
fn puts_and_gets_of_any_size_move_exactly_their_bytes() {
    let Some(mut ranks) = ranks(2) else { return };
    let mut seed = 1;
    for round in 0..40 {
        // From nothing but a word to half a megabyte, across the limit of messages.
        let words = 1 + next(&mut seed) % (1 << (round % 16));
        let (from, to) = (next(&mut seed) % 1000, 100_000 + next(&mut seed) % 1000);
        let source: Vec<u64> = (0..words).map(|_| next(&mut seed) as u64).collect();
        let poison = 0xdead_beef_dead_beef;
        ranks[0].memory[from..from + words].copy_from_slice(&source);
        ranks[1].memory.fill(poison);
        let address = ranks[0].base() + from as u64 * 8;
        ranks[0].enqueue(put(1, to, address, words, None));
        finish(&mut ranks);
        let seen: Vec<u64> = (to - 1..=to + words)
            .map(|index| ranks[1].read(index))
            .collect();
        assert_eq!(seen[1..=words], source, "{words} words");
        assert_eq!(
            (seen[0], seen[words + 1]),
            (poison, poison),
            "around {words} words"
        );
        ranks[0].memory[..].fill(poison);
        let address = ranks[0].base() + 8 * 50_000;
        ranks[0].enqueue(Action::Get {
            peer: 1,
            from: at(to),
            to: address,
            bytes: words as u64 * 8,
        });
        finish(&mut ranks);
        let seen: Vec<u64> = (49_999..=50_000 + words)
            .map(|index| ranks[0].read(index))
            .collect();
        assert_eq!(seen[1..=words], source, "{words} words back");
        assert_eq!((seen[0], seen[words + 1]), (poison, poison));
    }
}

#[test]
fn later_puts_overwrite_earlier_ones_and_a_get_reads_the_last() {
    let Some(mut ranks) = ranks(2) else { return };
    let words = 10_000;
    let values = 5;
    for value in 0..values {
        ranks[0].memory[value * words..(value + 1) * words].fill(1 + value as u64);
    }
    let base = ranks[0].base();
    for value in 0..values {
        ranks[0].enqueue(put(1, 0, base + (value * words * 8) as u64, words, None));
    }
    ranks[0].enqueue(Action::Get {
        peer: 1,
        from: at(0),
        to: base + 100_000 * 8,
        bytes: 8 * words as u64,
    });
    finish(&mut ranks);
    for index in 0..words {
        assert_eq!(ranks[0].read(100_000 + index), values as u64);
    }
}

#[test]
fn whoever_sees_a_signal_sees_all_that_was_put_before_it_and_no_signal_is_lost() {
    let Some(mut ranks) = ranks(2) else { return };
    let (mut seed, base) = (3, ranks[0].base());
    let mut expected = Vec::new();
    let mut place = 0;
    for number in 1..=100_u64 {
        // Small ones and large ones, with puts in between that have no signal.
        let words = 1 + next(&mut seed) % 3000;
        ranks[0].memory[place..place + words].fill(number);
        let channel = (number % 3 != 0).then_some(0);
        ranks[0].enqueue(put(1, place, base + 8 * place as u64, words, channel));
        place += words;
        expected.push((place - 1, number, channel.is_some()));
    }
    let mut seen = 0;
    let total = expected.iter().filter(|one| one.2).count() as u32;
    run(&mut ranks, |ranks| {
        let count = ranks[1].signals(0);
        assert!(count >= seen && count <= total);
        seen = count;
        let mut left = count;
        for &(last, number, signals) in &expected {
            if left == 0 {
                break;
            }
            assert_eq!(ranks[1].read(last), number, "with {count} signals");
            left -= u32::from(signals);
        }
        count == total
    })
    .unwrap();
    finish(&mut ranks);
}

#[test]
fn updates_of_several_ranks_to_one_word_are_atomic_and_return_the_earlier_value() {
    let Some(mut ranks) = ranks(3) else { return };
    let update = |peer, update, operand, compare, result| Action::Update {
        peer,
        word: at(5),
        update,
        bits: 64,
        operand,
        compare,
        result: Some(result),
    };
    let mut results: Vec<Vec<u64>> = vec![vec![u64::MAX; 50]; 2];
    for (index, results) in results.iter_mut().enumerate() {
        let base = results.as_mut_ptr().expose_provenance() as u64;
        for number in 0..50 {
            let result = base + 8 * number;
            ranks[1 + index].enqueue(update(0, WordUpdate::ADD, 1, 0, result));
        }
    }
    finish(&mut ranks);
    let mut all = results.concat();
    all.sort_unstable();
    assert_eq!(all, (0..100).collect::<Vec<u64>>());
    let mut old = [u64::MAX; 3];
    let result = old.as_mut_ptr().expose_provenance() as u64;
    ranks[1].enqueue(update(0, WordUpdate::COMPARE_SWAP, 7, 100, result));
    ranks[1].enqueue(update(0, WordUpdate::COMPARE_SWAP, 8, 100, result + 8));
    ranks[1].enqueue(update(0, WordUpdate::FETCH, 0, 0, result + 16));
    finish(&mut ranks);
    // SAFETY: written by address.
    assert_eq!(unsafe { (&raw const old).read_volatile() }, [100, 7, 7]);
}

#[test]
fn nobody_passes_a_barrier_before_all_have_come() {
    for world in [2, 3, 5] {
        let Some(mut ranks) = ranks(world) else {
            return;
        };
        for round in 1..=3 {
            let passed = |ranks: &[Rank]| {
                let done = |rank: &&Rank| reached(rank.lane.slot.done(), round);
                ranks.iter().filter(done).count()
            };
            for rank in &ranks[1..] {
                rank.enqueue(Action::Barrier { channel: 2 });
            }
            let start = Instant::now();
            run(&mut ranks, |ranks| {
                assert_eq!(passed(ranks), 0, "rank 0 has not come");
                start.elapsed() > Duration::from_millis(20)
            })
            .unwrap();
            ranks[0].enqueue(Action::Barrier { channel: 2 });
            finish(&mut ranks);
        }
    }
}

#[test]
fn a_command_waits_for_the_start_that_the_stream_gives() {
    let Some(mut ranks) = ranks(2) else { return };
    let base = ranks[0].base();
    ranks[0].lane.enqueued().starts = 1;
    ranks[0].memory[0] = 9;
    ranks[0].enqueue(put(1, 0, base, 1, Some(0)));
    let start = Instant::now();
    run(&mut ranks, |ranks| {
        assert_eq!(ranks[1].signals(0), 0);
        start.elapsed() > Duration::from_millis(20)
    })
    .unwrap();
    let target = ranks[0].lane.slot.start(Some(1));
    // SAFETY: the slot's start word.
    unsafe { symmem_core::host::raise_signal(target.word, 1) };
    finish(&mut ranks);
    assert_eq!((ranks[1].signals(0), ranks[1].read(0)), (1, 9));
}

#[test]
fn a_peer_that_is_silent_is_named_with_the_command_once_the_deadline_has_passed() {
    let Some(mut ranks) = ranks(2) else { return };
    let base = ranks[0].base();
    for (words, action) in [
        (1, put(1, 0, base, 1, Some(0))),
        (20_000, put(1, 0, base, 20_000, None)),
    ] {
        ranks[0].enqueue_within(Duration::from_millis(50), action);
        let start = Instant::now();
        // Rank 1 does not step.
        let fault = loop {
            assert!(start.elapsed() < LONG);
            if let Err(fault) = ranks[0].engine.step() {
                break fault;
            }
        };
        assert!(matches!(fault.cause, Cause::Silent(_)), "{fault:?}");
        assert_eq!((fault.peer, fault.operation), (1, "test"));
        assert_eq!(fault.bytes, Some(words * 8));
        assert_eq!(ranks[0].engine.abandon(), 1, "the command was not complete");
        assert!(
            reached(ranks[0].lane.slot.done(), 1),
            "the stream is released"
        );
        let Some(again) = self::ranks(2) else { return };
        ranks = again;
    }
}

/// Else a thread that waits for the last leg never sleeps, and takes a processor from whoever it waits for.
#[test]
fn a_leg_that_is_done_is_no_progress_of_those_beside_it() {
    let Some(mut ranks) = ranks(3) else { return };
    let leg = |own: usize, peer: usize, base: u64| {
        let number = usize::from(own > peer);
        let part = Parts::only(1 - number, 2, Span::default());
        LegCall {
            key: (own + peer) as u64,
            members: [own.min(peer), own.max(peer)].into(),
            own: number,
            place: (NUMBER, 0),
            address: base,
            bytes: BYTES,
            source: None,
            leg: match peer {
                // Nothing goes: it is done at once.
                1 => Leg::exchange(part.clone(), part),
                _ => Leg::Barrier,
            },
        }
    };
    let base = ranks[0].base();
    ranks[0].enqueue(Action::Legs(vec![leg(0, 1, base), leg(0, 2, base)]));
    let rank = &mut ranks[0];
    let is_quiet = (0..100_000).any(|_| !rank.engine.step().unwrap().moved);
    assert!(is_quiet, "it waits for rank 2");
    let base = ranks[2].base();
    ranks[2].enqueue(Action::Legs(vec![leg(2, 0, base)]));
    finish(&mut ranks);
}

#[test]
fn a_message_that_makes_no_sense_is_a_fault_and_one_of_a_stranger_is_dropped() {
    let Some(ranks) = ranks(2) else { return };
    let header = Header {
        session: SESSION,
        kind: kind::PUT,
        source: 1,
        channel: super::message::NO_CHANNEL,
        number: NUMBER,
        offset: BYTES - 4,
        ..Header::default()
    };
    let mut inbox = lock(&ranks[0].engine.wires.inbox);
    let mut take = |header: Header, data: &[u8]| {
        inbox.handle(zerocopy::IntoBytes::as_bytes(&header), data);
        inbox.fault().cloned()
    };
    let strange = Header {
        session: SESSION + 1,
        ..header
    };
    assert!(take(strange, &[1; 8]).is_none());
    let far = Header {
        source: 2,
        ..header
    };
    assert!(take(far, &[1; 8]).is_none());
    let fault = take(header, &[1; 8]).expect("it is outside");
    assert_eq!(fault.0, 1);
    let Cause::Text(text) = fault.1 else {
        panic!("{fault:?}")
    };
    assert!(text.contains("outside of allocation 7"), "{text}");
}
