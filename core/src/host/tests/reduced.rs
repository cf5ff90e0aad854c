//! GEMM + reduce-scatter and GEMM + all-reduce in one call, among threads as ranks.

use super::collectives::{GEOMETRY, NOWHERE, contents, on_each, put_bytes};
use super::*;
use crate::backend::Gemm;
use crate::float::Bfloat;
use crate::host::gemm::reduced::{Kind, limits, word_offset};

const WORLD: usize = 3;
/// Rows, columns and depth: the last rank owns fewer rows.
const SHAPE: (u64, u64, u64) = (5, 3, 4);
const SHARD: u64 = 2;
const BYTES: u64 = 2;

/// Layout of each rank's shared memory.
const A: u64 = DATA;
const B: u64 = DATA + 1024;
const C: u64 = DATA + 2 * 1024;
const BIAS: u64 = DATA + 3 * 1024;
const WORDS: u64 = DATA + 4 * 1024;
const INBOX: u64 = DATA + 8 * 1024;

/// What differs among the calls.
#[derive(Clone, Copy, Debug)]
struct Kinds {
    mode: ReducedMode,
    all: bool,
    partial: ElementTypeCode,
}

fn every_kind(mut each: impl FnMut(Kinds)) {
    for mode in [ReducedMode::PUSH, ReducedMode::PACKETS] {
        for all in [false, true] {
            for partial in [ElementTypeCode::F32, ElementTypeCode::BF16] {
                each(Kinds { mode, all, partial });
            }
        }
    }
}

fn call(rank: &Rank, kinds: Kinds, deadline: Duration) -> ReducedGemmArguments {
    let (m, n, k) = SHAPE;
    let members = |offset| {
        let mut all = NOWHERE;
        for (member, address) in all.iter_mut().enumerate().take(WORLD) {
            *address = rank.at(member as u32, offset);
        }
        all
    };
    let operation = CollectiveOperationCode::GEMM_ALL_REDUCE;
    let mut group = rank.group(0, operation);
    group.watch = rank.watch(deadline);
    let arguments = ReducedGemmArguments {
        group,
        inboxes: members(INBOX),
        words: members(WORDS),
        results: if kinds.all { members(C) } else { NOWHERE },
        a: rank.at(rank.rank, A),
        b: rank.at(rank.rank, B),
        c: rank.at(rank.rank, C),
        bias: rank.at(rank.rank, BIAS),
        shape: GemmLayout {
            m,
            n,
            k,
            a_stride: k,
            b_stride: n,
            c_stride: n,
            element: ElementTypeCode::BF16,
            b_order: MatrixOrderCode::ROWS,
            bias: 1,
            addend: 0,
        },
        shard: SHARD,
        mode: kinds.mode,
        all: kinds.all.into(),
        partial: kinds.partial,
        quota: 0,
    };
    let limits = limits(&arguments.shape, &arguments.problem()).unwrap();
    assert!(limits.word_bytes <= INBOX - WORDS, "{kinds:?}");
    assert!(limits.inbox_bytes <= SHARED_BYTES - INBOX, "{kinds:?}");
    arguments
}

fn enqueue(rank: &Rank, stream: RawStream, arguments: &ReducedGemmArguments) {
    // SAFETY: all memory outlives the test's streams.
    unsafe { rank.backend.reduced_gemm(arguments, &GEOMETRY, stream) }.unwrap();
}

fn put(at: DeviceAddress, numbers: impl Iterator<Item = f32>) {
    let bytes: Vec<u8> = numbers
        .flat_map(|number| (Bfloat::narrow(number) as u16).to_ne_bytes())
        .collect();
    put_bytes(at, &bytes);
}

fn numbers(at: DeviceAddress, count: u64) -> Vec<f32> {
    let bytes = contents(at, count * BYTES);
    let pairs = bytes.chunks_exact(2);
    pairs
        .map(|pair| Bfloat::widen(u16::from_ne_bytes([pair[0], pair[1]]).into()))
        .collect()
}

/// Small whole numbers, whose sums are exact.
fn a_of(rank: u32, row: u64, at: u64) -> f32 {
    (u64::from(rank) * 3 + row * 2 + at) as f32 % 5.0 - 2.0
}

fn b_of(rank: u32, at: u64, column: u64) -> f32 {
    (u64::from(rank) + at * 3 + column) as f32 % 3.0 - 1.0
}

fn fill(rank: &Rank) {
    let (m, n, k) = SHAPE;
    let own = rank.rank;
    let a = (0..m * k).map(|index| a_of(own, index / k, index % k));
    put(rank.at(own, A), a);
    let b = (0..k * n).map(|index| b_of(own, index / n, index % n));
    put(rank.at(own, B), b);
    put(rank.at(own, BIAS), (0..n).map(|column| column as f32));
    poison(rank);
}

fn poison(rank: &Rank) {
    let (m, n, _) = SHAPE;
    put(rank.at(rank.rank, C), (0..m * n).map(|_| 99.0));
}

/// Returns what a rank's `C` holds after a call: its rows, then what was there before.
fn expected(rank: u32, all: bool) -> Vec<f32> {
    let (m, n, k) = SHAPE;
    let sum = |row: u64, column: u64| -> f32 {
        let of = |rank| (0..k).map(move |at| a_of(rank, row, at) * b_of(rank, at, column));
        column as f32 + (0..WORLD as u32).flat_map(of).sum::<f32>()
    };
    let first = if all { 0 } else { u64::from(rank) * SHARD };
    let end = if all { m } else { (first + SHARD).min(m) };
    let mut c: Vec<f32> = (first..end)
        .flat_map(|row| (0..n).map(move |column| sum(row, column)))
        .collect();
    c.resize((m * n) as usize, 99.0);
    c
}

#[test]
fn every_rank_gets_its_rows_of_the_sum_or_all_call_after_call() {
    let (m, n, _) = SHAPE;
    every_kind(|kinds| {
        let ranks = world(WORLD as u32);
        ranks.iter().for_each(fill);
        for round in 0..3 {
            ranks.iter().for_each(poison);
            on_each(&ranks, |rank, stream| {
                enqueue(rank, stream, &call(rank, kinds, LONG));
            });
            for rank in &ranks {
                let made = numbers(rank.at(rank.rank, C), m * n);
                let right = expected(rank.rank, kinds.all);
                assert_eq!(made, right, "{kinds:?}: rank {}, call {round}", rank.rank);
            }
        }
    });
}

/// Plants a word that is missing, and the stale one of the call before in its place.
#[test]
fn a_sum_that_lacks_a_part_is_neither_stored_nor_sent_on() {
    const SHORT: Duration = Duration::from_millis(3);
    let (m, n, _) = SHAPE;
    every_kind(|kinds| {
        let ranks = world(WORLD as u32);
        ranks.iter().for_each(fill);
        on_each(&ranks, |rank, stream| {
            enqueue(rank, stream, &call(rank, kinds, LONG));
        });
        ranks.iter().for_each(poison);
        // In the second call, rank 1 has sent its part, and rank 2 has entered only: its part is that of the first call.
        let me = &ranks[0];
        let word = |at: u32, kind, rank| me.at(at, WORDS + word_offset(WORLD, kind, rank));
        for (kind, rank) in [(Kind::Entered, 1), (Kind::Entered, 2), (Kind::Partials, 1)] {
            write(word(0, kind, rank), 2);
        }
        let stream = me.stream();
        enqueue(me, stream, &call(me, kinds, SHORT));
        me.synchronize(stream);
        let record = me.record();
        assert_eq!((record.state, record.peer, record.reason), (2, 2, 1));
        assert_eq!((record.expected, record.seen), (2, 1));
        for peer in [1, 2] {
            assert_eq!(read(word(peer, Kind::Entered, 0)), 2, "{kinds:?}");
            assert_eq!(read(word(peer, Kind::Partials, 0)), 2, "{kinds:?}");
            assert!(read(word(peer, Kind::Finished, 0)) < 2, "{kinds:?}");
        }
        for rank in &ranks {
            let c = numbers(rank.at(rank.rank, C), m * n);
            assert!(c.iter().all(|&number| number == 99.0), "{kinds:?}: {c:?}");
        }
    });
}

#[test]
fn nothing_is_stored_at_a_peer_that_has_not_entered() {
    const SHORT: Duration = Duration::from_millis(3);
    every_kind(|kinds| {
        let ranks = world(WORLD as u32);
        ranks.iter().for_each(fill);
        let me = &ranks[0];
        // Rank 1 has entered, rank 2 has not.
        write(me.at(0, WORDS + word_offset(WORLD, Kind::Entered, 1)), 1);
        let stream = me.stream();
        enqueue(me, stream, &call(me, kinds, SHORT));
        me.synchronize(stream);
        assert_eq!((me.record().state, me.record().peer), (2, 2));
        for peer in [1, 2] {
            let inbox = contents(me.at(peer, INBOX), 1024);
            assert!(inbox.iter().all(|&byte| byte == 0), "{kinds:?}");
        }
    });
}

#[test]
fn a_call_that_makes_no_sense_is_refused_with_its_values() {
    let ranks = world(WORLD as u32);
    let rank = &ranks[0];
    let stream = rank.stream();
    let kinds = Kinds {
        mode: ReducedMode::PUSH,
        all: true,
        partial: ElementTypeCode::F32,
    };
    let good = call(rank, kinds, LONG);
    let mut outside = good;
    outside.group.rank = WORLD as u32;
    for (arguments, found) in [
        (
            ReducedGemmArguments { shard: 1, ..good },
            "3 parts of 1 rows",
        ),
        (
            ReducedGemmArguments {
                mode: ReducedMode(7),
                ..good
            },
            "mode 7",
        ),
        (
            ReducedGemmArguments {
                partial: ElementTypeCode::F16,
                ..good
            },
            "partial sums of F16",
        ),
        (outside, "rank 3 of a group of 3"),
    ] {
        // SAFETY: refused, so nothing is used.
        let refused = unsafe { rank.backend.reduced_gemm(&arguments, &GEOMETRY, stream) };
        let failure = refused.unwrap_err();
        assert_eq!(failure.status, Status::INVALID_ARGUMENT, "{failure}");
        assert!(failure.message.contains(found), "{failure}");
    }
}
