//! GEMM + reduce-scatter or GEMM + all-reduce in the HTML page.

use super::GemmReduceResults;
use super::view::views;
use crate::report::collectives;
use crate::report::html::{Document, table};
use std::fmt;

/// Writes the section: baselines, and every table.
pub(in crate::report) fn section(page: &mut Document, measured: &GemmReduceResults) -> fmt::Result {
    let (collective, world) = (measured.collective.label(), measured.world);
    let text = page.section(&format!("GEMM + {collective} of {world} ranks"))?;
    collectives::beside(text, &measured.baselines)?;
    for view in views(measured) {
        table(text, &view)?;
    }
    Ok(())
}
