//! Products that were measured before: how each is done best, and in which of the library's ways.
//!
//! A row holds for one device, world and product. It decides where the caller leaves to us both the algorithm and
//! what moves shards, and
//! names the way of each of the library's products whoever chose the algorithm: a way is a place in the list
//! that the library gives, so it holds only for the library's version that it was found with, and for what we ask
//! of it.

use crate::backend::abi::{MATRIX_REQUEST, RawGemm, VendorDescription};
use crate::backend::{Gemm, read_text};
use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_row::GemmRow;
use crate::base::gemm_shape::GemmShape;
use crate::base::names::ElementType;
use crate::gemm::options::GemmOptions;
use crate::gemm::selector::Refusal;
use crate::rank::driver::Driver;

fn fits(row: &GemmRow, driver: &Driver, shape: &GemmShape, element: ElementType) -> bool {
    // With strides as they are, said or not.
    let raw = |shape: &GemmShape| shape.raw(element, shape.m as u64, shape.k as u64);
    (row.world, row.element, row.shape.sharding) == (driver.world, element, shape.sharding)
        && raw(&row.shape) == raw(shape)
        && row.device == read_text(&driver.description.name)
}

/// The first row that fits a product.
pub(super) fn find<'a>(
    rows: &'a [GemmRow],
    shared: &Driver,
    shape: &GemmShape,
    element: ElementType,
) -> Option<&'a GemmRow> {
    rows.iter().find(|row| fits(row, shared, shape, element))
}

/// What `choose` makes of the options, by the row where the caller leaves all to us and what it says can be done
/// here: else that is told.
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
                "what is stored for a product cannot be done here: the selector chooses; tune again"
            );
        }
        chosen.ok()
    });
    by_row.map_or_else(|| choose(options), Ok)
}

/// The library's name and version, and the revision of what we ask of it, as rows have them.
pub(super) fn library_text(library: &VendorDescription) -> String {
    let name = read_text(&library.name);
    format!("{name} {}, request {MATRIX_REQUEST}", library.version)
}

/// The ways that hold here.
pub(super) struct Ways<'a>(&'a [(u64, u32)]);

impl<'a> Ways<'a> {
    /// Those of a row, if they are of this library: else none, which is told.
    pub(super) fn of(row: Option<&'a GemmRow>, rank: usize, library: Option<&str>) -> Self {
        let Some(row) = row.filter(|row| !row.ways.is_empty()) else {
            return Self(&[]);
        };
        let here = library.unwrap_or("none");
        if row.library == here {
            return Self(&row.ways);
        }
        tracing::warn!(
            rank,
            stored_for = row.library,
            here,
            "stored ways of products are of another library, of another version or of another request: products are \
             timed; tune again"
        );
        Self(&[])
    }

    /// The way of a product of so many rows, if the library still offers it.
    pub(super) fn way(&self, shared: &Driver, rows: u64, product: RawGemm) -> Option<u32> {
        let &(_, way) = self.0.iter().find(|(known, _)| *known == rows)?;
        let rank = shared.rank;
        // SAFETY: prepared just now.
        let offered = match unsafe { shared.backend.gemm_candidates(product) } {
            Ok(offered) if way < offered => return Some(way),
            Ok(offered) => offered,
            Err(failure) => {
                tracing::warn!(
                    rank,
                    rows,
                    way,
                    %failure,
                    "gemm_candidates failed, so whether there is the stored way of a product is not known: it is \
                     timed; tune again"
                );
                return None;
            }
        };
        tracing::warn!(
            rank,
            rows,
            way,
            offered,
            "the library has no such way of a product any more: it is timed; tune again"
        );
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::GatheredLimits;
    use crate::gemm::selector::{Offer, choose};

    fn row(algorithm: GemmAlgorithm, transport: GemmTransport) -> GemmRow {
        GemmRow {
            device: "Example".into(),
            world: 2,
            shape: GemmShape::new(64, 8, 16),
            element: ElementType::F16,
            algorithm,
            transport,
            library: "blas 7".into(),
            ways: vec![(64, 2), (32, 1)],
        }
    }

    #[test]
    fn a_row_decides_what_is_left_to_us_and_only_what_can_be_done() {
        use {GemmAlgorithm as A, GemmTransport as T};
        let offer = Offer {
            limits: GatheredLimits::default(),
            library: true,
            collectives: false,
            fanout: 1,
        };
        let chosen = |row: &GemmRow, options: GemmOptions| {
            let by = |options: &GemmOptions| choose(&row.shape, options, 2, 1 << 10, &offer);
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
        // There is no such kernel, nor such a library: the rules hold.
        for other in [row(A::Push, T::Put), row(A::Baseline, T::Vendor)] {
            assert_eq!(chosen(&other, automatic), Ok((A::Baseline, T::Automatic)));
        }
    }

    #[test]
    fn ways_hold_for_the_library_that_they_were_found_with() {
        let row = row(GemmAlgorithm::Baseline, GemmTransport::Automatic);
        let ways = |library| Ways::of(Some(&row), 0, library).0.len();
        assert_eq!(ways(Some("blas 7")), 2);
        assert_eq!(ways(Some("blas 8")), 0);
        assert_eq!(ways(None), 0);
        assert_eq!(Ways::of(None, 0, Some("blas 7")).0.len(), 0);
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
