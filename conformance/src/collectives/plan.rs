//! Generates collective cases: a sample that covers every pair of parameter values, or all cases.

use super::case::{
    AlgorithmName as By, Collective, CollectiveCase, CollectiveVariant, Members, Mode, OwnMemory,
    Reduction, StreamOwner, Values,
};
use super::multicast::{is_f8, is_reduced_by_multicast};
use super::refusal_case::RefusalCase;
use crate::case::Case;
use crate::covering::{Random, pairwise};
use crate::dtype::Dtype;
use crate::length::{Length, OFFSETS};

/// Returns the algorithms that support an operation; all others must be refused.
pub fn algorithms(operation: Collective) -> &'static [By] {
    match operation {
        Collective::AllReduce => &[
            By::Automatic,
            By::Packets,
            By::PacketsTwoShot,
            By::OneShot,
            By::TwoShot,
            By::Push,
            By::CopyEngine,
            By::Vendor,
            By::VendorWindows,
            By::Multicast,
            By::MulticastOneShot,
            By::Lamport,
            By::LamportTwoShot,
            By::Pieces,
        ],
        Collective::Reduce => &[
            By::Automatic,
            By::Packets,
            By::OneShot,
            By::TwoShot,
            By::Push,
            By::Vendor,
            By::VendorWindows,
            By::Lamport,
            By::Pieces,
        ],
        Collective::ReduceScatter => &[
            By::Automatic,
            By::Packets,
            By::OneShot,
            By::Push,
            By::Vendor,
            By::VendorWindows,
            By::Multicast,
            By::Lamport,
            By::Pieces,
        ],
        Collective::Broadcast => &[
            By::Automatic,
            By::Packets,
            By::Push,
            By::Pull,
            By::TwoShot,
            By::Vendor,
            By::VendorWindows,
            By::Multicast,
            By::Lamport,
            By::Pieces,
        ],
        Collective::AllToAll => &[
            By::Automatic,
            By::Packets,
            By::Push,
            By::Pull,
            By::Swap,
            By::CopyEngine,
            By::Vendor,
            By::VendorWindows,
            By::Lamport,
            By::Pieces,
        ],
        Collective::AllGather => &[
            By::Automatic,
            By::Packets,
            By::Push,
            By::Pull,
            By::CopyEngine,
            By::Vendor,
            By::VendorWindows,
            By::Multicast,
            By::Lamport,
            By::Pieces,
        ],
        Collective::AllGatherV => &[
            By::Automatic,
            By::Packets,
            By::Push,
            By::Pull,
            By::CopyEngine,
            By::Vendor,
            By::VendorWindows,
            By::Multicast,
            By::Pieces,
        ],
        Collective::Gather | Collective::Scatter => &[
            By::Automatic,
            By::Packets,
            By::Push,
            By::Pull,
            By::Vendor,
            By::VendorWindows,
            By::Lamport,
            By::Pieces,
        ],
        Collective::AllToAllV | Collective::Ring | Collective::Exchange => {
            &[By::Automatic, By::Rendezvous, By::Vendor, By::VendorWindows]
        }
    }
}

/// Returns every operation with every algorithm that supports it.
pub fn variants() -> Vec<CollectiveVariant> {
    let each = Collective::ALL.into_iter().flat_map(|operation| {
        algorithms(operation)
            .iter()
            .map(move |&algorithm| CollectiveVariant {
                operation,
                algorithm,
            })
    });
    each.collect()
}

/// Lengths with remainders of vectors, warps, blocks and world sizes, and lengths around the sizes at
/// which another round of LL packets begins, on the host backend and on GPU grids.
const LENGTHS: [Length; 27] = [
    Length::Elements(0),
    Length::Elements(1),
    Length::Elements(2),
    Length::Elements(7),
    Length::Elements(8),
    Length::Elements(9),
    Length::Elements(15),
    Length::Elements(16),
    Length::Elements(17),
    Length::Elements(127),
    Length::Elements(128),
    Length::Elements(129),
    Length::Elements(4095),
    Length::Elements(4096),
    Length::Elements(4097),
    shared(8 << 10, -1),
    shared(8 << 10, 0),
    shared(8 << 10, 1),
    shared(32 << 10, -1),
    shared(32 << 10, 0),
    shared(32 << 10, 1),
    around(64 << 10, 1),
    around(64 << 10, -1),
    around(64 << 10, 0),
    around(512 << 10, 5),
    around(1 << 20, 3),
    around(16 << 20, -7),
];

/// Number of [`LENGTHS`] in [`Sizes::Small`], for tests on machines with few processors.
const SMALL: usize = LENGTHS.len() - 5;

/// Limit on the lengths of a sample.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sizes {
    /// Up to about 64 KiB.
    Small,
    /// Up to about 1 MiB; only [`full`] uses longer ranges.
    Large,
}

const fn around(bytes: usize, delta: isize) -> Length {
    Length::Around { bytes, delta }
}

const fn shared(bytes: usize, delta: isize) -> Length {
    Length::Shared { bytes, delta }
}

/// Upper bound of random lengths, in bytes.
const RANDOM_BYTES: usize = 48 << 10;

/// Number of channels that a case can use as its first; one fewer than exist, since [`Mode::Concurrent`]
/// uses two.
const FIRST_CHANNELS: usize = 3;

/// Grid sizes that a case can set, in blocks; 0 leaves the choice to the selector.
const BLOCKS: [u32; 5] = [0, 1, 2, 5, 16];

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case. Every two values of
/// every two parameters occur together in some case. Each world also gets the refusals of one type.
pub fn sample(worlds: usize, sizes: Sizes, seed: u64) -> Vec<(usize, Case)> {
    let variants = variants();
    let lengths = match sizes {
        Sizes::Small => &LENGTHS[..SMALL],
        Sizes::Large => &LENGTHS[..LENGTHS.len() - 1],
    };
    let sizes = [
        worlds,
        variants.len(),
        Dtype::ALL.len(),
        Reduction::ALL.len(),
        lengths.len() + 1,
        OFFSETS.len(),
        OFFSETS.len(),
        2,
        Mode::ALL.len(),
        Members::ALL.len(),
        StreamOwner::ALL.len(),
        FIRST_CHANNELS,
        BLOCKS.len(),
        Values::EXACT.len(),
        OwnMemory::ALL.len(),
    ];
    let mut random = Random(seed);
    let cases = pairwise(&sizes, seed).into_iter().map(|row| {
        let case = case(&variants, lengths, &row[1..], &mut random);
        (row[0], Case::Collective(case))
    });
    let mut cases: Vec<_> = cases.collect();
    for world in 0..worlds {
        let dtype = Dtype::ALL[(world + seed as usize) % Dtype::ALL.len()];
        cases.push((world, refusal(dtype, seed)));
    }
    cases.sort_by_key(|(world, _)| *world);
    cases
}

fn refusal(dtype: Dtype, seed: u64) -> Case {
    Case::Refusal(RefusalCase { dtype, seed })
}

/// Returns all cases of one world: every combination of way, type, length, in-place flag and mode, with
/// the other parameters at random; and the refusals of every type. Most multicast cases with a reduction
/// that multicast does not support get another type or operator.
pub fn full(seed: u64) -> impl Iterator<Item = Case> {
    let refusals = Dtype::ALL.map(|dtype| refusal(dtype, seed));
    refusals.into_iter().chain(product(seed))
}

fn product(seed: u64) -> impl Iterator<Item = Case> {
    let variants = variants();
    (0..product_count()).map(move |number| {
        let mut random = Random(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rest = number;
        let mut digit = |base: usize| {
            let value = rest % base;
            rest /= base;
            value
        };
        let (variant, dtype) = (digit(variants.len()), digit(Dtype::ALL.len()));
        let (length, place) = (digit(LENGTHS.len() + 1), digit(2));
        let row = [
            variant,
            dtype,
            random.below(Reduction::ALL.len()),
            length,
            random.below(OFFSETS.len()),
            random.below(OFFSETS.len()),
            place,
            digit(Mode::ALL.len()),
            random.below(Members::ALL.len()),
            random.below(StreamOwner::ALL.len()),
            random.below(FIRST_CHANNELS),
            random.below(BLOCKS.len()),
            random.below(Values::EXACT.len()),
            random.below(OwnMemory::ALL.len()),
        ];
        Case::Collective(case(&variants, &LENGTHS, &row, &mut random))
    })
}

/// One in this many multicast cases keeps its random parameters, even if multicast does not support them, to test the
/// replacement algorithm.
const LEFT: usize = 8;

/// Returns the members for a case.
pub(super) fn members(variant: CollectiveVariant, drawn: Members, random: &mut Random) -> Members {
    // The NCCL or RCCL communicator and the multicast object exist for the group of all ranks only.
    let of_all =
        variant.algorithm.is_nccl() || variant.algorithm.is_multicast() && random.below(LEFT) != 0;
    if of_all { Members::All } else { drawn }
}

/// Returns element type and operator for a case; for multicast, mostly a reduction that multicast supports.
pub(super) fn reduced(
    variant: CollectiveVariant,
    drawn: (Dtype, Reduction),
    random: &mut Random,
) -> (Dtype, Reduction) {
    let is_free = !variant.algorithm.is_multicast() || !variant.operation.reduces();
    if is_free || random.below(LEFT) == 0 {
        return drawn;
    }
    let (mut dtype, reduction) = drawn;
    if done(dtype).is_empty() {
        let everywhere = |dtype: &Dtype| !is_f8(*dtype) && !done(*dtype).is_empty();
        let others: Vec<Dtype> = Dtype::ALL.into_iter().filter(everywhere).collect();
        dtype = others[random.below(others.len())];
    }
    let done = done(dtype);
    match done.contains(&reduction) {
        true => (dtype, reduction),
        false => (dtype, done[random.below(done.len())]),
    }
}

/// Returns the operators that multicast supports for a type.
fn done(dtype: Dtype) -> Vec<Reduction> {
    let is_done = |reduction: &Reduction| is_reduced_by_multicast(dtype, *reduction);
    Reduction::ALL.into_iter().filter(is_done).collect()
}

/// Returns the kind of values for a way; `lot` is a random number.
pub(super) fn values(variant: CollectiveVariant, lot: usize) -> Values {
    if variant.algorithm.is_close() {
        // The order of accumulation is unknown, so the values must not depend on it much.
        Values::Modest
    } else {
        Values::EXACT[lot % Values::EXACT.len()]
    }
}

/// Returns the number of cases in [`full`].
pub fn full_count() -> usize {
    Dtype::ALL.len() + product_count()
}

fn product_count() -> usize {
    variants().len() * Dtype::ALL.len() * (LENGTHS.len() + 1) * 2 * Mode::ALL.len()
}

/// Builds the case of a row, which has the index of each parameter's value in the order of [`sample`].
fn case(
    variants: &[CollectiveVariant],
    lengths: &[Length],
    row: &[usize],
    random: &mut Random,
) -> CollectiveCase {
    let (variant, dtype) = (variants[row[0]], Dtype::ALL[row[1]]);
    let is_nccl = variant.algorithm.is_nccl();
    let values = values(variant, row[12]);
    let by_lot = Length::Elements(random.below(RANDOM_BYTES / dtype.size()));
    let seed = random.number();
    // A separate generator, so that draws for multicast do not change the other cases.
    let mut random = Random(!seed);
    let (dtype, reduction) = reduced(variant, (dtype, Reduction::ALL[row[2]]), &mut random);
    CollectiveCase {
        variant,
        dtype,
        reduction,
        length: lengths.get(row[3]).copied().unwrap_or(by_lot),
        destination_offset: OFFSETS[row[4]],
        source_offset: OFFSETS[row[5]],
        in_place: is_in_place(variant, row[6] == 1),
        mode: match Mode::ALL[row[7]] {
            // The calls on one NCCL or RCCL communicator must follow one another on one stream.
            Mode::Concurrent if is_nccl => Mode::Eager,
            mode => mode,
        },
        members: members(variant, Members::ALL[row[8]], &mut random),
        own: own_memory(variant, OwnMemory::ALL[row[13]]),
        stream: StreamOwner::ALL[row[9]],
        channel: row[10] as u32,
        blocks: BLOCKS[row[11]],
        values,
        seed,
    }
}

/// Returns which operands are memory that only their rank knows, given the random choice `wanted`.
pub(super) fn own_memory(variant: CollectiveVariant, wanted: OwnMemory) -> OwnMemory {
    let exchanges = matches!(
        variant.operation,
        Collective::AllToAllV | Collective::Ring | Collective::Exchange
    );
    match variant.algorithm {
        By::Automatic | By::Rendezvous | By::Vendor if exchanges => wanted,
        // It may be in place at a member, which NCCL cannot do.
        By::Vendor if variant.operation == Collective::AllToAll => OwnMemory::Neither,
        By::Automatic
        | By::Packets
        | By::PacketsTwoShot
        | By::Lamport
        | By::LamportTwoShot
        | By::Pieces
        | By::Vendor => wanted,
        _ => OwnMemory::Neither,
    }
}

/// Whether a case is in place, given the random choice `wanted`.
pub(super) fn is_in_place(variant: CollectiveVariant, wanted: bool) -> bool {
    is_refused_out_of_place(variant) || wanted && has_in_place(variant)
}

/// Whether a way supports in-place calls.
fn has_in_place(variant: CollectiveVariant) -> bool {
    let has_form = matches!(
        variant.operation,
        Collective::AllReduce
            | Collective::Reduce
            | Collective::ReduceScatter
            | Collective::AllGather
            | Collective::Broadcast
            | Collective::AllToAll
    );
    has_form && !is_refused_in_place(variant)
}

/// Whether an in-place call must be refused, because peers may still read data that it overwrites.
pub(super) fn is_refused_in_place(variant: CollectiveVariant) -> bool {
    match (variant.operation, variant.algorithm) {
        (Collective::AllReduce, by) => matches!(by, By::OneShot | By::MulticastOneShot),
        (Collective::AllToAll, by) => !matches!(
            by,
            By::Packets | By::Swap | By::Lamport | By::Pieces | By::Automatic
        ),
        _ => false,
    }
}

/// Whether an out-of-place call must be refused, because the algorithm overwrites its source.
pub(super) fn is_refused_out_of_place(variant: CollectiveVariant) -> bool {
    variant.algorithm == By::Swap
}

#[cfg(test)]
mod tests {
    use super::super::multicast::MulticastKernels;
    use super::*;
    use std::collections::{HashMap, HashSet};

    #[test]
    fn every_two_parameters_meet_in_the_sample() {
        let cases: Vec<(usize, CollectiveCase)> = sample(4, Sizes::Small, 1)
            .into_iter()
            .filter_map(|(world, case)| match case {
                Case::Collective(case) => Some((world, case)),
                _ => None,
            })
            .collect();
        let met = |of: fn(&(usize, CollectiveCase)) -> String| {
            cases.iter().map(of).collect::<HashSet<_>>().len()
        };
        let of_vendor = |variant: &&CollectiveVariant| variant.algorithm.is_nccl();
        let vendors = variants().iter().filter(of_vendor).count();
        let variants = variants().len();
        assert_eq!(
            met(|(world, case)| format!("{world} {}", case.variant)),
            4 * variants
        );
        // Multicast reductions are left out, since few of them have a type that multicast does not reduce.
        let others = |variant: &&CollectiveVariant| {
            !variant.algorithm.is_multicast() || !variant.operation.reduces()
        };
        for variant in super::variants().iter().filter(others) {
            let here = cases.iter().filter(|(_, case)| case.variant == *variant);
            let dtypes: HashSet<Dtype> = here.map(|(_, case)| case.dtype).collect();
            assert_eq!(dtypes.len(), Dtype::ALL.len(), "{variant}");
        }
        assert_eq!(
            met(|(_, case)| format!("{} {:?}", case.variant, case.mode)),
            // NCCL and RCCL are not called from two streams at once.
            variants * 3 - vendors
        );
        assert_eq!(
            met(|(_, case)| format!("{:?} {:?}", case.dtype, case.reduction)),
            14 * 5
        );
    }

    #[test]
    fn most_cases_that_name_multicast_go_by_it_and_a_few_of_each_way_show_what_takes_its_place() {
        // One sample has two dozen cases of a variant, which is too few to compare.
        let mut counts = HashMap::<CollectiveVariant, (usize, usize)>::new();
        for seed in 1..4 {
            let (mut split, mut unreduced) = (0, 0);
            for (_, case) in sample(1, Sizes::Small, seed) {
                let Case::Collective(case) = case else {
                    continue;
                };
                if !case.variant.algorithm.is_multicast() {
                    continue;
                }
                let count = counts.entry(case.variant).or_default();
                match case.uses_multicast(2, MulticastKernels::LEAST) {
                    true => count.0 += 1,
                    false => count.1 += 1,
                }
                split += usize::from(case.members != Members::All);
                let reduces = case.variant.operation.reduces();
                unreduced +=
                    usize::from(reduces && !is_reduced_by_multicast(case.dtype, case.reduction));
            }
            assert!(split > 0 && unreduced > 0, "seed {seed}");
        }
        assert_eq!(counts.len(), 6);
        for (variant, (by_kernels, others)) in &counts {
            assert!(by_kernels > others, "{variant}: {by_kernels} and {others}");
            assert!(*others > 0, "{variant}");
        }
        let (by_kernels, others) =
            (counts.values()).fold((0, 0), |sum, count| (sum.0 + count.0, sum.1 + count.1));
        assert!(by_kernels > 2 * others, "{by_kernels} and {others}");
    }

    #[test]
    fn all_cases_are_as_many_as_they_are_said_to_be() {
        assert_eq!(full(1).count(), full_count());
    }

    #[test]
    fn every_operation_is_served_by_the_selector_and_no_way_is_there_twice() {
        let variants = variants();
        assert_eq!(
            variants.iter().collect::<HashSet<_>>().len(),
            variants.len()
        );
        for operation in Collective::ALL {
            assert!(variants.contains(&CollectiveVariant {
                operation,
                algorithm: By::Automatic
            }));
        }
    }
}
