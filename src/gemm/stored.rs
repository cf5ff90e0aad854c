//! Stored tuning rows of all-gather + GEMM.
//!
//! A row applies to one device, world size and shape. It sets algorithm and transport if the caller leaves both
//! open. It also sets the heuristic candidate of each GEMM, even if the caller chose the algorithm. A candidate
//! is an index into the library's heuristic results, so it is valid only for the library version it was found
//! with, and for the same request revision.

use crate::backend::abi::{GEMM_REQUEST_REVISION, LibraryDescription, RawGemm};
use crate::backend::{Gemm, read_text};
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_row::GemmRow;
use crate::base::gemm_shape::GemmShape;
use crate::base::names::ElementType;
use crate::gemm::options::GemmOptions;
use crate::gemm::selector::Refusal;
use crate::rank::driver::Driver;

fn fits(row: &GemmRow, driver: &Driver, shape: &GemmShape, element: ElementType) -> bool {
    // Compares effective strides: `None` equals a stride without gaps.
    let raw = |shape: &GemmShape| shape.raw(element, shape.m as u64, shape.k as u64);
    (row.world, row.element, row.shape.sharding) == (driver.world, element, shape.sharding)
        && raw(&row.shape) == raw(shape)
        && row.device == read_text(&driver.description.name)
}

/// Returns the first row that matches a shape.
pub(super) fn find<'a>(
    rows: &'a [GemmRow],
    shared: &Driver,
    shape: &GemmShape,
    element: ElementType,
) -> Option<&'a GemmRow> {
    rows.iter().find(|row| fits(row, shared, shape, element))
}

/// Applies a stored tuning row if the caller left the choice open. If this device cannot run what the row
/// names, logs a warning and falls back to the selector.
pub(super) fn choose_by(
    row: Option<&GemmRow>,
    rank: usize,
    options: &GemmOptions,
    choose: impl Fn(&GemmOptions) -> Result<(GemmAlgorithm, GemmTransport), Refusal>,
) -> Result<(GemmAlgorithm, GemmTransport), Refusal> {
    let asked = (options.algorithm, options.transport);
    let automatic = asked == (GemmAlgorithm::Automatic, GemmTransport::Automatic);
    let by_row = row.filter(|_| automatic).and_then(|row| {
        let chosen = choose(&GemmOptions {
            algorithm: row.algorithm,
            transport: row.transport,
            ..*options
        });
        if let Err(Refusal::Invalid(reason) | Refusal::Unsupported(reason)) = &chosen {
            tracing::warn!(
                rank,
                algorithm = ?row.algorithm,
                transport = ?row.transport,
                reason,
                "this device cannot run a stored tuning row: the selector chooses instead; tune again"
            );
        }
        chosen.ok()
    });
    by_row.map_or_else(|| choose(options), Ok)
}

/// Returns the library's name and version, and symmem's request revision, as rows store them.
pub(crate) fn library_text(library: &LibraryDescription) -> String {
    let name = read_text(&library.name);
    format!(
        "{name} {}, request {GEMM_REQUEST_REVISION}",
        library.version
    )
}

/// The stored heuristic candidates that are valid here.
pub(super) struct StoredCandidates<'a>(&'a [(u64, u32)]);

impl<'a> StoredCandidates<'a> {
    /// Returns a row's candidates if they belong to this library. If they do not, logs a warning and returns
    /// none.
    pub(super) fn of(row: Option<&'a GemmRow>, rank: usize, library: Option<&str>) -> Self {
        let Some(row) = row.filter(|row| !row.candidates.is_empty()) else {
            return Self(&[]);
        };
        let here = library.unwrap_or("none");
        if row.library == here {
            return Self(&row.candidates);
        }
        tracing::warn!(
            rank,
            stored_for = row.library,
            here,
            "the stored GEMM candidates belong to another library, version or request revision: GEMMs are timed \
             instead; tune again"
        );
        Self(&[])
    }

    /// Returns the candidate of a GEMM of `rows` rows, if the library still offers it; otherwise logs a
    /// warning.
    pub(super) fn candidate(&self, shared: &Driver, rows: u64, product: RawGemm) -> Option<u32> {
        let &(_, candidate) = self.0.iter().find(|(known, _)| *known == rows)?;
        let rank = shared.rank;
        // SAFETY: prepared just now.
        let offered = match unsafe { shared.backend.gemm_candidates(product) } {
            Ok(offered) if candidate < offered => return Some(candidate),
            Ok(offered) => offered,
            Err(failure) => {
                tracing::warn!(
                    rank,
                    rows,
                    candidate,
                    %failure,
                    "gemm_candidates failed, so the stored GEMM candidate cannot be checked: the GEMM is timed \
                     instead; tune again"
                );
                return None;
            }
        };
        tracing::warn!(
            rank,
            rows,
            candidate,
            offered,
            "the library no longer has the stored GEMM candidate: the GEMM is timed instead; tune again"
        );
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::GatheredLimits;
    use crate::gemm::selector::{DeviceSupport, choose};

    fn row(algorithm: GemmAlgorithm, transport: GemmTransport) -> GemmRow {
        GemmRow {
            device: "Example".into(),
            world: 2,
            shape: GemmShape::new(64, 8, 16),
            element: ElementType::F16,
            algorithm,
            transport,
            library: "blas 7".into(),
            candidates: vec![(64, 2), (32, 1)],
        }
    }

    #[test]
    fn a_row_decides_what_is_left_to_us_and_only_what_can_be_done() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let support = DeviceSupport {
            limits: GatheredLimits::default(),
            library: true,
            shards: true,
            collectives: false,
            fanout: 1,
        };
        let chosen = |row: &GemmRow, options: GemmOptions| {
            let by = |options: &GemmOptions| choose(&row.shape, options, 2, 1 << 10, &support);
            choose_by(Some(row), 0, &options, by)
        };
        let automatic = GemmOptions::default();
        let pipeline = row(A::Pipeline, T::Get);
        assert_eq!(chosen(&pipeline, automatic), Ok((A::Pipeline, T::Get)));
        let asked = GemmOptions {
            algorithm: A::Baseline,
            ..automatic
        };
        assert_eq!(chosen(&pipeline, asked), Ok((A::Baseline, T::Automatic)));
        let moved = GemmOptions {
            transport: T::Put,
            ..automatic
        };
        assert_eq!(chosen(&pipeline, moved), Ok((A::Pipeline, T::Put)));
        // Neither the kernel nor NCCL is available: the selector's rules apply.
        for other in [row(A::Push, T::Put), row(A::Baseline, T::Nccl)] {
            assert_eq!(chosen(&other, automatic), Ok((A::Baseline, T::Automatic)));
        }
    }

    #[test]
    fn ways_hold_for_the_library_that_they_were_found_with() {
        let row = row(GemmAlgorithm::Baseline, GemmTransport::Automatic);
        let candidates = |library| StoredCandidates::of(Some(&row), 0, library).0.len();
        assert_eq!(candidates(Some("blas 7")), 2);
        assert_eq!(candidates(Some("blas 8")), 0);
        assert_eq!(candidates(None), 0);
        assert_eq!(StoredCandidates::of(None, 0, Some("blas 7")).0.len(), 0);
    }

    #[test]
    fn a_row_without_a_way_to_do_it_is_none() {
        use {GemmAlgorithm as A, GemmTransport as T};
        assert_eq!(row(A::Push, T::Kernel).check(), Ok(()));
        assert!(row(A::Automatic, T::Automatic).check().is_err());
        let refused = row(A::Baseline, T::Put).check().unwrap_err();
        assert!(refused.contains("Baseline") && refused.contains("Put"));
        let empty = GemmRow {
            shape: GemmShape::new(0, 8, 16),
            ..row(A::Pull, T::Kernel)
        };
        assert!(empty.check().is_err());
    }
}
