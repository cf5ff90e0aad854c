//! Collectives in the HTML page: baselines, then plots and tables of each operation.

use super::plot::lines;
use super::view::{barrier, baselines, how, means, views_of};
use super::{BaselineState, CollectiveResults, Placement};
use crate::report::html::{Document, Escaped, table};
use crate::report::plot::{self, Across, Axes, Limit, Line};
use std::fmt::{self, Write};

/// Writes the section of collectives. `limit` is the bandwidth of a device to its peers.
pub(in crate::report) fn section(
    page: &mut Document,
    measured: &CollectiveResults,
    limit: Option<Limit>,
) -> fmt::Result {
    let text = page.section(&format!("Collectives of {} ranks", measured.world))?;
    beside(text, &measured.baselines)?;
    if let Some(view) = means(measured) {
        table(text, &view)?;
    }
    let all: Vec<_> = (measured.measured().into_iter())
        .flat_map(|collective| Placement::ALL.map(|placement| (collective, placement)))
        .map(|(collective, placement)| {
            let lines = lines(measured, collective, placement);
            (collective, placement, lines)
        })
        .collect();
    let drawn = || all.iter().flat_map(|(_, _, lines)| lines);
    let axes = Axes::over(Across::Bytes, "GB/s", limit, drawn());
    if axes.is_some() {
        plot::legend(text, drawn())?;
    }
    for collective in measured.measured() {
        let text = page.part(collective.name())?;
        if let Some(axes) = &axes {
            let here = all.iter().filter(|(of, _, _)| *of == collective);
            let here = here.map(|(_, placement, lines)| (*placement, lines.as_slice()));
            plots(text, axes, collective.name(), how(measured), here)?;
        }
        for view in views_of(measured, collective) {
            table(text, &view)?;
        }
    }
    if let Some(placed) = &measured.barrier {
        let text = page.part("barrier")?;
        table(text, &barrier(placed))?;
    }
    Ok(())
}

/// Writes the plots of one operation: out of place and in place.
fn plots<'a>(
    text: &mut String,
    axes: &Axes,
    name: &str,
    how: &str,
    placements: impl Iterator<Item = (Placement, &'a [Line])>,
) -> fmt::Result {
    text.push_str("<div class=\"plots\">\n");
    for (placement, lines) in placements {
        let label = placement.label();
        if let Some(svg) = axes.draw(&format!("{name}, {label}, busbw"), lines)? {
            let title = format!("{name}, {label}");
            plot::figure(text, &title, &format!("busbw, {how}"), &svg)?;
        }
    }
    text.push_str("</div>\n");
    Ok(())
}

/// Writes the list of baselines, with the reason for each absent one.
pub(in crate::report) fn beside(page: &mut String, states: &[BaselineState]) -> fmt::Result {
    if states.is_empty() {
        return Ok(());
    }
    page.push_str("<ul class=\"sides\">\n");
    for sentence in baselines(states) {
        writeln!(page, "<li>{}</li>", Escaped(&sentence))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}
