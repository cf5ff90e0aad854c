//! Generates all-gather + GEMM cases.

use super::case::{GemmCase, GemmCaseElement, GemmVariant};
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

/// `(m, n, k)` of 8-bit floats: the first half is of multiples of 16, which GPUs' libraries want, by up to 8 ranks; then with
/// tails, of which the last two have the even lines that fused kernels want.
const SHAPES_8: [(usize, usize, usize); 8] = [
    (128, 64, 128),
    (256, 48, 256),
    (128, 272, 128),
    (384, 16, 640),
    (1, 1, 1),
    (5, 3, 7),
    (130, 70, 34),
    (37, 136, 144),
];
/// `(m, n, k)` of 8-bit floats for GPUs.
const LARGE_8: [(usize, usize, usize); 3] =
    [(1024, 1024, 1024), (2048, 528, 384), (160, 2056, 768)];
const GAPS_8: [usize; 3] = [0, 16, 3];
/// Whether `B` is column-major, which it must be on GPUs.
const B_BY_COLUMNS_8: [bool; 3] = [true, true, false];

const SIZES_8: [usize; 9] = [
    GemmVariant::ALL.len(),
    SHAPES_8.len(),
    2,
    B_BY_COLUMNS_8.len(),
    GAPS_8.len(),
    2,
    2,
    2,
    4,
];

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
        element: match row[2] {
            0 => GemmCaseElement::Bf16,
            _ => GemmCaseElement::F16,
        },
        by_columns: row[3] == 1,
        b_by_columns: row[4] == 1,
        gap: GAPS[row[5]],
        bias: row[6] == 1,
        scaled: false,
        nan: false,
        gathered: row[7] == 1,
        streams: STREAMS[row[8]],
        chunk_rows: CHUNKS[row[9]],
        ordered: row[10] & 1 == 0,
        captured: row[10] & 2 != 0,
        seed,
    })
}

fn case_8(row: &[usize], shape: (usize, usize, usize), seed: u64) -> Case {
    let mut random = Random(seed);
    Case::AllGatherGemm(GemmCase {
        variant: GemmVariant::ALL[row[0]],
        m: shape.0,
        n: shape.1,
        k: shape.2,
        element: GemmCaseElement::F8E4M3,
        by_columns: row[2] == 1,
        b_by_columns: B_BY_COLUMNS_8[row[3]],
        gap: GAPS_8[row[4]],
        bias: row[5] == 1,
        scaled: row[6] == 1,
        nan: row[7] == 1,
        gathered: row[8] & 1 != 0,
        captured: row[8] & 2 != 0,
        streams: STREAMS[random.below(STREAMS.len())],
        chunk_rows: 0,
        ordered: random.below(2) == 0,
        seed,
    })
}

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case. Every two values of every two
/// parameters, the world included, occur together in some case.
///
/// 8-bit floats have parameters of their own, of which the same holds.
pub fn sample(worlds: usize, seed: u64) -> Vec<(usize, Case)> {
    let mut random = Random(seed);
    let rows = |sizes: &[usize]| pairwise(&[&[worlds], sizes].concat(), seed).into_iter();
    let mut cases = Vec::new();
    for row in rows(&SIZES) {
        let shape = SHAPES[row[2]];
        cases.push((row[0], case(&row[1..], shape, random.number())));
    }
    for row in rows(&SIZES_8) {
        let shape = SHAPES_8[row[2]];
        cases.push((row[0], case_8(&row[1..], shape, random.number())));
    }
    cases.sort_by_key(|(world, _)| *world);
    cases
}

/// Returns every algorithm and transport with every shape, the large ones included, several times with the other
/// parameters at random.
pub fn full(seed: u64) -> impl Iterator<Item = Case> {
    let shapes = SHAPES.into_iter().chain(LARGE).collect();
    let shapes_8 = SHAPES_8.into_iter().chain(LARGE_8).collect();
    several(seed, shapes, &SIZES, case).chain(several(seed, shapes_8, &SIZES_8, case_8))
}

/// Makes a case of its parameters, its shape and its seed.
type CaseOf = fn(&[usize], (usize, usize, usize), u64) -> Case;

/// Returns every algorithm and transport with each shape, several times with the other parameters at random. Each
/// parameter is less than its size.
fn several(
    seed: u64,
    shapes: Vec<(usize, usize, usize)>,
    sizes: &'static [usize],
    case: CaseOf,
) -> impl Iterator<Item = Case> {
    const TIMES: usize = 8;
    let mut random = Random(seed);
    let each = shapes.into_iter().flat_map(|shape| {
        (0..GemmVariant::ALL.len())
            .flat_map(move |variant| (0..TIMES).map(move |_| (shape, variant)))
    });
    each.map(move |(shape, variant)| {
        let mut row: Vec<usize> = sizes.iter().map(|&size| random.below(size)).collect();
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
                Case::AllGatherGemm(case) if case.element != GemmCaseElement::F8E4M3 => {
                    Some((*world, case))
                }
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

    #[test]
    fn the_sample_has_8_bit_floats_of_every_way_with_and_without_bias_scale_and_nan() {
        let sample = sample(4, 5);
        let products = || {
            sample.iter().filter_map(|(_, case)| match case {
                Case::AllGatherGemm(case) if case.element == GemmCaseElement::F8E4M3 => Some(case),
                _ => None,
            })
        };
        let variants = GemmVariant::ALL.len();
        let shapes: HashSet<_> = products()
            .map(|case| (case.variant, case.m, case.n, case.k))
            .collect();
        assert_eq!(shapes.len(), variants * SHAPES_8.len());
        for is in [
            |case: &GemmCase| case.bias,
            |case: &GemmCase| case.scaled,
            |case: &GemmCase| case.nan,
            |case: &GemmCase| case.by_columns,
            |case: &GemmCase| case.b_by_columns,
        ] {
            let both: HashSet<_> = products().map(|case| (case.variant, is(case))).collect();
            assert_eq!(both.len(), variants * 2);
        }
    }
}
