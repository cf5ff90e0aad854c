//! Generates cases of GEMM + reduce-scatter and GEMM + all-reduce.

use super::case::{GemmReduceCase, GemmReduceVariant, ReductionName};
use super::refusal_case::GemmReduceRefusalCase;
use crate::case::Case;
use crate::covering::{Random, pairwise};

/// Rows, `n` and `k`: fewer rows than ranks, 1, odd numbers, remainders of ranks, tiles and vectors, multiples of all; and more
/// rows of a rank than a tile has, so that chunks are whole tiles.
const SHAPES: [(usize, usize, usize); 9] = [
    (1, 1, 1),
    (2, 24, 40),
    (5, 3, 7),
    (16, 65, 16),
    (33, 8, 130),
    (64, 64, 64),
    (130, 70, 33),
    (257, 16, 24),
    (520, 9, 8),
];
/// Rows, `n` and `k` for GPUs; too slow for tests without optimizations. The selector chooses a pipeline for the first in a group
/// of two.
const LARGE: [(usize, usize, usize); 5] = [
    (4096, 4096, 8),
    (1024, 1024, 512),
    (2049, 520, 256),
    (8, 4096, 512),
    (90, 1544, 328),
];
const A_GAPS: [usize; 3] = [0, 3, 8];
const B_GAPS: [usize; 3] = [0, 5, 8];
const STREAMS: [usize; 3] = [1, 2, 3];
/// Chunks of a rank's rows; 0 for the library's choice.
const CHUNKS: [usize; 4] = [0, 1, 2, 5];

const SIZES: [usize; 12] = [
    GemmReduceVariant::ALL.len(),
    SHAPES.len(),
    ReductionName::ALL.len(),
    2,
    2,
    A_GAPS.len(),
    B_GAPS.len(),
    2,
    2,
    STREAMS.len(),
    CHUNKS.len(),
    2,
];

fn case(row: &[usize], shape: (usize, usize, usize), seed: u64) -> Case {
    let (rows, n, k) = shape;
    Case::GemmReduce(GemmReduceCase {
        variant: GemmReduceVariant::ALL[row[0]],
        rows,
        n,
        k,
        reduction: ReductionName::ALL[row[2]],
        half: row[3] == 1,
        b_by_columns: row[4] == 1,
        a_gap: A_GAPS[row[5]],
        b_gap: B_GAPS[row[6]],
        bias: row[7] == 1,
        symmetric: row[8] == 1,
        streams: STREAMS[row[9]],
        chunks: CHUNKS[row[10]],
        captured: row[11] == 1,
        seed,
    })
}

/// Returns the refusals of one kind; there are [`REFUSALS`].
fn refusal(number: usize, seed: u64) -> Case {
    Case::GemmReduceRefusal(GemmReduceRefusalCase {
        reduction: ReductionName::ALL[number % 2],
        half: number / 2 % 2 == 1,
        seed,
    })
}

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case. Every two values of every two parameters, the
/// world included, occur together in some case. Each world also gets the refusals of one kind.
pub fn sample(worlds: usize, seed: u64) -> Vec<(usize, Case)> {
    let mut sizes = vec![worlds];
    sizes.extend(SIZES);
    let mut random = Random(seed);
    let rows = pairwise(&sizes, seed).into_iter();
    let cases = rows.map(|row| {
        let shape = SHAPES[row[2]];
        (row[0], case(&row[1..], shape, random.number()))
    });
    let mut cases: Vec<_> = cases.collect();
    cases.extend((0..worlds).map(|world| (world, refusal(world + seed as usize, seed))));
    cases.sort_by_key(|(world, _)| *world);
    cases
}

/// Returns every algorithm and transport with every reduction, type and shape, the large ones included, several times with the
/// other parameters at random; and all refusals.
pub fn full(seed: u64) -> impl Iterator<Item = Case> {
    let mut random = Random(seed);
    let shapes: Vec<_> = SHAPES.into_iter().chain(LARGE).collect();
    let cases = (0..PRODUCT).map(move |number| {
        let mut row: Vec<usize> = SIZES.iter().map(|&size| random.below(size)).collect();
        let mut rest = number;
        let mut digit = |base: usize| {
            let value = rest % base;
            rest /= base;
            value
        };
        row[0] = digit(GemmReduceVariant::ALL.len());
        row[2] = digit(ReductionName::ALL.len());
        row[3] = digit(2);
        let shape = shapes[digit(shapes.len())];
        case(&row, shape, random.number())
    });
    (0..REFUSALS)
        .map(move |number| refusal(number, seed))
        .chain(cases)
}

/// Returns the number of cases in [`full`].
pub fn full_count() -> usize {
    REFUSALS + PRODUCT
}

/// Refusals of each reduction and type.
const REFUSALS: usize = 4;
/// Cases of each algorithm and transport, reduction, type and shape.
const TIMES: usize = 6;
const PRODUCT: usize = GemmReduceVariant::ALL.len()
    * ReductionName::ALL.len()
    * 2
    * (SHAPES.len() + LARGE.len())
    * TIMES;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::Hash;

    #[test]
    fn the_sample_has_every_two_values_of_every_two_parameters() {
        const VARIANTS: usize = GemmReduceVariant::ALL.len();
        let sample = sample(4, 5);
        let sums: Vec<(usize, &GemmReduceCase)> = (sample.iter())
            .filter_map(|(world, case)| match case {
                Case::GemmReduce(case) => Some((*world, case)),
                _ => None,
            })
            .collect();
        fn count<T: Hash + Eq>(
            sums: &[(usize, &GemmReduceCase)],
            of: impl Fn(&(usize, &GemmReduceCase)) -> T,
        ) -> usize {
            sums.iter().map(of).collect::<HashSet<_>>().len()
        }
        let of = |key: fn(&GemmReduceCase) -> (GemmReduceVariant, usize)| {
            count(&sums, |(_, case)| key(case))
        };
        assert_eq!(
            of(|case| (case.variant, case.rows)),
            VARIANTS * SHAPES.len()
        );
        assert_eq!(
            of(|case| (case.variant, case.reduction as usize)),
            VARIANTS * 2
        );
        assert_eq!(
            of(|case| (case.variant, case.streams)),
            VARIANTS * STREAMS.len()
        );
        assert_eq!(
            of(|case| (case.variant, case.chunks)),
            VARIANTS * CHUNKS.len()
        );
        assert_eq!(
            of(|case| (case.variant, case.captured.into())),
            VARIANTS * 2
        );
        assert_eq!(
            of(|case| (case.variant, case.symmetric.into())),
            VARIANTS * 2
        );
        assert_eq!(
            count(&sums, |(world, case)| (*world, case.variant)),
            4 * VARIANTS
        );
        let of_worlds = count(&sums, |(world, case)| (*world, case.rows, case.n));
        assert_eq!(of_worlds, 4 * SHAPES.len());
        assert!(sums.len() < 4 * 24, "{} cases", sums.len());
        let refused = sample
            .iter()
            .filter(|(_, case)| matches!(case, Case::GemmReduceRefusal(_)));
        assert_eq!(refused.count(), 4);
    }

    #[test]
    fn all_cases_are_as_many_as_they_are_said_to_be_and_no_two_are_alike() {
        let all: Vec<Case> = full(3).collect();
        assert_eq!(all.len(), full_count());
        let unlike: HashSet<String> = all.iter().map(|case| format!("{case:?}")).collect();
        assert_eq!(unlike.len(), all.len());
    }
}
