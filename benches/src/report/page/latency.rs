//! Latencies of single messages: bars and a table.

use super::super::html::{Document, table};
use super::super::plot::{self, Bars, Group, Lane, Mark};
use super::super::schema::Report;
use super::super::statistics::Spread;
use super::super::view;
use std::fmt;

/// Writes the section of latencies; nothing if none was measured.
pub(super) fn section(page: &mut Document, report: &Report) -> fmt::Result {
    let Some(view) = view::latencies(report) else {
        return Ok(());
    };
    let text = page.section("Latency")?;
    if let Some(svg) = bars(report).draw("Latency of one message")? {
        text.push_str("<div class=\"plots\">\n");
        plot::figure(text, "Latency, one way", "median, line: min–p99", &svg)?;
        text.push_str("</div>\n");
    }
    table(text, &view)
}

fn bars(report: &Report) -> Bars {
    let lane = |series, name: &str, spread: Spread| Lane {
        series,
        name: name.to_owned(),
        mark: Mark {
            at: 0,
            value: spread.median / 1e3,
            range: Some((spread.min / 1e3, spread.p99 / 1e3)),
            note: String::new(),
        },
    };
    let groups = report.latencies.iter().map(|latency| {
        let theirs = (latency.baseline.as_ref())
            .map(|baseline| lane(5, &baseline.name, baseline.one_way_ns));
        let lanes = std::iter::once(lane(0, "symmem", latency.one_way_ns)).chain(theirs);
        Group {
            label: latency.name.clone(),
            labeled: true,
            lanes: lanes.collect(),
        }
    });
    Bars {
        unit: "µs",
        limit: None,
        groups: groups.collect(),
    }
}
