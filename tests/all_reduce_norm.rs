//! All-reduce of rows with a residual and a norm: on the host backend, and on both vendors' backends over the fake runtimes.
//! Ranks are threads, over a fake runtime those of a child process.

#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use half::{bf16, f16};
use rstest::rstest;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};
use support::amount::sampled_out;
use support::vendors::{Vendor, ranks, role};
use symmem::bootstrap::LaunchEnvironment;
use symmem::{
    BackendSource, CollectiveOptions, Communicator, Configuration, DeviceSlice, ErrorKind, F8E4M3,
    NormElement, Operand, RowNorm, Scales, Stream, SymmetricBuffer,
};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(50);

/// A number of pseudo-random ones, the same on all ranks.
#[derive(Clone)]
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
        self.0 >> 33
    }

    fn up_to(&mut self, end: usize) -> usize {
        self.next() as usize % end
    }

    fn number(&mut self) -> f32 {
        (self.next() % 4001) as f32 / 1000.0 - 2.0
    }
}

/// An element type, and the relative error of a rounding.
trait Number: NormElement + PartialEq + std::fmt::Debug {
    const ROUNDING: f64;
    fn from_number(number: f32) -> Self;
    fn number(self) -> f32;
}

macro_rules! numbers {
    ($($type:ty, $rounding:expr, $from:expr, $to:expr;)*) => {$(
        impl Number for $type {
            const ROUNDING: f64 = $rounding;
            fn from_number(number: f32) -> Self {
                $from(number)
            }
            fn number(self) -> f32 {
                $to(self)
            }
        }
    )*};
}
numbers! {
    bf16, 1.0 / 256.0, bf16::from_f32, bf16::to_f32;
    f16, 1.0 / 2048.0, f16::from_f32, f16::to_f32;
    f32, 1.0 / 16_777_216.0, std::convert::identity, std::convert::identity;
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    None,
    RootMeanSquare,
    Layer,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Quantization {
    None,
    Tensor,
    Rows,
    Groups,
}

/// A call. Each rank has its own source; all else is the same on all.
#[derive(Debug)]
struct Case {
    rows: usize,
    hidden: usize,
    kind: Kind,
    quantization: Quantization,
    residual: bool,
    /// Whether each rank has its own rows of the residual only.
    sharded: bool,
    /// Whether the results replace source and residual.
    in_place: bool,
    /// Whether memory is what only its rank knows.
    own: bool,
    /// Elements before each matrix.
    offset: usize,
    offset_of_weights: f32,
    blocks: Option<u32>,
    threads: Option<u32>,
}

impl Case {
    fn any(random: &mut Random, index: usize) -> Self {
        const SHAPES: [(usize, usize); 8] = [
            (1, 8),
            (3, 64),
            (5, 1024),
            (7, 133),
            (2, 8192),
            (130, 256),
            (4, 1),
            (1, 9001),
        ];
        let (rows, mut hidden) = SHAPES[index % SHAPES.len()];
        let quantization = [
            Quantization::None,
            Quantization::None,
            Quantization::Tensor,
            Quantization::Rows,
            Quantization::Groups,
        ][random.up_to(5)];
        if quantization == Quantization::Groups {
            hidden = hidden.next_multiple_of(128);
        }
        let residual = random.up_to(3) != 0;
        Self {
            rows,
            hidden,
            kind: [
                Kind::None,
                Kind::RootMeanSquare,
                Kind::RootMeanSquare,
                Kind::Layer,
            ][random.up_to(4)],
            quantization,
            residual,
            sharded: residual && quantization == Quantization::None && random.up_to(3) != 0,
            in_place: random.up_to(2) == 0,
            own: random.up_to(2) == 0,
            offset: [0, 0, 1, 8][random.up_to(4)],
            offset_of_weights: [0.0, 1.0][random.up_to(2)],
            blocks: [None, Some(1)][random.up_to(2)],
            threads: [None, Some(64)][random.up_to(2)],
        }
    }
}

/// Returns the elements of the residual that a rank has.
fn own_elements(case: &Case, rank: usize, world: usize) -> std::ops::Range<usize> {
    if !case.sharded {
        return 0..case.rows * case.hidden;
    }
    let each = case.rows.div_ceil(world);
    let [first, end] = [rank, rank + 1].map(|rank| (rank * each).min(case.rows));
    first * case.hidden..end * case.hidden
}

fn operand<'a, T: Number>(
    buffer: &'a SymmetricBuffer<T>,
    case: &Case,
    count: usize,
) -> Operand<'a, T> {
    let slice = buffer.slice(case.offset..case.offset + count).unwrap();
    match case.own {
        true => DeviceSlice::from(slice).into(),
        false => slice.into(),
    }
}

/// The buffers of all cases, large enough for each.
struct Buffers<T: Number> {
    source: SymmetricBuffer<T>,
    destination: SymmetricBuffer<T>,
    residual: SymmetricBuffer<T>,
    sums: SymmetricBuffer<T>,
    weight: SymmetricBuffer<T>,
    bias: SymmetricBuffer<T>,
    bytes: SymmetricBuffer<F8E4M3>,
    scales: SymmetricBuffer<f32>,
}

const MOST: usize = 64 << 10;

impl<T: Number> Buffers<T> {
    fn new(communicator: &Communicator) -> Self {
        let numbers = || communicator.allocate::<T>(&[MOST]).unwrap();
        Self {
            source: numbers(),
            destination: numbers(),
            residual: numbers(),
            sums: numbers(),
            weight: numbers(),
            bias: numbers(),
            bytes: communicator.allocate(&[MOST]).unwrap(),
            scales: communicator.allocate(&[MOST]).unwrap(),
        }
    }
}

fn numbers<T: Number>(random: &mut Random, count: usize) -> Vec<T> {
    (0..count)
        .map(|_| T::from_number(random.number()))
        .collect()
}

fn write<T: Number>(stream: &Stream, to: &SymmetricBuffer<T>, case: &Case, from: &[T]) {
    to.write(stream, case.offset, from).unwrap();
}

fn read<T: Number>(stream: &Stream, from: &SymmetricBuffer<T>, at: usize, count: usize) -> Vec<T> {
    let mut seen = vec![T::from_number(-77.0); count];
    from.read(stream, at, &mut seen).unwrap();
    seen
}

/// Makes a call at all ranks and checks what it gives.
fn check<T: Number>(communicator: &Communicator, buffers: &Buffers<T>, seed: u64, index: usize) {
    let mut random = Random(seed.wrapping_mul(7919) + index as u64);
    let case = Case::any(&mut random, index);
    let (rows, hidden, count) = (case.rows, case.hidden, case.rows * case.hidden);
    let world = communicator.world_size();
    let stream = communicator.stream().unwrap();
    let sources: Vec<Vec<T>> = (0..world).map(|_| numbers(&mut random, count)).collect();
    let residual: Vec<T> = numbers(&mut random, count);
    let weight: Vec<T> = numbers(&mut random, hidden);
    let bias: Vec<T> = numbers(&mut random, hidden);
    let scale = 0.01 + random.number().abs();
    let stale = vec![T::from_number(99.0); count];
    write(
        &stream,
        &buffers.source,
        &case,
        &sources[communicator.rank()],
    );
    write(&stream, &buffers.destination, &case, &stale);
    let own = own_elements(&case, communicator.rank(), world);
    write(&stream, &buffers.residual, &case, &stale);
    write(&stream, &buffers.residual, &case, &residual[own.clone()]);
    write(&stream, &buffers.sums, &case, &stale);
    write(&stream, &buffers.weight, &case, &weight);
    write(&stream, &buffers.bias, &case, &bias);
    buffers
        .bytes
        .write(&stream, 0, &vec![F8E4M3(0x55); count])
        .unwrap();
    buffers
        .scales
        .write(&stream, 0, &vec![scale; rows * hidden.div_ceil(128)])
        .unwrap();

    let epsilon = 1e-5;
    let all = |buffer| operand::<T>(buffer, &case, count);
    let row = |buffer| operand::<T>(buffer, &case, hidden);
    let norm = match case.kind {
        Kind::None => RowNorm::none(),
        Kind::RootMeanSquare => RowNorm::root_mean_square(row(&buffers.weight), epsilon),
        Kind::Layer => RowNorm::layer(row(&buffers.weight), row(&buffers.bias), epsilon),
    };
    let norm = norm.weight_offset(case.offset_of_weights);
    let sums = if case.in_place {
        &buffers.residual
    } else {
        &buffers.sums
    };
    let some = |buffer| operand::<T>(buffer, &case, own.len());
    let norm = match (case.residual, case.sharded) {
        (true, false) => norm.residual(all(&buffers.residual), all(sums)),
        (true, true) => norm.residual_shard(some(&buffers.residual), some(sums)),
        (false, _) => norm,
    };
    let mut options = CollectiveOptions::new();
    if let Some(blocks) = case.blocks {
        options = options.blocks(blocks);
    }
    if let Some(threads) = case.threads {
        options = options.threads(threads);
    }
    let quantized = case.quantization != Quantization::None;
    let destination = if case.in_place {
        &buffers.source
    } else {
        &buffers.destination
    };
    let scales = |count: usize| buffers.scales.slice(..count).unwrap().into();
    let scales = match case.quantization {
        Quantization::None | Quantization::Tensor => Scales::Tensor(scales(1)),
        Quantization::Rows => Scales::Rows(scales(rows)),
        Quantization::Groups => Scales::Groups(scales(rows * (hidden / 128))),
    };
    let calls = stream.with(&options);
    let enqueued = match quantized {
        true => {
            let bytes = buffers.bytes.slice(..count).unwrap();
            calls.all_reduce_norm_f8(bytes, scales, all(&buffers.source), hidden, &norm)
        }
        false => calls.all_reduce_norm(all(destination), all(&buffers.source), hidden, &norm),
    };
    enqueued.unwrap_or_else(|error| panic!("{case:?}: {error}"));

    // The sum, rounded once, is exact.
    let expected: Vec<T> = (0..count)
        .map(|at| {
            let sum = sources.iter().map(|source| source[at].number());
            let sum = sum.reduce(|sum, number| sum + number).unwrap();
            match case.residual {
                true => T::from_number(sum + residual[at].number()),
                false => T::from_number(sum),
            }
        })
        .collect();
    if case.residual {
        let seen = read(&stream, sums, case.offset, count);
        let mut wanted = expected[own.clone()].to_vec();
        wanted.resize(count, stale[0]);
        let wrong = (0..count).find(|at| seen[*at] != wanted[*at]);
        assert_eq!(wrong, None, "sums of {case:?}: {seen:?} for {wanted:?}");
    }
    let found: Vec<f64> = match quantized {
        false => {
            let seen = read(&stream, destination, case.offset, count);
            seen.iter().map(|one| f64::from(one.number())).collect()
        }
        true => {
            let mut seen = vec![F8E4M3(0); count];
            buffers.bytes.read(&stream, 0, &mut seen).unwrap();
            let mut scales = vec![0.0; rows * hidden.div_ceil(128)];
            buffers.scales.read(&stream, 0, &mut scales).unwrap();
            let scale_of = |at: usize| match case.quantization {
                Quantization::Rows => scales[at / hidden],
                Quantization::Groups => scales[at / 128],
                _ => scale,
            };
            let values = seen.iter().enumerate();
            values
                .map(|(at, one)| f64::from(one.to_f32()) * f64::from(scale_of(at)))
                .collect()
        }
    };
    for first in (0..count).step_by(hidden) {
        let row: Vec<f64> = expected[first..first + hidden]
            .iter()
            .map(|one| f64::from(one.number()))
            .collect();
        let mean = match case.kind {
            Kind::Layer => row.iter().sum::<f64>() / hidden as f64,
            _ => 0.0,
        };
        let squares: f64 = row.iter().map(|one| (one - mean).powi(2)).sum();
        let factor = 1.0 / (squares / hidden as f64 + f64::from(epsilon)).sqrt();
        let normalised: Vec<f64> = row
            .iter()
            .enumerate()
            .map(|(at, one)| {
                let weight = f64::from(weight[at].number() + case.offset_of_weights);
                match case.kind {
                    Kind::None => *one,
                    Kind::RootMeanSquare => one * factor * weight,
                    Kind::Layer => (one - mean) * factor * weight + f64::from(bias[at].number()),
                }
            })
            .collect();
        let group = if case.quantization == Quantization::Groups {
            128
        } else {
            hidden
        };
        let magnitudes = normalised.chunks(group).map(|group| {
            let largest = group.iter().fold(0.0_f64, |most, one| most.max(one.abs()));
            (largest, group.len())
        });
        let largest: Vec<f64> = magnitudes
            .flat_map(|(largest, count)| std::iter::repeat_n(largest, count))
            .collect();
        for (at, (one, largest)) in normalised.iter().zip(largest).enumerate() {
            let seen = found[first + at];
            // f32 sums over a row lose little, but what is left of a difference may be small; a rounding to 8 bits loses a 16th,
            // and at most half of the smallest step.
            let terms = 10.0 + largest;
            let error = terms * 3e-6 + one.abs() * T::ROUNDING;
            let (expected, error) = match case.quantization {
                Quantization::None => (*one, error),
                Quantization::Tensor => {
                    let most = 448.0 * f64::from(scale);
                    (
                        one.clamp(-most, most),
                        one.abs() / 15.9 + f64::from(scale) / 1000.0,
                    )
                }
                _ => (*one, error + one.abs() / 15.9 + largest / 448.0 / 1000.0),
            };
            assert!(
                (seen - expected).abs() <= error,
                "{case:?} row {} element {at}: {seen} for {expected}",
                first / hidden
            );
        }
    }
    // All ranks have the same bits.
    let mut hash = DefaultHasher::new();
    found.iter().for_each(|one| one.to_bits().hash(&mut hash));
    let hash = hash.finish().to_le_bytes();
    let theirs = communicator.host_all_gather(&hash).unwrap();
    assert!(theirs.iter().all(|one| *one == hash), "{case:?}");
}

fn check_all<T: Number>(communicator: &Communicator, seed: u64, cases: usize) {
    let buffers = Buffers::<T>::new(communicator);
    for index in 0..cases {
        check(communicator, &buffers, seed, index);
    }
}

fn check_types(communicator: &Communicator, cases: usize) {
    check_all::<bf16>(communicator, 1, cases);
    check_all::<f16>(communicator, 2, cases);
    check_all::<f32>(communicator, 3, cases);
}

/// Runs `rank` as each rank of a world on the host backend.
fn host(world: u32, rank: impl Fn(Communicator) + Sync) {
    let job = format!("norm-{}-{:?}", std::process::id(), Instant::now());
    std::thread::scope(|scope| {
        for number in 0..world {
            let (job, rank) = (&job, &rank);
            scope.spawn(move || {
                let launch = LaunchEnvironment::local(number, world, job).unwrap();
                let mut configuration = Configuration::new(launch);
                configuration.deadline = PATIENCE;
                configuration.setup_deadline = PATIENCE;
                rank(Communicator::open(&BackendSource::Host, configuration).unwrap());
            });
        }
    });
}

#[rstest]
fn rows_are_summed_and_normalised(#[values(1, 2, 3, 4)] world: u32) {
    host(world, |communicator| check_types(&communicator, 32));
}

#[rstest]
fn so_they_are_by_both_vendors_backends(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    if sampled_out(2) {
        return;
    }
    let report = role(vendor, "every_type", vendor.libraries(), &[]);
    assert_eq!(report, [""; 0]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn every_type() {
    for world in [1, 2, 3, 4] {
        ranks(world, |communicator| check_types(&communicator, 24));
    }
}

/// More rows than the inboxes hold at once.
#[test]
fn a_call_takes_as_many_kernels_as_it_needs() {
    host(2, |communicator| {
        const HIDDEN: usize = 8192;
        const ROWS: usize = 600;
        let stream = communicator.stream().unwrap();
        let source = communicator.allocate::<bf16>(&[ROWS * HIDDEN]).unwrap();
        let weight = communicator.allocate::<bf16>(&[HIDDEN]).unwrap();
        let row = |index: usize| vec![bf16::from_f32((index % 50) as f32 + 1.0); HIDDEN];
        for index in 0..ROWS {
            source.write(&stream, index * HIDDEN, &row(index)).unwrap();
        }
        weight.write(&stream, 0, &vec![bf16::ONE; HIDDEN]).unwrap();
        let norm = RowNorm::root_mean_square(&weight, 0.0).residual(&source, &source);
        let refused = stream.all_reduce_norm(&source, &source, HIDDEN, &norm);
        assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidArgument);
        let norm = RowNorm::none();
        stream
            .all_reduce_norm(&source, &source, HIDDEN, &norm)
            .unwrap();
        let mut seen = vec![bf16::ZERO; ROWS * HIDDEN];
        source.read(&stream, 0, &mut seen).unwrap();
        for (index, row) in seen.chunks(HIDDEN).enumerate() {
            let expected = bf16::from_f32((index % 50) as f32 + 1.0) * bf16::from_f32(2.0);
            assert!(row.iter().all(|one| *one == expected), "row {index}");
        }
    });
}

#[test]
fn a_call_with_a_shard_of_the_residual_takes_as_many_kernels_as_it_needs() {
    host(3, |communicator| {
        const HIDDEN: usize = 8192;
        const ROWS: usize = 61;
        let stream = communicator.stream().unwrap();
        let source = communicator.allocate::<f16>(&[ROWS * HIDDEN]).unwrap();
        let residual = communicator.allocate::<f16>(&[21 * HIDDEN]).unwrap();
        let number = |index: usize| f16::from_f32((index % 50) as f32 + 1.0);
        for index in 0..ROWS {
            let row = vec![number(index); HIDDEN];
            source.write(&stream, index * HIDDEN, &row).unwrap();
        }
        // Three shares, of 21, 21 and 19 rows.
        let own = if communicator.rank() == 2 { 19 } else { 21 };
        for index in 0..own {
            let row = vec![number(communicator.rank() * 21 + index); HIDDEN];
            residual.write(&stream, index * HIDDEN, &row).unwrap();
        }
        let shard = residual.slice(..own * HIDDEN).unwrap();
        let norm = RowNorm::none().residual_shard(shard, shard);
        stream
            .all_reduce_norm(&source, &source, HIDDEN, &norm)
            .unwrap();
        let mut seen = vec![f16::ZERO; ROWS * HIDDEN];
        source.read(&stream, 0, &mut seen).unwrap();
        for (index, row) in seen.chunks(HIDDEN).enumerate() {
            let expected = number(index) * f16::from_f32(4.0);
            assert!(row.iter().all(|one| *one == expected), "row {index}");
        }
        let mut seen = vec![f16::ZERO; own * HIDDEN];
        residual.read(&stream, 0, &mut seen).unwrap();
        for (index, row) in seen.chunks(HIDDEN).enumerate() {
            let expected = number(communicator.rank() * 21 + index) * f16::from_f32(4.0);
            assert!(row.iter().all(|one| *one == expected), "own row {index}");
        }
    });
}

/// Between more than two ranks, a large sum without a residual is two-shot.
#[test]
fn many_rows_without_a_residual_are_summed_by_their_owners() {
    host(3, |communicator| {
        const HIDDEN: usize = 1000;
        const ROWS: usize = 1100;
        let stream = communicator.stream().unwrap();
        let source = communicator.allocate::<bf16>(&[ROWS * HIDDEN]).unwrap();
        let number = |index: usize| bf16::from_f32((index % 50) as f32 + 1.0);
        let rows: Vec<bf16> = (0..ROWS * HIDDEN).map(|at| number(at / HIDDEN)).collect();
        source.write(&stream, 0, &rows).unwrap();
        stream
            .all_reduce_norm(&source, &source, HIDDEN, &RowNorm::none())
            .unwrap();
        let mut seen = vec![bf16::ZERO; ROWS * HIDDEN];
        source.read(&stream, 0, &mut seen).unwrap();
        for (index, row) in seen.chunks(HIDDEN).enumerate() {
            let expected = number(index) * bf16::from_f32(3.0);
            assert!(row.iter().all(|one| *one == expected), "row {index}");
        }
    });
}

#[test]
fn arguments_that_do_not_fit_are_refused_before_anything_is_enqueued() {
    host(2, |communicator| {
        let stream = communicator.stream().unwrap();
        let [x, y, w] = [64, 64, 8].map(|length| communicator.allocate::<f32>(&[length]).unwrap());
        let bytes = communicator.allocate::<F8E4M3>(&[64]).unwrap();
        let scales = communicator.allocate::<f32>(&[64]).unwrap();
        let norm = RowNorm::root_mean_square(&w, 1e-5);
        let refused = |what: &str, outcome: symmem::Result<()>| {
            let error = outcome.expect_err(what);
            assert_eq!(error.kind(), ErrorKind::InvalidArgument, "{what}: {error}");
        };
        refused(
            "no elements in a row",
            stream.all_reduce_norm(&y, &x, 0, &norm),
        );
        refused("a part of a row", stream.all_reduce_norm(&y, &x, 7, &norm));
        refused("long weights", stream.all_reduce_norm(&y, &x, 4, &norm));
        let short = y.slice(..32).unwrap();
        refused(
            "a short destination",
            stream.all_reduce_norm(short, &x, 8, &norm),
        );
        let (low, high) = (x.slice(..32).unwrap(), x.slice(8..40).unwrap());
        refused("an overlap", stream.all_reduce_norm(high, low, 8, &norm));
        let to_source = norm.residual(&y, &x);
        refused(
            "sums in the source",
            stream.all_reduce_norm(&scales, &x, 8, &to_source),
        );
        let to_destination = norm.residual(&scales, &y);
        refused(
            "sums in the destination",
            stream.all_reduce_norm(&y, &x, 8, &to_destination),
        );
        for epsilon in [-1.0, f32::NAN, f32::INFINITY] {
            let norm = RowNorm::root_mean_square(&w, epsilon);
            refused("an odd epsilon", stream.all_reduce_norm(&y, &x, 8, &norm));
        }
        let odd = norm.weight_offset(f32::NAN);
        refused("an odd offset", stream.all_reduce_norm(&y, &x, 8, &odd));
        // Each of the two owns four of eight rows.
        for own in [0, 3, 5, 8] {
            let rows = scales.slice(..own * 8).unwrap();
            let norm = norm.residual_shard(rows, rows);
            let outcome = stream.all_reduce_norm(&y, &x, 8, &norm);
            refused("rows of a residual that are not the own ones", outcome);
        }
        let own = scales.slice(32..64).unwrap();
        let sharded = norm.residual_shard(own, own);
        let one = Scales::Tensor(scales.slice(..1).unwrap().into());
        refused(
            "results of 8 bits with a shard of the residual",
            stream.all_reduce_norm_f8(&bytes, one, &x, 8, &sharded),
        );
        let few = || Scales::Rows(scales.slice(..7).unwrap().into());
        refused(
            "few scales",
            stream.all_reduce_norm_f8(&bytes, few(), &x, 8, &norm),
        );
        let groups = Scales::Groups((&scales).into());
        refused(
            "no whole group",
            stream.all_reduce_norm_f8(&bytes, groups, &x, 8, &norm),
        );
        let channel = CollectiveOptions::new().channel(1);
        let other = stream.with(&channel);
        refused("another channel", other.all_reduce_norm(&y, &x, 8, &norm));
        // The communicator lives, and nothing has no rows.
        let none = x.slice(..0).unwrap();
        stream.all_reduce_norm(none, none, 8, &norm).unwrap();
        stream.all_reduce_norm(&y, &x, 8, &norm).unwrap();
        stream.synchronize().unwrap();
    });
}

/// Runs `member` as each of two ranks on the host backend that compare their calls.
fn in_debug_mode(job: &str, member: impl Fn(&Communicator) + Sync) {
    let job = format!("{job}-{}", std::process::id());
    std::thread::scope(|scope| {
        for number in 0..2 {
            let (job, member) = (&job, &member);
            scope.spawn(move || {
                let launch = LaunchEnvironment::local(number, 2, job).unwrap();
                let mut configuration = Configuration::new(launch);
                configuration.check_calls = true;
                let communicator = Communicator::open(&BackendSource::Host, configuration).unwrap();
                member(&communicator);
                // A peer that still compares would hear that this rank has left.
                communicator.host_barrier().expect("both have compared");
            });
        }
    });
}

#[test]
fn members_that_differ_are_told_in_debug_mode() {
    in_debug_mode("norm-debug", |communicator| {
        let stream = communicator.stream().unwrap();
        let x = communicator.allocate::<f32>(&[64]).unwrap();
        let w = communicator.allocate::<f32>(&[8]).unwrap();
        let epsilon = if communicator.rank() == 0 { 1e-5 } else { 1e-6 };
        let norm = RowNorm::root_mean_square(&w, epsilon);
        let error = stream.all_reduce_norm(&x, &x, 8, &norm).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("epsilon"), "{error}");
    });
}

#[test]
fn members_whose_residuals_are_divided_and_whole_are_told_in_debug_mode() {
    in_debug_mode("norm-shard-debug", |communicator| {
        let stream = communicator.stream().unwrap();
        let [x, r] = [64, 64].map(|length| communicator.allocate::<f32>(&[length]).unwrap());
        let own = r.slice(..32).unwrap();
        let norm = match communicator.rank() {
            0 => RowNorm::none().residual(&r, &r),
            _ => RowNorm::none().residual_shard(own, own),
        };
        let error = stream.all_reduce_norm(&x, &x, 8, &norm).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Mismatch);
        assert!(error.to_string().contains("own rows"), "{error}");
    });
}

#[test]
#[ignore = "run by hand on a machine with GPUs: VENDOR_BACKEND=cuda, NORM_RANKS=2"]
fn on_this_machine() {
    let world = std::env::var("NORM_RANKS").map_or(2, |ranks| ranks.parse().unwrap());
    ranks(world, |communicator| check_types(&communicator, 64));
}
