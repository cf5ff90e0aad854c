//! All-gather + GEMM in the HTML page.

use super::Products;
use super::view::{plots, views};
use crate::report::html::{self, Escaped};
use crate::report::plot::{self, Axes};
use std::collections::BTreeMap;
use std::fmt::{self, Write};

/// Draws the section of all-gather + GEMM: baselines, plots over M, and every table.
pub(in crate::report) fn section(text: &mut String, measured: &Products) -> fmt::Result {
    let ranks = measured.world;
    writeln!(text, "<h2>All-gather + GEMM of {ranks} ranks</h2>")?;
    html::beside(text, &measured.baselines)?;
    let drawn = plots(measured);
    let curves = || drawn.iter().flat_map(|(_, curves)| curves.iter().cloned());
    if let Some(axes) = Axes::of_products(curves()) {
        let legend: BTreeMap<usize, &str> =
            curves().map(|(place, name, _)| (place, name)).collect();
        let legend = legend.into_iter();
        html::draw_legend(
            text,
            legend.map(|(place, name)| (plot::collective_class(place), name)),
        )?;
        text.push_str("<div class=\"plots\">\n");
        for (title, curves) in &drawn {
            let title = Escaped(title);
            let name = format!("TFLOP/s over rows, {title}");
            if let Some(svg) = plot::curves_svg(&name, &axes, curves.iter().cloned())? {
                writeln!(
                    text,
                    "<figure>\n<figcaption>{title}, <span>TFLOP/s over M</span></figcaption>\n{svg}\n</figure>"
                )?;
            }
        }
        text.push_str("</div>\n");
    }
    for view in views(measured) {
        html::section(text, &view, "h2")?;
    }
    Ok(())
}
