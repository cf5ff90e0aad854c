//! The selector of GEMM + reduce-scatter and GEMM + all-reduce: chooses what the caller leaves open.
//!
//! Rules, not rows, from measurements on two and four GPUs behind a switch (`2026-11-27-gemm-reduce-2xh200`, `-4xh100`). A GEMM of a block must fill
//! the device, or cutting the rows costs more than the travel under other GEMMs saves; below that, one GEMM and a collective
//! are fastest. Where Hopper's kernels multiply and reduce, these are faster than either for few and for many rows. Other devices,
//! AMD's among them, were not measured: the same rules for them are a guess.

use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::{GemmReduceAlgorithm, Reduction};
use crate::base::gemm_reduce_shape::GemmReduceShape;
use crate::gemm::selector::Refusal;
use crate::gemm_reduce::fused::FusedKernels;
use crate::gemm_reduce::options::{GemmPartials, GemmReduceOptions};

/// Elements of a block's sum from which on its GEMM fills a device: a tile of 128 x 256 for each of 128 multiprocessors.
const FULL_BLOCK: usize = 128 * 256 * 128;
/// Chunks of a rank's rows: the sum of one travels while the next is multiplied.
const CHUNKS: usize = 2;
/// Most chunks in a GEMM + all-reduce: the last one's way to all ranks is not hidden, so more of them pay, as long as each
/// fills the device twice.
const MOST_CHUNKS: usize = 4;

/// Rows of the sum up to which one kernel with packets is chosen, if there is one: at 128 rows a GEMM and a collective take as
/// long (`2026-11-27-fused-gemm-rs-2xh200`, `-gemm-ar-2xh200`).
const FEW_ROWS: usize = 64;
/// Rounds of tiles, in tenths, from which on one kernel that pushes tiles is chosen, if there is one: those of one round travel
/// under the next. On H200, with 132 tiles in a round, it was the fastest way from 1024 × 8192 on, 256 tiles, for each K from
/// 1024 to 14336; at 512 × 8192 a GEMM and a collective are 5 to 7 % faster (same results). No other device was measured.
const MANY_ROUNDS: u128 = 19;

/// What is chosen: never automatic.
pub(super) type Chosen = (GemmReduceAlgorithm, GemmTransport, usize);

/// Returns the fused kernel that is chosen for a shape if the caller leaves the algorithm open; `None` for other algorithms. All
/// ranks have the same kernels, so they choose alike.
fn automatic_kernel(
    shape: &GemmReduceShape,
    kernels: &FusedKernels,
) -> Option<GemmReduceAlgorithm> {
    if shape.m <= FEW_ROWS && kernels.packets.is_ok() {
        return Some(GemmReduceAlgorithm::Packets);
    }
    let limits = kernels.push.as_ref().ok()?;
    let round = [limits.blocks, limits.tile_m, limits.tile_n];
    let round: u128 = round.into_iter().map(u128::from).product();
    let many = 10 * shape.m as u128 * shape.n as u128 >= MANY_ROUNDS * round;
    many.then_some(GemmReduceAlgorithm::Push)
}

/// Returns the fused kernel for a shape whose parts are sent in f32, which only fused kernels can do.
fn kernel_for_f32(shape: &GemmReduceShape, kernels: &FusedKernels) -> GemmReduceAlgorithm {
    automatic_kernel(shape, kernels).unwrap_or(GemmReduceAlgorithm::Push)
}

/// Returns algorithm, transport and the number of chunks. A pipeline's sums are sent by copy engines: GEMMs that store to the
/// next rank were slower at all shapes.
///
/// # Errors
/// Options that do not fit together, and a named algorithm that needs a kernel which not all ranks have.
pub(super) fn choose(
    shape: &GemmReduceShape,
    options: &GemmReduceOptions,
    (reduction, world): (Reduction, usize),
    kernels: &FusedKernels,
) -> Result<Chosen, Refusal> {
    use {GemmReduceAlgorithm as A, GemmTransport as T};
    let invalid = |message: String| Err(Refusal::Invalid(message));
    let rows = shape.rows_of_a_rank(world);
    let block = |chunks: usize| rows.div_ceil(chunks) * shape.n;
    let full = (block(1) / FULL_BLOCK).max(1);
    let chunks = options.chunks.unwrap_or(match reduction {
        Reduction::Scatter => full.min(CHUNKS),
        Reduction::All | Reduction::Norm => (full / 2).clamp(full.min(CHUNKS), MOST_CHUNKS),
    });
    let chunks = chunks.clamp(1, rows);
    let in_f32 = options.partials == GemmPartials::F32;
    let algorithm = match options.algorithm {
        A::Pipeline | A::Push | A::Packets if reduction == Reduction::Norm => {
            return invalid(format!(
                "a GEMM + all-reduce with a norm has no {:?}; use `Automatic` or `Baseline`",
                options.algorithm
            ));
        }
        A::Automatic if reduction == Reduction::Norm => A::Baseline,
        A::Automatic if options.transport != T::Automatic => A::Pipeline,
        A::Automatic if in_f32 => kernel_for_f32(shape, kernels),
        A::Automatic => match automatic_kernel(shape, kernels) {
            // Chunks are a pipeline's.
            Some(kernel) if world > 1 && options.chunks.is_none() => kernel,
            _ if world > 1 && full >= CHUNKS => A::Pipeline,
            _ => A::Baseline,
        },
        algorithm => algorithm,
    };
    if in_f32 && !algorithm.is_fused() {
        return invalid(format!(
            "{algorithm:?} sends no parts in f32; leave `partials` out, or use `Push` or `Packets`"
        ));
    }
    let kernel = match algorithm {
        A::Push => kernels.push.as_ref().err(),
        A::Packets => kernels.packets.as_ref().err(),
        _ => None,
    };
    if let Some(reason) = kernel.filter(|_| world > 1) {
        return Err(Refusal::Unsupported(format!(
            "{algorithm:?} is not available: {reason}; use `Pipeline` or `Baseline`"
        )));
    }
    let transport = match (algorithm, options.transport) {
        (A::Pipeline, T::Automatic) => T::Put,
        (A::Pipeline, T::Put | T::Kernel) | (_, T::Automatic) => options.transport,
        (A::Pipeline, transport) => {
            return invalid(format!(
                "a pipeline has no transport {transport:?}; use `Automatic`, `Put` or `Kernel`"
            ));
        }
        (_, transport) => {
            return invalid(format!(
                "only a pipeline has a transport, not {algorithm:?}; leave {transport:?} out"
            ));
        }
    };
    let chunks = if algorithm.is_fused() { 1 } else { chunks };
    Ok((algorithm, transport, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::ReducedLimits;
    use {GemmReduceAlgorithm as A, GemmTransport as T};

    const SCATTER: Reduction = Reduction::Scatter;

    /// An H200 with both kernels, or none.
    fn kernels(present: bool) -> FusedKernels {
        let limits = || match present {
            true => Ok(ReducedLimits {
                blocks: 132,
                tile_m: 128,
                tile_n: 256,
                ..ReducedLimits::default()
            }),
            false => Err("no such kernel".into()),
        };
        FusedKernels {
            push: limits(),
            packets: limits(),
        }
    }

    fn chosen(m: usize, reduction: Reduction, world: usize, present: bool) -> Chosen {
        let (shape, options) = (
            GemmReduceShape::new(m, 8192, 4096),
            GemmReduceOptions::default(),
        );
        choose(&shape, &options, (reduction, world), &kernels(present)).unwrap()
    }

    #[test]
    fn few_rows_are_multiplied_at_once_and_many_in_blocks() {
        let of = |m, reduction, world| chosen(m, reduction, world, false);
        assert_eq!(of(1024, SCATTER, 2), (A::Baseline, T::Automatic, 1));
        assert_eq!(of(2048, SCATTER, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(of(8192, SCATTER, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(of(2048, Reduction::All, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(of(8192, Reduction::All, 2), (A::Pipeline, T::Put, 4));
        assert_eq!(of(8192, Reduction::All, 4), (A::Pipeline, T::Put, 2));
    }

    #[test]
    fn many_rows_are_pushed_by_one_kernel_if_all_ranks_have_it() {
        for reduction in [SCATTER, Reduction::All] {
            let of = |m, world| chosen(m, reduction, world, true);
            for world in [2, 4, 8] {
                assert_eq!(of(512, world), (A::Baseline, T::Automatic, 1));
                assert_eq!(of(1024, world), (A::Push, T::Automatic, 1));
                assert_eq!(of(8192, world), (A::Push, T::Automatic, 1));
            }
            let shape = GemmReduceShape::new(8192, 8192, 4096);
            let options = GemmReduceOptions {
                chunks: Some(3),
                ..GemmReduceOptions::default()
            };
            let in_chunks = choose(&shape, &options, (reduction, 2), &kernels(true));
            assert_eq!(
                in_chunks,
                Ok((A::Pipeline, T::Put, 3)),
                "chunks are a pipeline's"
            );
        }
    }

    #[test]
    fn one_rank_and_a_norm_have_one_gemm() {
        for present in [false, true] {
            for m in [64, 8192] {
                assert_eq!(chosen(m, SCATTER, 1, present).0, A::Baseline);
                assert_eq!(chosen(m, Reduction::All, 1, present).0, A::Baseline);
                assert_eq!(chosen(m, Reduction::Norm, 4, present).0, A::Baseline);
            }
        }
    }

    #[test]
    fn very_few_rows_are_multiplied_and_added_up_by_one_kernel_if_all_ranks_have_it() {
        for reduction in [SCATTER, Reduction::All] {
            let of = |m, present| chosen(m, reduction, 4, present);
            assert_eq!(of(64, true), (A::Packets, T::Automatic, 1));
            assert_eq!(of(64, false), (A::Baseline, T::Automatic, 1));
            assert_eq!(of(68, true), (A::Baseline, T::Automatic, 1));
        }
    }

    fn with(
        algorithm: GemmReduceAlgorithm,
        partials: GemmPartials,
        (reduction, m): (Reduction, usize),
        present: bool,
    ) -> Result<GemmReduceAlgorithm, Refusal> {
        let options = GemmReduceOptions {
            algorithm,
            partials,
            ..GemmReduceOptions::default()
        };
        let shape = GemmReduceShape::new(m, 8, 8);
        let chosen = choose(&shape, &options, (reduction, 2), &kernels(present));
        chosen.map(|(algorithm, ..)| algorithm)
    }

    #[test]
    fn a_named_kernel_that_not_all_ranks_have_is_refused_with_the_reason() {
        for algorithm in [A::Push, A::Packets] {
            let named = |present| with(algorithm, GemmPartials::Element, (SCATTER, 8), present);
            assert_eq!(named(true), Ok(algorithm));
            let Err(Refusal::Unsupported(reason)) = named(false) else {
                panic!("{:?}", named(false));
            };
            assert!(reason.contains("no such kernel") && reason.contains("use `Pipeline`"));
            let norm = with(algorithm, GemmPartials::Element, (Reduction::Norm, 8), true);
            assert!(matches!(norm, Err(Refusal::Invalid(_))), "{norm:?}");
        }
    }

    #[test]
    fn only_kernels_send_parts_in_f32() {
        let named = |algorithm, m| with(algorithm, GemmPartials::F32, (SCATTER, m), true);
        assert_eq!(named(A::Automatic, 8), Ok(A::Packets));
        assert_eq!(named(A::Automatic, 800), Ok(A::Push));
        assert_eq!(named(A::Push, 8), Ok(A::Push));
        for algorithm in [A::Baseline, A::Pipeline] {
            assert!(matches!(named(algorithm, 8), Err(Refusal::Invalid(_))));
        }
        let absent = with(A::Automatic, GemmPartials::F32, (SCATTER, 8), false);
        assert!(matches!(absent, Err(Refusal::Unsupported(_))), "{absent:?}");
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        let shape = GemmReduceShape::new(8, 8, 8);
        for (algorithm, transport) in [
            (A::Baseline, T::Put),
            (A::Pipeline, T::Nccl),
            (A::Push, T::Put),
            (A::Packets, T::Kernel),
        ] {
            let options = GemmReduceOptions {
                algorithm,
                transport,
                ..GemmReduceOptions::default()
            };
            let chosen = choose(&shape, &options, (Reduction::All, 2), &kernels(true));
            assert!(matches!(chosen, Err(Refusal::Invalid(_))), "{chosen:?}");
        }
        let options = GemmReduceOptions {
            transport: T::Kernel,
            chunks: Some(99),
            ..GemmReduceOptions::default()
        };
        let chosen = choose(&shape, &options, (SCATTER, 2), &kernels(true)).unwrap();
        assert_eq!(chosen, (A::Pipeline, T::Kernel, 4));
    }
}
