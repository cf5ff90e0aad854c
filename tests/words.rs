//! Words of symmetric memory: signals set and added, waits for one, any and all, atomic operations.
//!
//! Ranks are threads, but where one is killed. On the host backend, and by a test that starts this
//! program again with `WORDS_BACKEND` on CUDA over the fake driver.

#[allow(dead_code, reason = "these tests use the fake driver only")]
mod support;

use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use symmem::backend::abi::SIGNAL_STRIDE;
use symmem::select::Selection;
use symmem::{
    Builder, Communicator, Condition, Error, Graph, LaunchEnvironment, Result, Stream, Word,
};

/// No test takes longer: a hang ends here, whatever the deadlines under test do.
const HARD_LIMIT: Duration = Duration::from_secs(120);
/// Of waits that are to be satisfied.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long a wait that must hold the stream is watched.
const HELD: Duration = Duration::from_millis(1);
/// Of waits that nobody satisfies.
const SHORT: Duration = Duration::from_millis(30);

const CONDITIONS: [Condition; 6] = [
    Condition::EQUAL,
    Condition::NOT_EQUAL,
    Condition::GREATER_OR_EQUAL,
    Condition::GREATER,
    Condition::LESS_OR_EQUAL,
    Condition::LESS,
];

// ---- worlds ----

fn builder(rank: u32, world: u32, job: &str) -> Builder {
    let backend = std::env::var("WORDS_BACKEND").unwrap_or_else(|_| "host".into());
    Builder::new()
        .launch(LaunchEnvironment::local(rank, world, job.into()).unwrap())
        .backend(Selection::Named(backend))
        .deadline(DEADLINE)
}

fn job() -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    format!("words-{}-{number}", std::process::id())
}

/// Ends the whole program if `work` takes longer than [`HARD_LIMIT`]: a thread cannot be ended.
fn limited(work: impl FnOnce()) {
    let (done, watched) = channel::<()>();
    std::thread::spawn(move || {
        if watched.recv_timeout(HARD_LIMIT) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("a test hangs");
            std::process::abort();
        }
    });
    work();
    drop(done);
}

/// Runs `rank` as every rank of worlds of each size, which then part in good order.
fn worlds(sizes: RangeInclusive<u32>, rank: impl Fn(&Communicator) + Sync) {
    limited(|| {
        for world in sizes {
            let job = job();
            std::thread::scope(|scope| {
                for number in 0..world {
                    let (rank, job) = (&rank, &job);
                    scope.spawn(move || {
                        let communicator = builder(number, world, job).build().unwrap();
                        rank(&communicator);
                        assert!(communicator.finalize().unwrap().is_empty());
                    });
                }
            });
        }
    });
}

/// One rank alone, which may end poisoned.
fn alone(rank: impl FnOnce(&Communicator)) {
    limited(|| rank(&builder(0, 1, &job()).build().unwrap()));
}

/// A word of either width, made from 64 bits.
trait Width: Word + std::fmt::Debug + Eq + std::hash::Hash {
    fn of(bits: u64) -> Self;
    const BITS: u32 = size_of::<Self>() as u32 * 8;
}
impl Width for u32 {
    fn of(bits: u64) -> Self {
        bits as u32
    }
}
impl Width for u64 {
    fn of(bits: u64) -> Self {
        bits
    }
}

/// What the manual says, by counting: a word is ahead if less than half of its range of steps lead
/// from the value to it.
fn holds<W: Width>(condition: Condition, word: W, value: W) -> bool {
    let mask = u64::MAX >> (64 - W::BITS);
    let ahead_by = word.into().wrapping_sub(value.into()) & mask;
    let half = 1 << (W::BITS - 1);
    let (equal, ahead) = (ahead_by == 0, (1..half).contains(&ahead_by));
    match condition {
        Condition::EQUAL => equal,
        Condition::NOT_EQUAL => !equal,
        Condition::GREATER_OR_EQUAL => equal || ahead,
        Condition::GREATER => ahead,
        Condition::LESS_OR_EQUAL => !ahead,
        Condition::LESS => !equal && !ahead,
        _ => unreachable!(),
    }
}

/// Values and words around them, around the wrap and around half of the range.
fn pairs<W: Width>() -> Vec<(W, W)> {
    let half = 1_u64 << (W::BITS - 1);
    let steps = [0, 1, u64::MAX, half - 1, half, half + 1];
    let values = [0, 5, half, u64::MAX];
    values
        .iter()
        .flat_map(|&value| steps.map(|step| (W::of(value), W::of(value.wrapping_add(step)))))
        .collect()
}

/// A word for which the condition holds.
fn satisfying<W: Width>(condition: Condition, value: W) -> W {
    [0, 1, u64::MAX]
        .map(|step| W::of(value.into().wrapping_add(step)))
        .into_iter()
        .find(|&word| holds(condition, word, value))
        .unwrap()
}

fn is_held(stream: &Stream) -> bool {
    let start = Instant::now();
    while start.elapsed() < HELD {
        if stream.is_idle().unwrap() {
            return false;
        }
    }
    true
}

// ---- waits ----

/// `wait(stream, condition, value)` on word 0 of three, of which the others always satisfy (`all`) or
/// never do (`any`).
fn every_condition<W: Width>(communicator: &Communicator, any: Option<bool>) {
    let (rank, world) = (communicator.rank(), communicator.world());
    let next = (rank + 1) % world;
    let (waiting, setting) = (
        communicator.stream().unwrap(),
        communicator.stream().unwrap(),
    );
    const STRIDE: usize = 5;
    let words = communicator.allocate::<W>(&[2 * STRIDE + 1]).unwrap();
    let word = |index: usize| words.range(index * STRIDE, 1).unwrap();
    let mut held = 0;
    for condition in CONDITIONS {
        for (value, first) in pairs::<W>() {
            let good = satisfying(condition, value);
            let others = match any {
                Some(true) => first,
                _ => good,
            };
            // The middle one is looked at after one and before another.
            for (index, word_value) in [others, first, others].into_iter().enumerate() {
                words
                    .write(&setting, index * STRIDE, &[word_value])
                    .unwrap();
            }
            communicator.host_barrier().unwrap();
            match any {
                None => waiting.wait_word(word(1), condition, value),
                Some(true) => waiting.wait_any(words.all(), STRIDE, condition, value, None),
                Some(false) => waiting.wait_all(words.all(), STRIDE, condition, value),
            }
            .unwrap();
            if holds(condition, first, value) {
                waiting.synchronize().unwrap();
            } else {
                held += 1;
                assert!(is_held(&waiting), "{condition:?} {first:?} {value:?}");
            }
            // Nobody sets a word before its owner has seen that it is held.
            communicator.host_barrier().unwrap();
            setting.signal_set(next, word(1), good).unwrap();
            waiting.synchronize().unwrap();
            setting.synchronize().unwrap();
            communicator.host_barrier().unwrap();
        }
    }
    // Half of the ordered conditions and all but four of the equalities.
    assert!(held > CONDITIONS.len() * 4, "{held}");
}

#[test]
fn a_wait_for_a_word_ends_when_and_only_when_the_condition_holds() {
    worlds(1..=3, |communicator| {
        every_condition::<u32>(communicator, None);
        every_condition::<u64>(communicator, None);
    });
}

#[test]
fn a_wait_for_any_word_ends_with_the_first_that_holds() {
    worlds(1..=2, |communicator| {
        every_condition::<u32>(communicator, Some(true));
        every_condition::<u64>(communicator, Some(true));
    });
}

#[test]
fn a_wait_for_all_words_ends_with_the_last_that_holds() {
    worlds(1..=2, |communicator| {
        every_condition::<u32>(communicator, Some(false));
        every_condition::<u64>(communicator, Some(false));
    });
}

fn names_the_word<W: Width>(communicator: &Communicator) {
    let (rank, world) = (communicator.rank(), communicator.world());
    let stream = communicator.stream().unwrap();
    let words = communicator.allocate::<W>(&[24]).unwrap();
    let index = communicator.allocate::<u32>(&[3]).unwrap();
    for stride in [1, 3, SIGNAL_STRIDE as usize / size_of::<W>()] {
        let count = words.len().div_ceil(stride);
        for good in 0..count {
            let mut values = [W::of(7); 24];
            values[good * stride] = W::of(8);
            words.write(&stream, 0, &values).unwrap();
            index.write(&stream, 0, &[99; 3]).unwrap();
            let place = index.range(1, 1).unwrap();
            let wait = (words.all(), stride, Condition::GREATER, W::of(7));
            stream
                .wait_any(wait.0, wait.1, wait.2, wait.3, Some(place))
                .unwrap();
            let mut found = [0; 3];
            index.read(&stream, 0, &mut found).unwrap();
            assert_eq!(
                found,
                [99, good as u32, 99],
                "stride {stride}, {rank} of {world}"
            );
        }
    }
}

#[test]
fn a_wait_for_any_word_says_which() {
    worlds(1..=2, |communicator| {
        names_the_word::<u32>(communicator);
        names_the_word::<u64>(communicator);
    });
}

/// Each rank puts a part to every rank and raises its word there; whoever has waited for all words
/// sees all parts. The words start close to the wrap and pass it.
fn raised_by_all<W: Width>(communicator: &Communicator) {
    const PART: usize = 300;
    const ROUNDS: u64 = 6;
    let (rank, world) = (communicator.rank(), communicator.world());
    let stream = communicator.stream().unwrap();
    let stride = SIGNAL_STRIDE as usize / size_of::<W>();
    let words = communicator.allocate::<W>(&[world * stride]).unwrap();
    let inbox = communicator.allocate::<u64>(&[world, PART]).unwrap();
    let outbox = communicator.allocate::<u64>(&[PART]).unwrap();
    let start = W::of(u64::MAX - 2);
    words
        .write(&stream, 0, &vec![start; world * stride])
        .unwrap();
    communicator.host_barrier().unwrap();
    for round in 1..=ROUNDS {
        outbox
            .write(&stream, 0, &[round << 8 | rank as u64; PART])
            .unwrap();
        for peer in 0..world {
            let part = inbox.range(rank * PART, PART).unwrap();
            stream.put(peer, part, outbox.all()).unwrap();
            stream.fence().unwrap();
            let word = words.range(rank * stride, 1).unwrap();
            stream.signal_add(peer, word, W::of(1)).unwrap();
        }
        let value = W::of(start.into().wrapping_add(round));
        stream
            .wait_all(words.all(), stride, Condition::GREATER_OR_EQUAL, value)
            .unwrap();
        let mut received = vec![0; world * PART];
        inbox.read(&stream, 0, &mut received).unwrap();
        for (peer, part) in received.chunks(PART).enumerate() {
            assert_eq!(part, [round << 8 | peer as u64; PART]);
        }
        // Nobody overwrites a part before it was looked at.
        stream.barrier().unwrap();
    }
    stream.quiet().unwrap();
    stream.synchronize().unwrap();
}

#[test]
fn whoever_waited_for_all_ranks_words_sees_what_they_had_put_across_the_wrap() {
    worlds(1..=4, |communicator| {
        raised_by_all::<u32>(communicator);
        raised_by_all::<u64>(communicator);
    });
}

// ---- atomic operations ----

fn sum_of_all<W: Width>(communicator: &Communicator) {
    const EACH: usize = 50;
    let world = communicator.world();
    let (one, other) = (
        communicator.stream().unwrap(),
        communicator.stream().unwrap(),
    );
    let word = communicator.allocate::<W>(&[3]).unwrap();
    let old = communicator.allocate::<W>(&[2 * EACH]).unwrap();
    // The neighbours of the word are there to be left alone.
    let start = W::of(u64::MAX - 10);
    word.write(&one, 0, &[start; 3]).unwrap();
    communicator.host_barrier().unwrap();
    for index in 0..EACH {
        for (stream, at) in [(&one, index), (&other, EACH + index)] {
            let result = Some(old.range(at, 1).unwrap());
            let target = word.range(1, 1).unwrap();
            stream
                .atomic_fetch_add(0, target, W::of(1), result)
                .unwrap();
        }
    }
    let mut before = vec![start; 2 * EACH];
    other.synchronize().unwrap();
    old.read(&one, 0, &mut before).unwrap();
    let mut all: Vec<u64> = communicator
        .host_all_gather(
            &before
                .iter()
                .flat_map(|&old| old.into().to_le_bytes())
                .collect::<Vec<_>>(),
        )
        .unwrap()
        .concat()
        .chunks(8)
        .map(|bytes| u64::from_le_bytes(bytes.try_into().unwrap()))
        .map(|old| W::of(old.wrapping_sub(start.into())).into())
        .collect();
    all.sort_unstable();
    assert!(
        all.iter().copied().eq(0..(2 * EACH * world) as u64),
        "{all:?}"
    );

    let result = old.range(0, 1).unwrap();
    one.atomic_fetch(0, word.range(1, 1).unwrap(), result)
        .unwrap();
    let mut sum = [start];
    old.read(&one, 0, &mut sum).unwrap();
    assert_eq!(
        sum[0],
        W::of(start.into().wrapping_add((2 * EACH * world) as u64))
    );
    let mut around = [W::of(0); 3];
    word.read(&one, 0, &mut around).unwrap();
    assert_eq!((around[0], around[2]), (start, start));
    communicator.host_barrier().unwrap();
}

#[test]
fn additions_of_all_ranks_and_streams_to_one_word_are_each_counted_once() {
    worlds(1..=4, |communicator| {
        sum_of_all::<u32>(communicator);
        sum_of_all::<u64>(communicator);
    });
}

fn one_wins<W: Width>(communicator: &Communicator) {
    let (rank, world) = (communicator.rank(), communicator.world());
    let stream = communicator.stream().unwrap();
    let word = communicator.allocate::<W>(&[1]).unwrap();
    let old = communicator.allocate::<W>(&[2]).unwrap();
    let last = world - 1;
    // Wide values show that no half is lost.
    let of = |rank: usize| W::of(0x0102_0304_0506_0700 + rank as u64);
    for round in 0..20 {
        word.write(&stream, 0, &[W::of(round)]).unwrap();
        communicator.host_barrier().unwrap();
        let result = Some(old.range(0, 1).unwrap());
        stream
            .atomic_compare_swap(last, word.all(), W::of(round), of(rank), result)
            .unwrap();
        let mut seen = [W::of(99)];
        old.read(&stream, 0, &mut seen).unwrap();
        let won = seen[0] == W::of(round);
        let winners = communicator
            .host_all_gather(&[u8::from(won)])
            .unwrap()
            .concat();
        assert_eq!(winners.iter().sum::<u8>(), 1, "{winners:?}");
        let winner = winners.iter().position(|&won| won == 1).unwrap();
        assert!(won || seen[0] == of(winner));
        // The swap hands the word on, and nothing is lost: each sees a different one.
        let result = Some(old.range(1, 1).unwrap());
        stream
            .atomic_swap(last, word.all(), of(rank + world), result)
            .unwrap();
        old.read(&stream, 1, &mut seen).unwrap();
        let seen = communicator
            .host_all_gather(&seen[0].into().to_le_bytes())
            .unwrap();
        let mut chain: Vec<_> = seen
            .concat()
            .chunks(8)
            .map(|b| u64::from_le_bytes(b.try_into().unwrap()))
            .collect();
        let mut end = [W::of(0)];
        stream
            .atomic_fetch(last, word.all(), old.range(1, 1).unwrap())
            .unwrap();
        old.read(&stream, 1, &mut end).unwrap();
        chain.push(end[0].into());
        chain.sort_unstable();
        let mut expected: Vec<u64> = (world..2 * world).map(|rank| of(rank).into()).collect();
        expected.push(of(winner).into());
        expected.sort_unstable();
        assert_eq!(chain, expected);
        communicator.host_barrier().unwrap();
    }
}

#[test]
fn of_all_ranks_that_compare_and_swap_one_wins_and_swaps_lose_nothing() {
    worlds(1..=4, |communicator| {
        one_wins::<u32>(communicator);
        one_wins::<u64>(communicator);
    });
}

#[test]
fn captured_words_count_on_at_every_replay_and_outlive_their_buffers() {
    worlds(1..=3, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world());
        let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
        let stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u32>(&[4]).unwrap();
        let sums = communicator.allocate::<u64>(&[2]).unwrap();
        let index = communicator.allocate::<u32>(&[1]).unwrap();
        // Word 0 is raised by the previous rank; word 1 tells it that it was seen.
        let graph = Graph::capture(&stream, |stream| {
            stream.signal_add(next, words.range(0, 1)?, 1)?;
            stream.wait_any(
                words.range(0, 1)?,
                1,
                Condition::EQUAL,
                1,
                Some(index.all()),
            )?;
            stream.atomic_fetch_add(rank, sums.range(0, 1)?, 1, Some(sums.range(1, 1)?))?;
            stream.signal_set(rank, words.range(0, 1)?, 0)?;
            stream.signal_set(previous, words.range(1, 1)?, 1)?;
            stream.wait_word(words.range(1, 1)?, Condition::NOT_EQUAL, 0)?;
            stream.signal_set(rank, words.range(1, 1)?, 0)?;
            stream.barrier()
        })
        .unwrap();
        drop(index);
        for _ in 0..10 {
            graph.launch(&stream).unwrap();
        }
        let mut seen = [0; 2];
        sums.read(&stream, 0, &mut seen).unwrap();
        assert_eq!(seen, [10, 9]);
    });
}

// ---- failures ----

#[test]
fn a_word_that_nobody_changes_is_a_timeout_that_names_it() {
    type Enqueue = fn(&Stream, &symmem::SymmetricBuffer<u64>) -> Result<()>;
    let waits: [(Enqueue, Option<usize>); 3] = [
        (
            |stream, words| {
                let word = words.range(4, 1)?;
                stream.wait_word_within(word, Condition::EQUAL, 1 << 40 | 6, SHORT)
            },
            Some(0),
        ),
        (
            |stream, words| {
                stream.wait_all_within(words.all(), 2, Condition::EQUAL, 1 << 40 | 6, SHORT)
            },
            Some(1),
        ),
        (
            |stream, words| stream.wait_any_within(words.all(), 2, Condition::LESS, 4, None, SHORT),
            // Any of them.
            None,
        ),
    ];
    for (enqueue, lacking) in waits {
        alone(|communicator| {
            let stream = communicator.stream().unwrap();
            let words = communicator.allocate::<u64>(&[6]).unwrap();
            words
                .write(&stream, 0, &[1 << 40 | 6, 0, 5, 0, 5, 0])
                .unwrap();
            let start = Instant::now();
            enqueue(&stream, &words).unwrap();
            let error = stream.synchronize().unwrap_err();
            assert!(start.elapsed() >= SHORT);
            let Error::WordTimeout {
                rank: 0,
                index,
                seen,
                expected,
                waited,
            } = error
            else {
                panic!("{error:?}");
            };
            assert!(waited >= SHORT && waited < DEADLINE, "{waited:?}");
            if let Some(lacking) = lacking {
                assert_eq!((index, seen, expected), (lacking, 5, 6));
            } else {
                assert!(index < 3 && expected == 4);
            }
            // Whatever comes later says the same.
            for later in [
                stream.fence(),
                stream.quiet(),
                stream.signal_add(0, words.range(0, 1).unwrap(), 1),
                stream.wait_word(words.range(0, 1).unwrap(), Condition::EQUAL, 0),
            ] {
                assert!(matches!(later, Err(Error::WordTimeout { .. })), "{later:?}");
            }
        });
    }
}

#[test]
fn an_abort_ends_waits_for_words_of_every_kind() {
    for kind in 0..3 {
        alone(|communicator| {
            let stream = communicator.stream().unwrap();
            let words = communicator.allocate::<u32>(&[2]).unwrap();
            match kind {
                0 => stream.wait_word(words.range(1, 1).unwrap(), Condition::GREATER, 0),
                1 => stream.wait_all(words.all(), 1, Condition::GREATER, 0),
                _ => stream.wait_any(words.all(), 1, Condition::GREATER, 0, None),
            }
            .unwrap();
            assert!(is_held(&stream));
            communicator.abort();
            let start = Instant::now();
            let error = stream.synchronize().unwrap_err();
            assert!(matches!(error, Error::Aborted { rank: 0 }), "{error:?}");
            assert!(start.elapsed() < Duration::from_secs(1));
        });
    }
}

/// The other side of [`the_death_of_a_rank_ends_waits_for_its_words`].
#[test]
#[ignore = "a rank of the_death_of_a_rank_ends_waits_for_its_words"]
fn a_rank_that_is_killed() {
    let communicator = builder(1, 2, &std::env::var("WORDS_JOB").unwrap())
        .build()
        .unwrap();
    let _words = communicator.allocate::<u32>(&[2]).unwrap();
    println!("@ready");
    std::thread::sleep(HARD_LIMIT);
}

#[test]
fn the_death_of_a_rank_ends_waits_for_its_words() {
    limited(|| {
        let job = job();
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args([
                "a_rank_that_is_killed",
                "--exact",
                "--ignored",
                "--nocapture",
            ])
            .env("WORDS_JOB", &job)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let communicator = builder(0, 2, &job).build().unwrap();
        let stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u32>(&[2]).unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let ready = lines
            .map_while(std::result::Result::ok)
            .any(|line| line.contains("@ready"));
        assert!(ready, "the other rank did not come");
        stream
            .wait_all(words.all(), 1, Condition::EQUAL, 1)
            .unwrap();
        assert!(is_held(&stream));
        let start = Instant::now();
        victim.kill().unwrap();
        let error = stream.synchronize().unwrap_err();
        assert!(
            matches!(error, Error::PeerDied { rank: 0, peer: 1 }),
            "{error:?}"
        );
        assert!(
            start.elapsed() < Duration::from_secs(1),
            "{:?}",
            start.elapsed()
        );
        victim.wait().unwrap();
    });
}

#[test]
fn what_cannot_be_meant_is_refused_before_anything_is_enqueued() {
    alone(|communicator| {
        let stream = communicator.stream().unwrap();
        let words = communicator.allocate::<u64>(&[4]).unwrap();
        let word = words.range(0, 1).unwrap();
        let two = words.range(0, 2).unwrap();
        let none = words.range(4, 0).unwrap();
        let elsewhere = builder(0, 1, &job()).build().unwrap();
        let stranger = elsewhere.allocate::<u64>(&[1]).unwrap();
        let unknown = Condition(7);
        let refusals = [
            (stream.signal_set(1, word, 0), "no rank 1"),
            (stream.signal_set(0, two, 0), "one element, not 2"),
            (stream.signal_add(0, none, 0), "one element, not 0"),
            (
                stream.atomic_fetch(0, word, two),
                "the result is one element",
            ),
            (
                stream.atomic_swap(0, stranger.all(), 0, None),
                "different communicators",
            ),
            (
                stream.atomic_fetch_add(0, word, 0, Some(stranger.all())),
                "different communicators",
            ),
            (
                stream.wait_word(two, Condition::EQUAL, 0),
                "one element, not 2",
            ),
            (stream.wait_word(word, unknown, 0), "no condition 7"),
            (
                stream.wait_word(word, Condition::default(), 0),
                "no condition 0",
            ),
            (
                stream.wait_all(words.all(), 0, Condition::EQUAL, 0),
                "no words to wait for",
            ),
            (
                stream.wait_any(none, 1, Condition::EQUAL, 0, None),
                "no words to wait for",
            ),
            (
                stream.wait_all(stranger.all(), 1, Condition::EQUAL, 0),
                "different communicators",
            ),
        ];
        for (refusal, reason) in refusals {
            let error = refusal.unwrap_err();
            assert!(
                matches!(error, Error::InvalidArgument { rank: 0, .. }),
                "{error:?}"
            );
            assert!(error.to_string().contains(reason), "{error}");
        }
        assert!(stream.is_idle().unwrap());
        let mut untouched = [1; 4];
        words.read(&stream, 0, &mut untouched).unwrap();
        assert_eq!(untouched, [0; 4]);
    });
}

/// All of the above in a process of its own, since the driver's place is a variable.
#[test]
fn on_cuda_over_the_fake_driver() {
    if std::env::var_os("WORDS_BACKEND").is_some() {
        return;
    }
    let driver = support::fake_driver();
    let file = format!("words-report-{}", std::process::id());
    let report = std::path::Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    limited(|| {
        // One after the other: a device that one test opens is another's that waits.
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("--test-threads=1")
            .env("WORDS_BACKEND", "cuda")
            .env("SYMMEM_LIBRARY_PATH", driver)
            .env("LD_LIBRARY_PATH", driver)
            .env("FAKE_DEVICE_COUNT", "4")
            .env("FAKE_DEVICE_REPORT", &report)
            .output()
            .unwrap();
        let said = [output.stdout, output.stderr].concat();
        let said = String::from_utf8_lossy(&said);
        assert!(output.status.success(), "{said}");
        assert!(said.contains(" 0 failed"), "{said}");
        let report = std::fs::read_to_string(&report).unwrap();
        assert!(!report.contains("violation:"), "{report}");
    });
    std::fs::remove_file(&report).unwrap();
}
