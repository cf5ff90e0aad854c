//! Words of symmetric memory: set and add signals, wait for one, any or all words, and atomic operations.
//!
//! Ranks are threads, except in the test that kills one. The tests run on the host backend; one test starts this
//! program again with `WORDS_BACKEND` set, on CUDA and HIP over the fake runtimes.

#[path = "../support/mod.rs"]
#[allow(dead_code, reason = "these tests use the fake runtimes only")]
mod support;

mod atomics;
mod failures;
mod waits;

use std::io::{BufRead, BufReader};
use std::ops::RangeInclusive;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::mpsc::channel;
use std::time::{Duration, Instant};
use support::hip::{Release, fake_hip};
use symmem::backend::abi::SIGNAL_STRIDE;
use symmem::{Builder, Communicator, Condition, Error, Result, Stream, Word};

/// Time limit of each test: a hang ends here, whatever the deadlines under test do.
const HARD_LIMIT: Duration = Duration::from_secs(120);
/// Deadline of waits that are satisfied.
const DEADLINE: Duration = Duration::from_secs(30);
/// How long the test watches a wait that must hold the stream.
const HELD: Duration = Duration::from_millis(1);
/// Deadline of waits that are never satisfied.
const SHORT: Duration = Duration::from_millis(30);

const CONDITIONS: [Condition; 6] = [
    Condition::Equal,
    Condition::NotEqual,
    Condition::GreaterOrEqual,
    Condition::Greater,
    Condition::LessOrEqual,
    Condition::Less,
];

// ---- worlds ----

fn builder(rank: u32, world: u32, job: &str) -> Builder {
    support::rank("WORDS_BACKEND", rank, world, job).deadline(DEADLINE)
}

fn job() -> String {
    support::job("words")
}

/// Ends the whole program if `work` takes longer than [`HARD_LIMIT`], because a thread cannot be ended.
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

/// Runs `rank` as every rank of worlds of each size, which then finalize.
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

/// Runs one rank alone, which may end poisoned.
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

/// Returns what the manual defines, by counting: a word is ahead if fewer than half of all steps lead from the value to
/// it.
fn holds<W: Width>(condition: Condition, word: W, value: W) -> bool {
    let mask = u64::MAX >> (64 - W::BITS);
    let ahead_by = word.into().wrapping_sub(value.into()) & mask;
    let half = 1 << (W::BITS - 1);
    let (equal, ahead) = (ahead_by == 0, (1..half).contains(&ahead_by));
    match condition {
        Condition::Equal => equal,
        Condition::NotEqual => !equal,
        Condition::GreaterOrEqual => equal || ahead,
        Condition::Greater => ahead,
        Condition::LessOrEqual => !ahead,
        Condition::Less => !equal && !ahead,
    }
}

/// Returns pairs of value and word, close to each other, to the wrap and to half of the range.
fn pairs<W: Width>() -> Vec<(W, W)> {
    let half = 1_u64 << (W::BITS - 1);
    let steps = [0, 1, u64::MAX, half - 1, half, half + 1];
    let values = [0, 5, half, u64::MAX];
    values
        .iter()
        .flat_map(|&value| steps.map(|step| (W::of(value), W::of(value.wrapping_add(step)))))
        .collect()
}

/// Returns a word for which the condition holds.
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

#[test]
fn on_cuda_over_the_fake_driver() {
    all_on("cuda", support::fake_driver);
}

#[test]
fn on_hip_over_the_fake_runtime() {
    all_on("hip", || fake_hip(Release::Seven));
}

/// Runs all tests of this file in a child process, because an environment variable selects the driver.
fn all_on(backend: &str, driver: impl FnOnce() -> &'static Path) {
    if std::env::var_os("WORDS_BACKEND").is_some() {
        return;
    }
    let driver = driver();
    let file = format!("words-report-{backend}-{}", std::process::id());
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(file);
    limited(|| {
        // One test at a time: a test that opens a device could disturb another test's wait on it.
        let output = Command::new(std::env::current_exe().unwrap())
            .arg("--test-threads=1")
            .env("WORDS_BACKEND", backend)
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
