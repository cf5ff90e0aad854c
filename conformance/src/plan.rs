//! Generates transfer cases: a sample that covers every pair of parameter values, or all cases.

use super::covering::{Random, pairwise};
use super::dtype::Dtype;
use super::engine::Engine;
use super::length::{Length, OFFSETS};
use super::transfer_case::{Operation, Placement, Traffic, TransferCase};

/// The seed of the sample that tests run.
pub const SEED: u64 = 20_261_120;

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case.
///
/// World, operation, traffic, dtype, length, both offsets, engine and placement are the parameters;
/// every two values of every two of them occur together in some case. In addition, every world gets
/// each operation of [`local`] once, with one dtype.
pub fn sample(worlds: usize, seed: u64) -> Vec<(usize, TransferCase)> {
    let sizes = [
        worlds,
        Operation::TRANSFERS.len(),
        Traffic::ALL.len(),
        Dtype::ALL.len(),
        Length::ALL.len(),
        OFFSETS.len(),
        OFFSETS.len(),
        Engine::ALL.len(),
        Placement::ALL.len(),
    ];
    let mut random = Random(seed);
    let mut cases: Vec<(usize, TransferCase)> = pairwise(&sizes, seed)
        .into_iter()
        .map(|row| {
            let case = TransferCase {
                operation: Operation::TRANSFERS[row[1]],
                traffic: Traffic::ALL[row[2]],
                dtype: Dtype::ALL[row[3]],
                length: Length::ALL[row[4]],
                destination_offset: OFFSETS[row[5]],
                source_offset: OFFSETS[row[6]],
                engine: Engine::ALL[row[7]],
                placement: Placement::ALL[row[8]],
                seed: random.number(),
            };
            (row[0], case)
        })
        .collect();
    for world in 0..worlds {
        for (index, operation) in LOCAL.into_iter().enumerate() {
            let dtype = Dtype::ALL[(world * LOCAL.len() + index) % Dtype::ALL.len()];
            cases.push((world, local_case(operation, dtype, &mut random)));
        }
    }
    // Sorted by placement, since a world opens one communicator per placement, one after the other.
    cases.sort_by_key(|(world, case)| (*world, case.placement != Placement::Device));
    cases
}

/// Returns all cases of one world: every combination of dtype, length, offsets and engine, with random
/// operation, traffic and placement; and the cases of [`local`].
pub fn full(seed: u64) -> impl Iterator<Item = TransferCase> {
    Placement::ALL.into_iter().flat_map(move |placement| {
        let locals = (placement == Placement::Device).then(|| local(seed));
        let transfers = product(seed).filter(move |case| case.placement == placement);
        locals.into_iter().flatten().chain(transfers)
    })
}

/// Returns the number of cases in [`full`].
pub fn full_count() -> usize {
    LOCAL.len() * Dtype::ALL.len() + PRODUCT
}

const PRODUCT: usize =
    Dtype::ALL.len() * Length::ALL.len() * OFFSETS.len() * OFFSETS.len() * Engine::ALL.len();

fn product(seed: u64) -> impl Iterator<Item = TransferCase> {
    (0..PRODUCT).map(move |number| {
        let mut random = Random(seed ^ (number as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut rest = number;
        let mut digit = |base: usize| {
            let value = rest % base;
            rest /= base;
            value
        };
        TransferCase {
            dtype: Dtype::ALL[digit(Dtype::ALL.len())],
            engine: Engine::ALL[digit(Engine::ALL.len())],
            destination_offset: OFFSETS[digit(OFFSETS.len())],
            source_offset: OFFSETS[digit(OFFSETS.len())],
            length: Length::ALL[digit(Length::ALL.len())],
            operation: Operation::TRANSFERS[random.below(Operation::TRANSFERS.len())],
            traffic: Traffic::ALL[random.below(Traffic::ALL.len())],
            placement: Placement::ALL[random.below(Placement::ALL.len())],
            seed: random.number(),
        }
    })
}

/// Operations that do not depend on an engine or on traffic between ranks.
const LOCAL: [Operation; 3] = [
    Operation::HostCopy,
    Operation::Refusals,
    Operation::Registration,
];

/// Returns cases of host copies, refusals and registration, for every dtype.
pub fn local(seed: u64) -> impl Iterator<Item = TransferCase> {
    let mut random = Random(seed);
    LOCAL.into_iter().flat_map(move |operation| {
        Dtype::ALL.map(|dtype| local_case(operation, dtype, &mut random))
    })
}

fn local_case(operation: Operation, dtype: Dtype, random: &mut Random) -> TransferCase {
    TransferCase {
        operation,
        traffic: Traffic::Ring,
        dtype,
        length: Length::ALL[random.below(Length::ALL.len())],
        destination_offset: OFFSETS[random.below(OFFSETS.len())],
        source_offset: OFFSETS[random.below(OFFSETS.len())],
        engine: Engine::AUTOMATIC,
        placement: Placement::Device,
        seed: random.number(),
    }
}

/// Returns barriers and signals with little data, for worlds with more ranks than processors.
pub fn oversubscribed(seed: u64) -> Vec<TransferCase> {
    let mut random = Random(seed);
    Placement::ALL
        .into_iter()
        .flat_map(|placement| {
            [Operation::Barrier, Operation::PutSignal].map(|operation| TransferCase {
                operation,
                traffic: Traffic::Ring,
                dtype: Dtype::U32,
                length: Length::Elements(33),
                destination_offset: 1,
                source_offset: 3,
                engine: Engine::AUTOMATIC,
                placement,
                seed: random.number(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    /// Every pair of values of two parameters that occurs in `cases`.
    fn pairs<A: std::hash::Hash + Eq, B: std::hash::Hash + Eq>(
        cases: &[(usize, TransferCase)],
        of: impl Fn(&(usize, TransferCase)) -> (A, B),
    ) -> usize {
        let transfers = cases
            .iter()
            .filter(|(_, case)| !LOCAL.contains(&case.operation));
        transfers.map(of).collect::<HashSet<_>>().len()
    }

    #[test]
    fn the_sample_has_a_case_for_each_pair_of_parameters() {
        let cases = sample(25, SEED);
        assert_eq!(
            pairs(&cases, |(world, case)| (*world, case.length)),
            25 * 20
        );
        assert_eq!(
            pairs(&cases, |(world, case)| (*world, case.engine)),
            25 * Engine::ALL.len()
        );
        assert_eq!(
            pairs(&cases, |(_, case)| (case.length, case.engine)),
            20 * Engine::ALL.len()
        );
        assert_eq!(
            pairs(&cases, |(_, case)| (case.operation, case.placement)),
            7 * 2
        );
        assert_eq!(
            pairs(&cases, |(_, case)| (case.dtype, case.traffic)),
            Dtype::ALL.len() * 3
        );
        assert_eq!(
            pairs(&cases, |(_, case)| (
                case.destination_offset,
                case.source_offset
            )),
            7 * 7
        );
        for world in 0..25 {
            for operation in LOCAL {
                let is_here = |(of, case): &(usize, TransferCase)| {
                    *of == world && case.operation == operation
                };
                assert!(cases.iter().any(is_here));
            }
        }
    }

    #[test]
    fn all_cases_are_as_many_as_they_are_said_to_be_and_no_two_are_alike() {
        let unlike: HashSet<String> = full(SEED)
            .map(|case| format!("{case}/{}", case.seed))
            .collect();
        assert_eq!(unlike.len(), full_count());
    }

    #[test]
    fn a_world_changes_its_placement_once() {
        for cases in [full(SEED).collect::<Vec<_>>(), oversubscribed(SEED)] {
            let changes = cases
                .windows(2)
                .filter(|two| two[0].placement != two[1].placement);
            assert_eq!(changes.count(), 1);
        }
    }
}
