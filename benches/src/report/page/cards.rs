//! Headline figures as cards, from the data of the one-screen summary.

use super::super::html::{Document, Escaped};
use super::super::schema::Report;
use super::super::summary::{self, Line};
use super::super::text::significant;
use std::fmt::{self, Write};

/// Writes one card per headline figure; nothing without figures.
pub(super) fn section(page: &mut Document, report: &Report) -> fmt::Result {
    let lines = summary::lines(report);
    if lines.is_empty() {
        return Ok(());
    }
    let text = page.section("Summary")?;
    text.push_str("<ul class=\"cards\">\n");
    for line in &lines {
        card(text, line)?;
    }
    text.push_str("</ul>\n");
    let ratios = || lines.iter().filter_map(|line| line.ratio.as_ref());
    let mut explained = Vec::new();
    if lines.iter().any(|line| line.spread.is_some()) {
        explained.push(
            "Medians. Spread: lowest to highest round; for the latency, minimum to 99th percentile.",
        );
    }
    if ratios().next().is_some() {
        explained.push("×: the baseline's time divided by symmem's; above 1, symmem is faster.");
    }
    if ratios().any(|(_, ratio)| ratio.noise) {
        explained.push("noise: the rounds of both overlap, so the ratio shows no difference.");
    }
    if lines.iter().any(|line| line.of_limit.is_some()) {
        explained.push("NVLink: 450 GB/s in one direction.");
    }
    writeln!(text, "<p class=\"caption\">{}</p>", explained.join(" "))
}

fn card(text: &mut String, line: &Line) -> fmt::Result {
    writeln!(
        text,
        "<li>\n<p class=\"what\">{}</p>\n<p class=\"value\">{} <span>{}</span></p>",
        Escaped(&line.what),
        significant(line.figure),
        line.unit
    )?;
    if let Some((least, most)) = line.spread {
        writeln!(
            text,
            "<p class=\"spread\">spread {}–{}</p>",
            significant(least),
            significant(most)
        )?;
    }
    if let Some(share) = line.of_limit.filter(|share| share.is_finite()) {
        let percent = 100.0 * share;
        let decimals = if percent < 10.0 { 1 } else { 0 };
        writeln!(
            text,
            "<div class=\"meter\" aria-hidden=\"true\"><span style=\"width:{:.1}%\"></span></div>\n\
             <p class=\"share\">{percent:.decimals$} % of NVLink</p>",
            percent.clamp(0.0, 100.0)
        )?;
    }
    if let Some((name, ratio)) = &line.ratio {
        let (class, sign) = match (ratio.noise, ratio.value >= 1.0) {
            (true, _) => ("noise", "≈"),
            (false, true) => ("ahead", "▲"),
            (false, false) => ("behind", "▼"),
        };
        let noise = if ratio.noise { ", noise" } else { "" };
        writeln!(
            text,
            "<p class=\"ratio {class}\"><span aria-hidden=\"true\">{sign}</span> <b>{:.2}×</b> {}{noise}</p>",
            ratio.value,
            Escaped(name)
        )?;
    }
    text.push_str("</li>\n");
    Ok(())
}
