//! The selector of GEMM + reduce-scatter and GEMM + all-reduce: chooses what the caller leaves open.
//!
//! Rules, not rows, from measurements on two and four GPUs behind a switch (`2026-11-27-gemm-reduce-2xh200`, `-4xh100`). A GEMM of a block must fill
//! the device, or cutting the rows costs more than the travel under other GEMMs saves; below that, one GEMM and a collective
//! are fastest. Other devices were not measured.

use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::GemmReduceAlgorithm;
use crate::base::gemm_reduce_names::Reduction;
use crate::base::gemm_reduce_shape::GemmReduceShape;
use crate::gemm_reduce::options::GemmReduceOptions;

/// Elements of a block's sum from which on its GEMM fills a device: a tile of 128 x 256 for each of 128 multiprocessors.
const FULL_BLOCK: usize = 128 * 256 * 128;
/// Chunks of a rank's rows: the sum of one travels while the next is multiplied.
const CHUNKS: usize = 2;
/// Most chunks in a GEMM + all-reduce: the last one's way to all ranks is not hidden, so more of them pay, as long as each
/// fills the device twice.
const MOST_CHUNKS: usize = 4;

/// What is chosen: never automatic.
pub(super) type Chosen = (GemmReduceAlgorithm, GemmTransport, usize);

/// Returns algorithm, transport and the number of chunks. A pipeline's sums are sent by copy engines: GEMMs that store to the
/// next rank were slower at all shapes.
///
/// # Errors
/// Options that do not fit together, as text.
pub(super) fn choose(
    shape: &GemmReduceShape,
    options: &GemmReduceOptions,
    (reduction, world): (Reduction, usize),
) -> Result<Chosen, String> {
    use {GemmReduceAlgorithm as A, GemmTransport as T};
    let rows = shape.rows_of_a_rank(world);
    let block = |chunks: usize| rows.div_ceil(chunks) * shape.n;
    let full = (block(1) / FULL_BLOCK).max(1);
    let chunks = options.chunks.unwrap_or(match reduction {
        Reduction::Scatter => full.min(CHUNKS),
        Reduction::All | Reduction::Norm => (full / 2).clamp(full.min(CHUNKS), MOST_CHUNKS),
    });
    let chunks = chunks.clamp(1, rows);
    let algorithm = match options.algorithm {
        A::Pipeline if reduction == Reduction::Norm => {
            return Err("a GEMM + all-reduce with a norm has no pipeline; leave it out".into());
        }
        A::Automatic if reduction == Reduction::Norm => A::Baseline,
        A::Automatic if options.transport != T::Automatic => A::Pipeline,
        A::Automatic if world > 1 && full >= CHUNKS => A::Pipeline,
        A::Automatic => A::Baseline,
        algorithm => algorithm,
    };
    let transport = match (algorithm, options.transport) {
        (A::Pipeline, T::Automatic) => T::Put,
        (A::Pipeline, T::Put | T::Kernel) | (_, T::Automatic) => options.transport,
        (A::Pipeline, transport) => {
            return Err(format!(
                "a pipeline has no transport {transport:?}; use `Automatic`, `Put` or `Kernel`"
            ));
        }
        (_, transport) => {
            return Err(format!(
                "only a pipeline has a transport, not {algorithm:?}; leave {transport:?} out"
            ));
        }
    };
    Ok((algorithm, transport, chunks))
}

#[cfg(test)]
mod tests {
    use super::*;
    use {GemmReduceAlgorithm as A, GemmTransport as T};

    fn chosen(m: usize, reduction: Reduction, world: usize) -> Chosen {
        let shape = GemmReduceShape::new(m, 8192, 4096);
        choose(&shape, &GemmReduceOptions::default(), (reduction, world)).unwrap()
    }

    #[test]
    fn few_rows_are_multiplied_at_once_and_many_in_blocks() {
        let scatter = Reduction::Scatter;
        assert_eq!(chosen(1024, scatter, 2), (A::Baseline, T::Automatic, 1));
        assert_eq!(chosen(2048, scatter, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(chosen(8192, scatter, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(chosen(2048, Reduction::All, 2), (A::Pipeline, T::Put, 2));
        assert_eq!(chosen(8192, Reduction::All, 2), (A::Pipeline, T::Put, 4));
        assert_eq!(chosen(8192, Reduction::All, 4), (A::Pipeline, T::Put, 2));
        assert_eq!(
            chosen(64, Reduction::All, 4),
            (A::Baseline, T::Automatic, 1)
        );
        assert_eq!(chosen(8192, scatter, 1).0, A::Baseline);
    }

    #[test]
    fn options_that_do_not_fit_together_are_refused() {
        let shape = GemmReduceShape::new(8, 8, 8);
        for (algorithm, transport) in [(A::Baseline, T::Put), (A::Pipeline, T::Nccl)] {
            let options = GemmReduceOptions {
                algorithm,
                transport,
                ..GemmReduceOptions::default()
            };
            assert!(choose(&shape, &options, (Reduction::All, 2)).is_err());
        }
        let options = GemmReduceOptions {
            transport: T::Kernel,
            chunks: Some(99),
            ..GemmReduceOptions::default()
        };
        let chosen = choose(&shape, &options, (Reduction::Scatter, 2)).unwrap();
        assert_eq!(chosen, (A::Pipeline, T::Kernel, 4));
    }
}
