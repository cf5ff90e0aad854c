//! A comparison as one self-contained HTML page.

use super::comparison::Comparison;
use super::section::Section;
use super::{sections, view};
use crate::report::collectives::Curve;
use crate::report::html::{END, Escaped, begin, draw_legend, section};
use crate::report::plot::{self, Axes};
use std::fmt::{self, Write};

/// Legend position of published figures: after all runs, drawn as a baseline.
const PUBLISHED: usize = usize::MAX;

/// Returns the whole page: one plot per measurement with one curve per machine, and every table.
///
/// The page loads nothing: style and plots are inline, and there is no script.
///
/// # Errors
/// Errors of the plot writer; writing to memory raises none.
pub fn html(comparison: &Comparison) -> Result<String, fmt::Error> {
    let title = "Comparison of machines";
    let mut page = begin(title);
    writeln!(page, "<header>\n<h1>{title}</h1>\n</header>")?;
    let names: Vec<String> = (comparison.runs.iter().enumerate())
        .map(|(index, run)| format!("{}: {}", Comparison::letter(index), run.machine()))
        .collect();
    let found = sections::sections(comparison);
    for (name, sections) in [
        ("Between pairs, GB/s", &found.transfers),
        ("Collectives, busbw", &found.collectives),
    ] {
        plots(&mut page, name, sections, &names)?;
    }
    for view in view::views(comparison) {
        section(&mut page, &view, "h2")?;
    }
    page.push_str(END);
    Ok(page)
}

/// Draws a heading, a legend, and one plot per section, all on the same axes.
fn plots(page: &mut String, name: &str, sections: &[Section], names: &[String]) -> fmt::Result {
    let all = sections.iter().flat_map(|section| curves(section, names));
    let Some(axes) = Axes::of_curves(all) else {
        return Ok(());
    };
    writeln!(page, "<h2>{name}</h2>")?;
    let drawn = |index: &usize| {
        let sides = sections.iter().flat_map(|section| &section.sides);
        sides.into_iter().any(|side| side.run == *index)
    };
    let mut legend: Vec<(&str, &str)> = (0..names.len())
        .filter(drawn)
        .map(|index| (plot::collective_class(index), names[index].as_str()))
        .collect();
    if sections
        .iter()
        .any(|section| !section.references.is_empty())
    {
        legend.push((
            plot::collective_class(PUBLISHED),
            "published, not measured here",
        ));
    }
    draw_legend(page, legend)?;
    page.push_str("<div class=\"plots\">\n");
    for section in sections {
        if let Some(svg) = plot::curves_svg(&section.title, &axes, curves(section, names))? {
            writeln!(
                page,
                "<figure>\n<figcaption>{}</figcaption>\n{svg}\n</figure>",
                Escaped(&section.title)
            )?;
        }
    }
    page.push_str("</div>\n");
    Ok(())
}

/// Returns one curve per run, with every size that it measured, and one per reference.
fn curves<'a>(section: &'a Section, names: &'a [String]) -> Vec<Curve<'a>> {
    let sides = section.sides.iter().map(|side| {
        let right = side.values.values().filter(|value| {
            value.wrong == 0 && value.bytes != 0 && value.gbps.is_finite() && value.gbps > 0.0
        });
        let points = right.map(|value| (value.bytes, value.gbps)).collect();
        (side.run, names[side.run].as_str(), points)
    });
    let references = section
        .references
        .iter()
        .map(|reference| (PUBLISHED, reference.by, reference.rates.to_vec()));
    sides.chain(references).collect()
}
