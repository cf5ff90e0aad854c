//! Plots as SVG: rates over sizes in [`curves`], contenders side by side in [`bars`].
//!
//! Colors come from the page's style sheet, by the class `s0` to `s9` of a series. A mark is a `use` element with
//! a title of three lines: name, position, and value. `page.js` shows these titles on hover, tap and arrow keys;
//! without the script the browser shows them itself.

use std::fmt::{self, Write};

use super::html::Escaped;

mod axis;
mod bars;
mod curves;

pub(super) use bars::{Bars, Group, Lane};
pub(super) use curves::{Across, Axes};

/// Number of series with a color and a shape of their own; further series share the last.
const SERIES: usize = 10;

/// The width of every plot, in its own units.
const WIDTH: f64 = 480.0;

/// The shapes of marks, around their origin; a page has each of them once.
const SHAPES: [&str; SERIES] = [
    "M-3.4,0a3.4,3.4 0 1,0 6.8,0a3.4,3.4 0 1,0 -6.8,0z",
    "M-3,-3h6v6h-6z",
    "M0,-4.4L4.4,0L0,4.4L-4.4,0z",
    "M0,-4L4,3.2L-4,3.2z",
    "M0,4L4,-3.2L-4,-3.2z",
    "M-3.6,-1.2h2.4v-2.4h2.4v2.4h2.4v2.4h-2.4v2.4h-2.4v-2.4h-2.4z",
    "M-4.2,-1.8h8.4v3.6h-8.4z",
    "M-1.8,-4.2h3.6v8.4h-3.6z",
    "M-4,0L0,-4L4,0L0,1.6z",
    "M-4,0L0,4L4,0L0,-1.6z",
];

/// The values of one contender in a plot.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Line {
    /// Selects color and shape.
    pub series: usize,
    /// Whether this is symmem; lines of baselines are dashed.
    pub ours: bool,
    pub name: String,
    pub marks: Vec<Mark>,
}

/// A measured value.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Mark {
    /// Position on the horizontal axis: bytes or rows.
    pub at: u64,
    pub value: f64,
    /// Lowest and highest value over the rounds.
    pub range: Option<(f64, f64)>,
    /// Further text for the tooltip.
    pub note: String,
}

/// A physical limit of the hardware.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Limit {
    pub name: String,
    pub value: f64,
}

/// Returns the CSS class of a series.
pub(super) fn class(series: usize) -> String {
    format!("s{}", series.min(SERIES - 1))
}

/// Writes the shapes that the marks of all plots of a page refer to.
pub(super) fn symbols(page: &mut String) -> fmt::Result {
    page.push_str("<svg class=\"symbols\" aria-hidden=\"true\"><defs>");
    for (series, path) in SHAPES.iter().enumerate() {
        write!(page, "<path id=\"m{series}\" d=\"{path}\"/>")?;
    }
    page.push_str("</defs></svg>\n");
    Ok(())
}

/// Writes a legend: stroke, shape and name of each line.
pub(super) fn legend<'a>(
    page: &mut String,
    lines: impl IntoIterator<Item = &'a Line>,
) -> fmt::Result {
    let mut known: Vec<&Line> = Vec::new();
    for line in lines {
        let same = |other: &&Line| other.series == line.series && other.name == line.name;
        if !line.marks.is_empty() && !known.iter().any(same) {
            known.push(line);
        }
    }
    known.sort_by_key(|line| line.series);
    page.push_str("<ul class=\"legend\">\n");
    for line in known {
        writeln!(
            page,
            "<li><svg viewBox=\"0 0 28 10\" aria-hidden=\"true\"><g class=\"{}{}\"><polyline points=\"1,5 27,5\"/>\
             <use href=\"#m{}\" x=\"14\" y=\"5\"/></g></svg>{}</li>",
            class(line.series),
            if line.ours { "" } else { " theirs" },
            line.series.min(SERIES - 1),
            Escaped(&line.name)
        )?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// Writes a plot with its caption.
pub(super) fn figure(page: &mut String, title: &str, detail: &str, svg: &str) -> fmt::Result {
    writeln!(
        page,
        "<figure>\n<figcaption><b>{}</b> <span>{}</span></figcaption>\n{svg}\n</figure>",
        Escaped(title),
        Escaped(detail)
    )
}

/// Writes a mark with the three lines of its tooltip.
fn mark(
    svg: &mut String,
    series: usize,
    [x, y]: [f64; 2],
    name: &str,
    place: &str,
    value: &str,
) -> fmt::Result {
    // A line break within a name would shift the lines of the tooltip.
    let [name, place, value] = [name, place, value].map(|text| text.replace(['\n', '\r'], " "));
    write!(
        svg,
        "<use href=\"#m{}\" x=\"{x:.1}\" y=\"{y:.1}\"><title>{}\n{}\n{}</title></use>",
        series.min(SERIES - 1),
        Escaped(&name),
        Escaped(&place),
        Escaped(&value)
    )
}

/// Formats a value with its unit, the range over rounds and the note.
fn value(mark: &Mark, unit: &str) -> String {
    use super::text::significant;
    let mut text = format!("{} {unit}", significant(mark.value));
    if let Some((least, most)) = mark
        .range
        .filter(|(least, most)| least < most && most.is_finite())
    {
        text += &format!(" ({}–{})", significant(least), significant(most));
    }
    if !mark.note.is_empty() {
        text += &format!(" · {}", mark.note);
    }
    text
}
