//! Folded tables, each in a box that scrolls horizontally.

use super::Escaped;
use crate::report::view::{Cell, Heading, View};
use std::fmt::{self, Write};

/// Writes a table with its caption, folded behind its title.
pub(in crate::report) fn table(page: &mut String, view: &View) -> fmt::Result {
    let title = Escaped(&view.title);
    let rows = match view.rows.len() {
        1 => "1 row".to_owned(),
        many => format!("{many} rows"),
    };
    write!(
        page,
        "<details class=\"table\">\n<summary>{title} <span>table, {rows}</span></summary>\n\
         <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table>\n<thead><tr>"
    )?;
    for heading in &view.headings {
        head(page, heading)?;
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &view.rows {
        page.push_str("<tr>");
        for cell in row {
            self::cell(page, cell)?;
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n");
    for sentence in &view.caption {
        writeln!(page, "<p class=\"caption\">{}</p>", Escaped(sentence))?;
    }
    let details =
        || (view.headings.iter()).filter_map(|heading| Some((heading, heading.detail.as_deref()?)));
    if details().next().is_some() {
        page.push_str("<ul class=\"how\">\n");
        for (heading, detail) in details() {
            writeln!(
                page,
                "<li><b>{}</b> {}</li>",
                Escaped(&heading.text),
                Escaped(detail)
            )?;
        }
        page.push_str("</ul>\n");
    }
    page.push_str("</details>\n");
    Ok(())
}

/// The head of a column: its name, and its unit on a line below.
fn head(page: &mut String, heading: &Heading) -> fmt::Result {
    // Some names have their unit already, some as nccl-tests writes it.
    let (name, own) = match heading.text.rsplit_once('\n') {
        Some((name, unit @ ("µs" | "GB/s"))) => (name, unit),
        Some((name, unit)) if unit.starts_with('(') => (name, unit.trim_matches(['(', ')'])),
        _ => (heading.text.as_str(), ""),
    };
    write!(page, "<th scope=\"col\">{}", Escaped(name))?;
    let own = if own == "us" { "µs" } else { own };
    for line in [own, heading.unit] {
        if !line.is_empty() {
            write!(page, "<span class=\"of\">{}</span>", Escaped(line))?;
        }
    }
    page.push_str("</th>");
    Ok(())
}

fn cell(page: &mut String, cell: &Cell) -> fmt::Result {
    let text = cell.text();
    match cell {
        Cell::Name(_) => write!(page, "<th scope=\"row\">{}</th>", Escaped(&text)),
        // A figure space is as wide as a digit: decimal points stay in line.
        Cell::Figure(_) => write!(page, "<td>{}</td>", Escaped(&figure_spaces(&text))),
        Cell::Ratio(ratio) => {
            let class = if *ratio >= 1.0 { "ahead" } else { "behind" };
            write!(page, "<td class=\"{class}\">{}</td>", Escaped(&text))
        }
        Cell::Absent => write!(page, "<td class=\"absent\">{}</td>", Escaped(&text)),
        Cell::Wrong(count) => write!(
            page,
            "<td class=\"wrong\" title=\"{count} wrong bytes or elements\">{}</td>",
            Escaped(&text)
        ),
    }
}

/// The blanks at the end, as wide as digits.
fn figure_spaces(text: &str) -> String {
    let figures = text.trim_end_matches(' ');
    let blanks = text.len() - figures.len();
    format!("{figures}{}", "\u{2007}".repeat(blanks))
}
