//! Generates cases of all-reduces with a norm.

use super::case::{NormCase, NormName, NormOutput, ResidualUse};
use super::refusal_case::NormRefusalCase;
use crate::case::Case;
use crate::collectives::plan::Sizes;
use crate::covering::{Random, pairwise};
use crate::dtype::Dtype;

/// The types of rows.
const DTYPES: [Dtype; 3] = [Dtype::Bf16, Dtype::F16, Dtype::F32];
/// Rows and their elements: one row and odd numbers of rows; rows of whole vectors, of whole groups of 128 and of neither; up to
/// more than a thread of the largest block can hold.
const SHAPES: [(usize, usize); 9] = [
    (1, 128),
    (3, 1),
    (3, 64),
    (7, 133),
    (5, 1024),
    (33, 256),
    (2, 2880),
    (3, 8192),
    (1, 9001),
];
/// More rows than inboxes of the host backend, and of the fakes', hold at once in groups of two or more.
const SEVERAL_KERNELS: (usize, usize) = (49, 4096);
/// The same of f32 on GPUs, whose inboxes hold 4 MiB from a peer, and their marks. Too slow for tests without optimizations.
const SEVERAL_KERNELS_LARGE: (usize, usize) = (139, 8192);
/// Distances from a 256-byte boundary, in elements: whole vectors of each type, and neither.
const OFFSETS: [usize; 3] = [0, 1, 8];
/// Blocks and threads; 0 for the library's choice.
const GRIDS: [(u32, u32); 3] = [(0, 0), (1, 0), (0, 64)];

const SIZES: [usize; 11] = [
    DTYPES.len(),
    SHAPES.len(),
    NormName::ALL.len(),
    NormOutput::ALL.len(),
    ResidualUse::ALL.len(),
    2,
    2,
    2,
    2,
    OFFSETS.len(),
    GRIDS.len(),
];

fn case(row: &[usize], (rows, hidden): (usize, usize), seed: u64) -> Case {
    let output = NormOutput::ALL[row[3]];
    let (blocks, threads) = GRIDS[row[10]];
    Case::Norm(NormCase {
        dtype: DTYPES[row[0]],
        norm: NormName::ALL[row[2]],
        output,
        residual: ResidualUse::ALL[row[4]],
        sharded: false,
        in_place: row[5] == 1 && output == NormOutput::Same,
        rows,
        // Only whole groups have scales.
        hidden: match output {
            NormOutput::Groups => hidden.next_multiple_of(NormOutput::GROUP),
            _ => hidden,
        },
        offset: OFFSETS[row[9]],
        own: row[6] == 1,
        from_one: row[7] == 1,
        blocks,
        threads,
        captured: row[8] == 1,
        seed,
    })
}

/// Returns a call whose residual is divided, of a shape: the other parameters are at random.
fn sharded(random: &mut Random, shape: (usize, usize)) -> Case {
    let mut row: Vec<usize> = SIZES.iter().map(|&size| random.below(size)).collect();
    // Results of the rows' type, and a residual.
    row[3] = 0;
    row[4] = 1 + random.below(2);
    match case(&row, shape, random.number()) {
        Case::Norm(case) => Case::Norm(NormCase {
            sharded: true,
            ..case
        }),
        other => other,
    }
}

fn refusal(dtype: Dtype, seed: u64) -> Case {
    Case::NormRefusal(NormRefusalCase { dtype, seed })
}

/// Returns the sample for `worlds` worlds, as pairs of a world's index and a case. Every two values of every two parameters, the
/// world included, occur together in some case. Each world also gets a call that takes several kernels, a call of each shape with a
/// residual that is divided, and the refusals of one type.
pub fn sample(worlds: usize, sizes: Sizes, seed: u64) -> Vec<(usize, Case)> {
    let mut parameters = vec![worlds];
    parameters.extend(SIZES);
    let mut random = Random(seed);
    let rows = pairwise(&parameters, seed).into_iter();
    let cases = rows.map(|row| {
        let shape = SHAPES[row[2]];
        (row[0], case(&row[1..], shape, random.number()))
    });
    let mut cases: Vec<_> = cases.collect();
    for world in 0..worlds {
        let dtype = DTYPES[(world + seed as usize) % DTYPES.len()];
        let seed_of_case = random.number();
        let several = match sizes {
            Sizes::Small => NormCase::plain(dtype, SEVERAL_KERNELS, seed_of_case),
            Sizes::Large => NormCase::plain(Dtype::F32, SEVERAL_KERNELS_LARGE, seed_of_case),
        };
        cases.push((world, Case::Norm(several)));
        for shape in SHAPES.into_iter().chain([SEVERAL_KERNELS]) {
            cases.push((world, sharded(&mut random, shape)));
        }
        cases.push((world, refusal(dtype, seed)));
    }
    cases.sort_by_key(|(world, _)| *world);
    cases
}

/// Returns every type, shape, norm, output and residual of one world, those that take several kernels included, several times
/// with the other parameters at random; as many times every shape with a residual that is divided; and the refusals of every type.
pub fn full(seed: u64) -> impl Iterator<Item = Case> {
    let mut random = Random(seed);
    let cases = (0..PRODUCT).map(move |number| {
        let mut row: Vec<usize> = SIZES.iter().map(|&size| random.below(size)).collect();
        let mut rest = number;
        let mut digit = |base: usize| {
            let value = rest % base;
            rest /= base;
            value
        };
        row[0] = digit(DTYPES.len());
        row[2] = digit(NormName::ALL.len());
        row[3] = digit(NormOutput::ALL.len());
        row[4] = digit(ResidualUse::ALL.len());
        let shape = match digit(ALL_SHAPES) {
            shape if shape < SHAPES.len() => SHAPES[shape],
            shape if shape == SHAPES.len() => SEVERAL_KERNELS,
            _ => SEVERAL_KERNELS_LARGE,
        };
        case(&row, shape, random.number())
    });
    let mut others = Random(seed.wrapping_add(1));
    let divided =
        (0..DIVIDED).map(move |number| sharded(&mut others, SHAPES[number % SHAPES.len()]));
    DTYPES
        .into_iter()
        .map(move |dtype| refusal(dtype, seed))
        .chain(cases)
        .chain(divided)
}

/// Returns the number of cases in [`full`].
pub fn full_count() -> usize {
    DTYPES.len() + PRODUCT + DIVIDED
}

const ALL_SHAPES: usize = SHAPES.len() + 2;
/// Cases of each type, shape, norm, output and residual.
const TIMES: usize = 4;
/// Cases with a residual that is divided.
const DIVIDED: usize = SHAPES.len() * 12 * TIMES;
const PRODUCT: usize = DTYPES.len()
    * NormName::ALL.len()
    * NormOutput::ALL.len()
    * ResidualUse::ALL.len()
    * ALL_SHAPES
    * TIMES;

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;
    use std::hash::Hash;

    fn norms(cases: &[(usize, Case)]) -> Vec<(usize, &NormCase)> {
        let norms = cases.iter().filter_map(|(world, case)| match case {
            Case::Norm(case) => Some((*world, case)),
            _ => None,
        });
        norms.collect()
    }

    #[test]
    fn the_sample_has_every_two_values_of_every_two_parameters() {
        let sample = sample(4, Sizes::Small, 5);
        let norms = norms(&sample);
        fn count<T: Hash + Eq>(
            norms: &[(usize, &NormCase)],
            of: impl Fn(&(usize, &NormCase)) -> T,
        ) -> usize {
            norms.iter().map(of).collect::<HashSet<_>>().len()
        }
        let of = |key: fn(&NormCase) -> String| count(&norms, |(_, case)| key(case));
        assert_eq!(
            of(|case| format!("{:?}{:?}", case.norm, case.output)),
            3 * 4
        );
        assert_eq!(
            of(|case| format!("{:?}{:?}", case.dtype, case.output)),
            3 * 4
        );
        assert_eq!(
            of(|case| format!("{:?}{}", case.residual, case.captured)),
            3 * 2
        );
        assert_eq!(of(|case| format!("{}/{}", case.own, case.offset)), 2 * 3);
        // Of the outputs, only the rows' type can be in place.
        assert_eq!(of(|case| format!("{:?}{}", case.output, case.in_place)), 5);
        assert_eq!(
            count(&norms, |(world, case)| (*world, case.output)),
            4 * NormOutput::ALL.len()
        );
        for (index, shape) in [(0, SHAPES[0]), (3, SEVERAL_KERNELS)] {
            assert!(
                norms
                    .iter()
                    .any(|(world, case)| *world == index && (case.rows, case.hidden) == shape)
            );
        }
        for world in 0..4 {
            let sharded = norms
                .iter()
                .filter(|(at, case)| *at == world && case.sharded);
            assert_eq!(sharded.count(), SHAPES.len() + 1);
        }
        assert!(norms.len() < 4 * 35, "{} cases", norms.len());
    }

    #[test]
    fn groups_are_whole_and_refusals_of_every_type_are_in_all_cases() {
        let all: Vec<Case> = full(3).collect();
        assert_eq!(all.len(), full_count());
        let mut refused = HashSet::new();
        for case in &all {
            match case {
                Case::Norm(case) if case.output == NormOutput::Groups => {
                    assert!(case.hidden.is_multiple_of(NormOutput::GROUP), "{case}");
                }
                Case::NormRefusal(case) => {
                    refused.insert(case.dtype);
                }
                _ => {}
            }
        }
        assert_eq!(refused.len(), DTYPES.len());
        let unlike: HashSet<String> = all.iter().map(|case| format!("{case:?}")).collect();
        assert_eq!(unlike.len(), all.len());
    }
}
