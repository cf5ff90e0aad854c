//! All-gather + GEMM in the HTML page.

use super::plot::{over_rows, side_by_side};
use super::view::views;
use super::{AgGemmResults, OWN_GEMM};
use crate::report::collectives;
use crate::report::html::{Document, table};
use crate::report::plot::{self, Across, Axes, Limit};
use std::fmt::{self, Write};

/// Writes the section of all-gather + GEMM: baselines, plots, and every table.
///
/// `limit` is the peak rate of a device; `hopper` whether published figures are for devices of this kind.
pub(in crate::report) fn section(
    page: &mut Document,
    measured: &AgGemmResults,
    limit: Option<Limit>,
    hopper: bool,
) -> fmt::Result {
    let text = page.section(&format!("All-gather + GEMM of {} ranks", measured.world))?;
    collectives::beside(text, &measured.baselines)?;
    let plots = over_rows(measured);
    let lines = || plots.iter().flat_map(|plot| &plot.lines);
    if let Some(axes) = Axes::over(Across::Rows, "TFLOP/s", limit.clone(), lines()) {
        let text = page.part("TFLOP/s of a device over rows")?;
        plot::legend(text, lines())?;
        text.push_str("<div class=\"plots\">\n");
        for one in &plots {
            if let Some(svg) = axes.draw(&format!("{}: TFLOP/s", one.title), &one.lines)? {
                plot::figure(text, &one.title, "TFLOP/s over M", &svg)?;
            }
        }
        text.push_str("</div>\n");
    }
    let bars = side_by_side(measured, limit.as_ref());
    if !bars.is_empty() {
        let text = page.part("TFLOP/s per device by shape")?;
        text.push_str("<div class=\"plots\">\n");
        for (title, bars) in bars {
            if let Some(svg) = bars.draw(&format!("{title}: TFLOP/s"))? {
                plot::figure(text, &title, "median, line: min–max", &svg)?;
            }
        }
        text.push_str("</div>\n");
    }
    let text = page.part("Tables of all-gather + GEMM")?;
    let own = (measured.products.iter()).any(|one| one.ns(OWN_GEMM).is_some());
    writeln!(
        text,
        "<p class=\"caption\">gemm: the GEMM alone, of an A that is already gathered{}. The other contenders gather A \
         too.</p>",
        if own {
            "; own gemm: the same by symmem's kernel"
        } else {
            ""
        }
    )?;
    for view in views(measured, hopper) {
        table(text, &view)?;
    }
    Ok(())
}
