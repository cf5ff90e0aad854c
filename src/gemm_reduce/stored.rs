//! Stored tuning rows of GEMM + reduce-scatter and GEMM + all-reduce. A row applies to one device, world size, reduction and
//! shape, if the caller leaves algorithm and transport open.

use crate::backend::read_text;
use crate::base::gemm_names::GemmTransport;
use crate::base::gemm_reduce_names::{GemmReduceAlgorithm, Reduction};
use crate::base::gemm_reduce_row::GemmReduceRow;
use crate::base::gemm_reduce_shape::GemmReduceShape;
use crate::base::names::ElementType;
use crate::gemm::selector::Refusal;
use crate::gemm_reduce::options::{GemmPartials, GemmReduceOptions};
use crate::gemm_reduce::selector::Chosen;
use crate::rank::driver::Driver;

/// Returns the options as the first row that matches completes them; as they are if none does, or if the caller chose.
pub(super) fn complete(
    rows: &[GemmReduceRow],
    driver: &Driver,
    (shape, element, reduction): (&GemmReduceShape, ElementType, Reduction),
    options: &GemmReduceOptions,
) -> GemmReduceOptions {
    let asked = (options.algorithm, options.transport);
    if asked != (GemmReduceAlgorithm::Automatic, GemmTransport::Automatic) {
        return *options;
    }
    // Compares effective strides: `None` equals a stride without gaps.
    let raw = |shape: &GemmReduceShape| shape.layout(element, shape.m as u64, (shape.bias, false));
    let can = |row: &GemmReduceRow| match options.partials {
        GemmPartials::Element => true,
        GemmPartials::F32 => row.algorithm.is_fused(),
    };
    let fits = |row: &&GemmReduceRow| {
        can(row)
            && (row.world, row.element, row.reduction) == (driver.world, element, reduction)
            && raw(&row.shape) == raw(shape)
            && row.device == read_text(&driver.description.name)
    };
    rows.iter()
        .find(fits)
        .map_or(*options, |row| GemmReduceOptions {
            algorithm: row.algorithm,
            transport: row.transport,
            streams: row.streams,
            chunks: options.chunks.or(Some(row.chunks)),
            ..*options
        })
}

/// Chooses with the completed options. If these name what this device cannot run, logs a warning and chooses with the options that
/// the caller `asked` for.
pub(super) fn choose_by(
    (options, asked): (&GemmReduceOptions, &GemmReduceOptions),
    rank: usize,
    choose: impl Fn(&GemmReduceOptions) -> Result<Chosen, Refusal>,
) -> Result<Chosen, Refusal> {
    let chosen = choose(options);
    match &chosen {
        Err(Refusal::Invalid(reason) | Refusal::Unsupported(reason)) if options != asked => {
            tracing::warn!(
                rank,
                algorithm = ?options.algorithm,
                reason,
                "this device cannot run a stored tuning row: the selector chooses instead; tune again"
            );
            choose(asked)
        }
        _ => chosen,
    }
}
