//! A comparison as one self-contained HTML page.

use super::comparison::Comparison;
use super::published::{REFERENCES, Reference};
use super::section::Section;
use super::{sections, view};
use crate::report::html::{Document, table};
use crate::report::plot::{self, Across, Axes, Line, Mark};
use std::fmt;

/// Series of the first published source; further sources count down from here, runs count up from 0.
const PUBLISHED: usize = 9;

/// Returns the whole page: one plot per measurement with one curve per machine, and every table.
///
/// The page loads nothing: style, script and plots are inline.
///
/// # Errors
/// Errors of writing text; writing to memory raises none.
pub fn html(comparison: &Comparison) -> Result<String, fmt::Error> {
    let title = "Comparison of machines";
    let mut page = Document::new(title, format!("<h1>{title}</h1>\n"));
    let names: Vec<String> = (comparison.runs.iter().enumerate())
        .map(|(index, run)| format!("{}: {}", Comparison::letter(index), run.machine()))
        .collect();
    let found = sections::sections(comparison);
    for (name, sections) in [
        ("Between pairs", &found.transfers),
        ("Collectives", &found.collectives),
    ] {
        plots(&mut page, name, sections, &names)?;
    }
    let text = page.section("Tables")?;
    for view in view::views(comparison) {
        table(text, &view)?;
    }
    let mut symbols = String::new();
    plot::symbols(&mut symbols)?;
    page.finish(&symbols)
}

/// Draws a section with a legend and one plot per measurement, all on the same axes.
fn plots(page: &mut Document, name: &str, sections: &[Section], names: &[String]) -> fmt::Result {
    let all: Vec<(&Section, Vec<Line>)> = (sections.iter())
        .map(|section| (section, lines(section, names)))
        .collect();
    let drawn = || all.iter().flat_map(|(_, lines)| lines);
    let Some(axes) = Axes::over(Across::Bytes, "GB/s", None, drawn()) else {
        return Ok(());
    };
    let text = page.section(name)?;
    plot::legend(text, drawn())?;
    text.push_str("<div class=\"plots\">\n");
    for (section, lines) in &all {
        if let Some(svg) = axes.draw(&section.title, lines)? {
            let unit = if name == "Collectives" { "busbw" } else { "" };
            plot::figure(text, &section.title, unit, &svg)?;
        }
    }
    text.push_str("</div>\n");
    Ok(())
}

/// Returns the series of a published source, the same in every plot.
fn series(reference: &Reference) -> usize {
    let mut sources: Vec<&str> = REFERENCES.iter().map(|one| one.by).collect();
    sources.dedup();
    let place = sources.iter().position(|by| *by == reference.by);
    PUBLISHED.saturating_sub(place.unwrap_or(0))
}

/// Returns one curve per run, with every size that it measured, and one per reference.
fn lines(section: &Section, names: &[String]) -> Vec<Line> {
    let mark = |at: u64, value: f64| Mark {
        at,
        value,
        range: None,
        note: String::new(),
    };
    let sides = section.sides.iter().map(|side| {
        let right = side.values.values().filter(|value| value.wrong == 0);
        Line {
            series: side.run,
            ours: true,
            name: names[side.run].clone(),
            marks: right.map(|value| mark(value.bytes, value.gbps)).collect(),
        }
    });
    let references = section.references.iter().map(|reference| Line {
        series: series(reference),
        ours: false,
        name: format!("published, not measured here: {}", reference.by),
        marks: (reference.rates.iter())
            .map(|(bytes, gbps)| mark(*bytes, *gbps))
            .collect(),
    });
    sides.chain(references).collect()
}
