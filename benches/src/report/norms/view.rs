//! The tables of all-reduces with RMSNorm, in a terminal and on a page.

use super::{ALL_REDUCE, FUSED, NormEntry, NormPoint, NormResults};
use crate::report::collectives::{Time, beside};
use crate::report::html::{Document, table};
use crate::report::ratio::Ratio;
use crate::report::text::decimal;
use crate::report::view::{Cell, View, heading};
use std::fmt;

/// Returns a table for each output and row length.
pub(in crate::report) fn views(section: &NormResults) -> Vec<View> {
    let same = |a: &NormPoint, b: &NormPoint| {
        let parts = |point: &NormPoint| {
            (
                point.output,
                point.hidden,
                point.element,
                point.residual,
                point.sharded,
            )
        };
        parts(a) == parts(b)
    };
    let vendor = section.vendor();
    let groups = section.points.chunk_by(same);
    groups.map(|points| view(points, vendor)).collect()
}

fn view(points: &[NormPoint], vendor: Option<&str>) -> View {
    let [first, ..] = points else {
        return View {
            title: String::new(),
            caption: Vec::new(),
            headings: Vec::new(),
            rows: Vec::new(),
        };
    };
    let is_timed = first.rounds > 0;
    let mut headings = vec![heading("rows")];
    if is_timed {
        headings.extend([
            heading("fused (µs)").of("µs"),
            heading("all-reduce (µs)").of("µs"),
            heading("fused / all-reduce"),
        ]);
        if let Some(vendor) = vendor {
            headings.push(heading(format!("{vendor} all-reduce (µs)")).of("µs"));
            headings.push(heading(format!("{vendor} / fused")));
        }
    } else {
        headings.extend([heading("checked"), heading("wrong")]);
    }
    let residual = match (first.residual, first.sharded) {
        (true, false) => "with a residual",
        (true, true) => "with a shard of the residual at each rank",
        (false, _) => "without a residual",
    };
    let mut view = View {
        title: format!(
            "All-reduce with RMSNorm, rows of {} {}, {residual}, {}",
            first.hidden,
            first.element.name(),
            first.output.label()
        ),
        caption: caption(points, is_timed),
        headings,
        rows: Vec::new(),
    };
    for point in points {
        view.rows.push(row(point, vendor, is_timed));
    }
    view
}

fn row(point: &NormPoint, vendor: Option<&str>, is_timed: bool) -> Vec<Cell> {
    let (wrong, checked) = point.counts();
    let mut cells = vec![Cell::Name(point.rows.to_string())];
    if !is_timed {
        cells.push(Cell::Figure(checked.to_string()));
        cells.push(Cell::Figure(wrong.to_string()));
        return cells;
    }
    let time = |by: &str| point.entry(by).and_then(NormEntry::time);
    let cell = |time: Option<Time>| match time {
        Some(time) => Cell::Figure(decimal(time.ns / 1e3)),
        None => Cell::Absent,
    };
    let ratio = |over: Option<Time>, under: Option<Time>| {
        let ratio = over
            .zip(under)
            .and_then(|(over, under)| Ratio::of(under, over));
        Cell::compared(ratio)
    };
    let fused = match wrong {
        0 => time(FUSED),
        _ => None,
    };
    cells.push(match wrong {
        0 => cell(fused),
        wrong => Cell::Wrong(wrong),
    });
    cells.push(cell(time(ALL_REDUCE)));
    cells.push(ratio(fused, time(ALL_REDUCE)));
    if let Some(vendor) = vendor {
        cells.push(cell(time(vendor)));
        cells.push(ratio(time(vendor), fused));
    }
    cells
}

fn caption(points: &[NormPoint], is_timed: bool) -> Vec<String> {
    let mut caption = Vec::new();
    if is_timed {
        let fused = points.iter().filter_map(|point| point.entry(FUSED));
        let is_replayed = fused.clone().any(|entry| entry.results.graph.is_some());
        let how = match is_replayed {
            true => "Graph replay",
            false => "Calls back to back",
        };
        let rounds = points.iter().map(|point| point.rounds);
        let rounds = rounds.min().unwrap_or_default();
        caption.push(format!(
            "{how}: median of {rounds} rounds of the slowest rank; all-reduce: of the same rows, without residual and norm."
        ));
        let (wrong, checked) = points.iter().fold((0, 0), |(wrong, checked), point| {
            let (here, of) = point.counts();
            (wrong + here, checked + of)
        });
        if checked > 0 {
            caption.push(format!(
                "{checked} elements were compared with a reference, {wrong} were wrong."
            ));
        }
    }
    let mut absent: Vec<String> = Vec::new();
    for point in points {
        for entry in &point.entries {
            if let Some(reason) = &entry.absent {
                absent.push(format!("{} with {} rows: {reason}", entry.by, point.rows));
            }
        }
    }
    caption.extend(absent);
    caption
}

/// Writes the section of a page: baselines and tables.
pub(in crate::report) fn section(page: &mut Document, measured: &NormResults) -> fmt::Result {
    let title = format!("All-reduce with RMSNorm of {} ranks", measured.world);
    let text = page.section(&title)?;
    beside(text, &measured.baselines)?;
    views(measured)
        .iter()
        .try_for_each(|view| table(text, view))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::collectives::PlacementResults;
    use crate::report::norms::{NormOutput, RowElement};
    use crate::report::{Environment, Report, table};

    fn entry(by: &str, ns: f64, wrong: u64) -> NormEntry {
        let time = |ns: f64| Time {
            ns,
            min: ns * 0.99,
            max: ns * 1.01,
        };
        NormEntry {
            by: by.into(),
            absent: None,
            results: PlacementResults {
                looped: Some(time(ns * 2.0)),
                graph: Some(time(ns)),
                single: None,
                wire_bytes: None,
                wrong,
                checked: if by == FUSED { 512 } else { 0 },
            },
        }
    }

    fn report(wrong: u64, rounds: u32) -> Report {
        let point = |rows| NormPoint {
            rows,
            hidden: 128,
            element: RowElement::Bf16,
            output: NormOutput::Group,
            residual: true,
            sharded: false,
            entries: vec![
                entry(FUSED, 4000.0, wrong),
                entry(ALL_REDUCE, 3200.0, 0),
                entry("nccl", 12000.0, 0),
            ],
            rounds,
        };
        let mut report = Report::new(Environment::default());
        report.norms = Some(NormResults {
            world: 2,
            baselines: Vec::new(),
            points: vec![point(1), point(7)],
        });
        report
    }

    #[test]
    fn a_table_has_both_ratios_and_says_what_was_compared() {
        let report = report(0, 3);
        let text = table::terminal(&report);
        for part in [
            "All-reduce with RMSNorm, rows of 128 bf16, with a residual, fp8 results, a scale for each 128 elements",
            "4.00",
            "1.25×",
            "12.00",
            "3.00×",
            "Graph replay: median of 3 rounds",
            "1024 elements were compared with a reference, 0 were wrong.",
        ] {
            assert!(text.contains(part), "{part} is missing in\n{text}");
        }
        assert!(!report.is_wrong());
        let json = report.to_json().unwrap();
        assert_eq!(Report::from_json(&json).unwrap(), report);
    }

    #[test]
    fn a_wrong_point_has_no_time_and_makes_the_report_wrong() {
        let report = report(3, 3);
        assert!(report.is_wrong());
        let text = table::terminal(&report);
        assert!(text.contains("wrong") && !text.contains("4.00"), "{text}");
        let page = crate::report::page::html(&report).unwrap();
        assert!(page.contains("had wrong elements"), "{page}");
    }

    #[test]
    fn without_times_the_counts_are_shown() {
        let text = table::terminal(&report(0, 0));
        assert!(text.contains("checked") && text.contains("512"), "{text}");
        assert!(!text.contains("µs"), "{text}");
    }
}
