//! Generates all-gather + GEMM cases.

use super::case::{GemmCase, GemmVariant};
use crate::case::Case;
use crate::covering::{Random, pairwise};

/// `(m, n, k)`: with remainders of ranks, tiles and vectors; with 1; and with multiples of all.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 1, 1),
    (5, 3, 7),
    (64, 64, 64),
    (130, 70, 33),
    (257, 136, 64),
    (96, 1, 48),
    (40, 264, 8),
    (256, 128, 96),
];
/// `(m, n, k)` for GPUs; too slow for the host backend.
const LARGE: [(usize, usize, usize); 5] = [
    (1024, 1024, 1024),
    (2049, 520, 256),
    (8, 4096, 512),
    (160, 2056, 768),
    (300, 3584, 768),
];
const GAPS: [usize; 3] = [0, 3, 8];
const STREAMS: [usize; 4] = [1, 2, 3, 9];
const CHUNKS: [usize; 3] = [0, 1, 100];

const SIZES: [usize; 11] = [
    GemmVariant::ALL.len(),
    SHAPES.len(),
    2,
    2,
    2,
    GAPS.len(),
    2,
    2,
    STREAMS.len(),
    CHUNKS.len(),
    4,
];

fn case(row: &[usize], shape: (usize, usize, usize), seed: u64) -> Case {
    Case::AllGatherGemm(GemmCase {
        variant: GemmVariant::ALL[row[0]],
        m: shape.0,
        n: shape.1,
        k: shape.2,
        half: row[2] == 1,
        by_columns: row[3] == 1,
        b_by_columns: row[4] == 1,
        gap: GAPS[row[5]],
        bias: row[6] == 1,
        gathered: row[7] == 1,
        streams: STREAMS[row[8]],
        chunk_rows: CHUNKS[row[9]],
        ordered: row[10] & 1 == 0,
        captured: row[10] & 2 != 0,
        seed,
    })
}

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case. Every two values of every two
/// parameters, the world included, occur together in some case.
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
    cases.sort_by_key(|(world, _)| *world);
    cases
}

/// Returns every algorithm and transport with every shape, the large ones included, several times with the other
/// parameters at random.
pub fn full(seed: u64) -> impl Iterator<Item = Case> {
    const TIMES: usize = 8;
    let mut random = Random(seed);
    let shapes: Vec<_> = SHAPES.into_iter().chain(LARGE).collect();
    let each = shapes.into_iter().flat_map(|shape| {
        (0..GemmVariant::ALL.len())
            .flat_map(move |variant| (0..TIMES).map(move |_| (shape, variant)))
    });
    each.map(move |(shape, variant)| {
        let mut row: Vec<usize> = SIZES.iter().map(|&size| random.below(size)).collect();
        row[0] = variant;
        case(&row, shape, random.number())
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn the_sample_has_every_way_in_every_shape_and_in_every_world() {
        let sample = sample(4, 5);
        let products = || {
            sample.iter().filter_map(|(world, case)| match case {
                Case::AllGatherGemm(case) => Some((*world, case)),
                _ => None,
            })
        };
        let variants = GemmVariant::ALL.len();
        let shapes: HashSet<_> = products()
            .map(|(_, case)| (case.variant, case.m, case.n, case.k))
            .collect();
        assert_eq!(shapes.len(), variants * SHAPES.len());
        let worlds: HashSet<_> = products()
            .map(|(world, case)| (case.variant, world))
            .collect();
        assert_eq!(worlds.len(), variants * 4);
        let calls: HashSet<_> = products()
            .map(|(_, case)| (case.variant, case.captured))
            .collect();
        assert_eq!(calls.len(), variants * 2);
        let shardings: HashSet<_> = products()
            .map(|(_, case)| (case.variant, case.by_columns))
            .collect();
        assert_eq!(shardings.len(), variants * 2);
    }
}
