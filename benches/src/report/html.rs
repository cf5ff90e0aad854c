//! Pieces of HTML that every page is made of.

use super::collectives::{self, BaselineState};
use super::schema::Column;
use super::view::{Cell, View};
use std::fmt::{self, Display, Formatter, Write};

const STYLE: &str = include_str!("page.css");

/// Text inside an element or a quoted attribute.
pub(super) struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                // HTML allows no control character but white space, not even as a reference.
                letter if letter.is_control() && !letter.is_whitespace() => {
                    formatter.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                letter => formatter.write_char(letter)?,
            }
        }
        Ok(())
    }
}

/// Everything before a page's first heading.
pub(super) fn begin(title: &str) -> String {
    format!(
        "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta name=\"color-scheme\" content=\"light dark\">\n\
         <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n<main>\n",
        Escaped(title)
    )
}

/// Everything after its last line.
pub(super) const END: &str = "</main>\n</body>\n</html>\n";

/// What was beside us, and what was not.
pub(super) fn beside(page: &mut String, baselines: &[BaselineState]) -> fmt::Result {
    page.push_str("<ul>\n");
    for sentence in collectives::baselines(baselines) {
        writeln!(page, "<li>{}</li>", Escaped(&sentence))?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

/// A line and a name for each class.
pub(super) fn draw_legend<'a>(
    page: &mut String,
    lines: impl IntoIterator<Item = (&'static str, &'a str)>,
) -> fmt::Result {
    page.push_str("<ul class=\"legend\">\n");
    for (class, name) in lines {
        writeln!(
            page,
            "<li><svg viewBox=\"0 0 26 10\" aria-hidden=\"true\"><g class=\"{class}\">\
             <polyline points=\"1,5 25,5\"/><circle cx=\"13\" cy=\"5\" r=\"3\"/></g></svg>{}</li>",
            Escaped(name)
        )?;
    }
    page.push_str("</ul>\n");
    Ok(())
}

pub(super) fn section(page: &mut String, view: &View, level: &str) -> fmt::Result {
    writeln!(page, "<{level}>{}</{level}>", Escaped(&view.title))?;
    table(page, view)
}

pub(super) fn table(page: &mut String, view: &View) -> fmt::Result {
    page.push_str("<div class=\"scroll\"><table>\n<thead><tr>");
    for heading in &view.headings {
        let class = heading.column.map(class_of).unwrap_or_default();
        match &heading.detail {
            Some(detail) => write!(
                page,
                "<th scope=\"col\"{class} title=\"{}\">{}</th>",
                Escaped(detail),
                Escaped(&heading.text)
            )?,
            None => write!(
                page,
                "<th scope=\"col\"{class}>{}</th>",
                Escaped(&heading.text)
            )?,
        }
    }
    page.push_str("</tr></thead>\n<tbody>\n");
    for row in &view.rows {
        page.push_str("<tr>");
        for cell in row {
            let text = cell.text();
            match cell {
                Cell::Name(_) => write!(page, "<th scope=\"row\">{}</th>", Escaped(&text))?,
                // A figure space is as wide as a digit: decimal points stay in line.
                Cell::Figure(_) => write!(page, "<td>{}</td>", Escaped(&figure_spaces(&text)))?,
                Cell::Ratio(ratio) => {
                    let class = if *ratio >= 1.0 { "ahead" } else { "behind" };
                    write!(page, "<td class=\"{class}\">{}</td>", Escaped(&text))?;
                }
                Cell::Absent => write!(page, "<td class=\"absent\">{}</td>", Escaped(&text))?,
                Cell::Wrong(bytes) => write!(
                    page,
                    "<td class=\"wrong\" title=\"{bytes} wrong bytes\">{}</td>",
                    Escaped(&text)
                )?,
            }
        }
        page.push_str("</tr>\n");
    }
    page.push_str("</tbody>\n</table></div>\n<p class=\"caption\">");
    write!(page, "{}", Escaped(&view.caption.join(" ")))?;
    page.push_str("</p>\n");
    let details = || {
        view.headings
            .iter()
            .filter(|heading| heading.detail.is_some())
    };
    if details().next().is_some() {
        page.push_str("<ul class=\"how\">\n");
        for heading in details() {
            writeln!(
                page,
                "<li><b{}>{}</b> {}</li>",
                heading.column.map(class_of).unwrap_or_default(),
                Escaped(&heading.text),
                Escaped(heading.detail.as_deref().unwrap_or_default())
            )?;
        }
        page.push_str("</ul>\n");
    }
    Ok(())
}

fn class_of(column: Column) -> String {
    format!(" class=\"key {}\"", column.class())
}

/// The blanks at the end, as wide as digits.
fn figure_spaces(text: &str) -> String {
    let figures = text.trim_end_matches(' ');
    let blanks = text.len() - figures.len();
    format!("{figures}{}", "\u{2007}".repeat(blanks))
}
