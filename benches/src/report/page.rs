//! The report as one HTML page that needs nothing but itself.

use std::fmt::{self, Write};

use super::ag_gemm::{self, AgGemmResults};
use super::collectives::{self, CollectiveResults};
use super::gemm_reduce::{self, GemmCollective, GemmReduceResults};
use super::html::{Document, Escaped, table};
use super::norms::{self, NormResults};
use super::schema::Report;
use super::{limits, plot, published, summary, text, view};

#[cfg(test)]
mod browser;
mod cards;
mod environment;
mod latency;
mod references;
#[cfg(test)]
mod tests;
mod transfers;

/// The whole page: headline figures, plots, every table, notes, environment, and published figures with their caveat
/// if the devices are of the kind that they were measured on.
///
/// It loads nothing: style, script and plots are inside. Light or dark follows the reader's setting.
///
/// # Errors
/// Those of writing text; writing to memory raises none.
pub fn html(report: &Report) -> Result<String, fmt::Error> {
    let devices = &report.environment.devices;
    let mut title = subject(report).to_owned();
    if !devices.is_empty() {
        title += &format!(", {}", text::counted(devices));
    }
    let mut page = Document::new(&title, head(report)?);
    cards::section(&mut page, report)?;
    transfers::section(&mut page, report, limits::of_pairs(devices))?;
    latency::section(&mut page, report)?;
    matrices(&mut page, report)?;
    if let Some(measured) = &report.collectives {
        let limit = limits::of_collectives(devices, measured.world);
        collectives::section(&mut page, measured, limit)?;
    }
    let hopper = published::is_hopper(devices);
    if let Some(measured) = &report.ag_gemm {
        ag_gemm::section(&mut page, measured, limits::of_products(devices), hopper)?;
    }
    if let Some(measured) = &report.gemm_reduce {
        gemm_reduce::section(&mut page, measured)?;
    }
    if let Some(measured) = &report.norms {
        norms::section(&mut page, measured)?;
    }
    notes(&mut page, report)?;
    environment::section(&mut page, report)?;
    if hopper && !report.points.is_empty() {
        references::section(&mut page)?;
    }
    let mut symbols = String::new();
    plot::symbols(&mut symbols)?;
    page.finish(&symbols)
}

/// Returns the title without the devices.
fn subject(report: &Report) -> &'static str {
    if let Some(section) = &report.gemm_reduce {
        return match section.collective {
            GemmCollective::ReduceScatter => "GEMM + reduce-scatter",
            GemmCollective::AllReduce => "GEMM + all-reduce",
        };
    }
    match (report.points.is_empty(), &report.collectives) {
        (true, None) if report.ag_gemm.is_some() => "All-gather + GEMM",
        (true, None) if report.norms.is_some() => "All-reduce with RMSNorm",
        (true, Some(_)) => "Collectives",
        (false, Some(_)) => "Peer-to-peer bandwidth and collectives",
        (_, None) => "Peer-to-peer bandwidth",
    }
}

/// Returns the first heading, devices, backend, date and the result of the checks.
fn head(report: &Report) -> Result<String, fmt::Error> {
    let environment = &report.environment;
    let mut head = format!("<h1>{}</h1>\n<ul class=\"facts\">\n", subject(report));
    let commit: String = environment.commit.chars().take(12).collect();
    for (name, value) in [
        ("", text::counted(&environment.devices).as_str()),
        ("backend", &environment.backend),
        ("multicast", &environment.multicast),
        ("date", &environment.date),
        ("commit", &commit),
    ] {
        if !value.is_empty() {
            writeln!(head, "<li>{name} <b>{}</b></li>", Escaped(value))?;
        }
    }
    head.push_str("</ul>\n");
    let collectives = report.collectives.iter();
    let products = report.ag_gemm.iter();
    let sums = report.gemm_reduce.iter();
    let mut is_right = true;
    for (wrong, sentence) in [
        (
            report.wrong_points().count(),
            format!(
                "of {} results had wrong bytes. Their rates are not shown.",
                report.points.len()
            ),
        ),
        (
            collectives
                .flat_map(CollectiveResults::wrong_points)
                .count(),
            "collectives had wrong elements. Their times are not shown.".into(),
        ),
        (
            products.flat_map(AgGemmResults::wrong).count()
                + sums.flat_map(GemmReduceResults::wrong).count(),
            "products had wrong elements. Their times are not shown.".into(),
        ),
        (
            report.norms.iter().flat_map(NormResults::wrong).count(),
            "calls with RMSNorm had wrong elements. Their times are not shown.".into(),
        ),
    ] {
        if wrong != 0 {
            is_right = false;
            writeln!(head, "<p class=\"alarm\">{wrong} {sentence}</p>")?;
        }
    }
    if is_right {
        let checked = summary::checked(report);
        let class = if report.is_wrong() { "alarm" } else { "right" };
        let sentence = Escaped(checked.trim_end());
        let is_checked = !report.points.is_empty() || report.collectives.is_some();
        if is_checked || report.ag_gemm.is_some() || report.gemm_reduce.is_some() {
            writeln!(head, "<p class=\"{class}\">{sentence}</p>")?;
        }
    }
    Ok(head)
}

/// Bandwidth between every two ranks.
fn matrices(page: &mut Document, report: &Report) -> fmt::Result {
    let mut views = view::matrices(report).peekable();
    if views.peek().is_some() {
        let text = page.section("Every pair")?;
        for mut view in views {
            // What was moved tells one from another.
            view.title += &format!(": {}", view.caption.join(" "));
            view.caption.clear();
            table(text, &view)?;
        }
    }
    Ok(())
}

fn notes(page: &mut Document, report: &Report) -> fmt::Result {
    if report.notes.is_empty() {
        return Ok(());
    }
    let text = page.section("Notes")?;
    text.push_str("<ul class=\"sides\">\n");
    for note in &report.notes {
        writeln!(text, "<li>{}</li>", Escaped(note))?;
    }
    text.push_str("</ul>\n");
    Ok(())
}
