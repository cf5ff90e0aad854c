//! The report as tables for a terminal.

use std::fmt::Write;

use comfy_table::{CellAlignment, ContentArrangement, LineStyle, Table, TableStyle};

use super::ag_gemm;
use super::collectives::{self, BaselineState};
use super::gemm_reduce;
use super::norms;
use super::published;
use super::schema::{Direction, Report, Traffic};
use super::view::{self, View};

/// Returns every table of the report as plain text without colors, in this order: for each kind of
/// traffic and direction the looped rates, then graph replay and single shots; latencies; the matrix;
/// collectives; all-gather + GEMM; GEMM + reduce-scatter or all-reduce; all-reduces with RMSNorm; notes.
///
/// Tables without measurements are left out. Lines are as long as the tables need: about 130 characters
/// for nccl-tests' columns, 150 for all-gather + GEMM with PyTorch, at most 110 for all others.
pub fn terminal(report: &Report) -> String {
    let mut text = String::new();
    if let Some(network) = &report.environment.network {
        line(&mut text, &format!("between nodes: {network}"));
        text.push('\n');
    }
    for traffic in Traffic::ALL {
        for direction in Direction::ALL {
            for view in [
                view::rates(report, direction, traffic),
                view::single_shots(report, direction, traffic),
            ]
            .into_iter()
            .flatten()
            {
                draw(&mut text, &view);
            }
        }
    }
    for view in view::latencies(report)
        .into_iter()
        .chain(view::matrices(report))
    {
        draw(&mut text, &view);
    }
    if let Some(section) = &report.collectives {
        let world = section.world;
        head(&mut text, report, "Collectives", world, &section.baselines);
        for view in collectives::views(section) {
            draw(&mut text, &view);
        }
    }
    if let Some(section) = &report.ag_gemm {
        let world = section.world;
        head(
            &mut text,
            report,
            "All-gather + GEMM",
            world,
            &section.baselines,
        );
        for view in ag_gemm::views(section, published::is_hopper(&report.environment.devices)) {
            draw(&mut text, &view);
        }
    }
    if let Some(section) = &report.gemm_reduce {
        let what = format!("GEMM + {}", section.collective.label());
        head(&mut text, report, &what, section.world, &section.baselines);
        for view in gemm_reduce::views(section) {
            draw(&mut text, &view);
        }
    }
    if let Some(section) = &report.norms {
        let what = "All-reduce with RMSNorm";
        head(&mut text, report, what, section.world, &section.baselines);
        for view in norms::views(section) {
            draw(&mut text, &view);
        }
    }
    for note in &report.notes {
        line(&mut text, &format!("note: {note}"));
    }
    text
}

/// Draws the lines above collectives and operations with a GEMM: ranks, backend, multicast and baselines.
fn head(text: &mut String, report: &Report, what: &str, world: u32, baselines: &[BaselineState]) {
    let environment = &report.environment;
    line(
        text,
        &format!(
            "{what} of {world} ranks, {} backend, multicast (NVLS) {}",
            environment.backend, environment.multicast
        ),
    );
    for sentence in collectives::baselines(baselines) {
        line(text, &sentence);
    }
    text.push('\n');
}

/// One rule below the headings and one at the end, and none between rows.
const RULED: TableStyle = TableStyle::new()
    .header_separator(LineStyle::none().fill('─').junction('─'))
    .bottom_border(LineStyle::none().fill('─').junction('─'));

/// Draws one table with its title and captions.
pub(super) fn draw(text: &mut String, view: &View) {
    line(text, &view.title);
    let mut table = Table::new();
    table
        .load_style(RULED)
        .set_content_arrangement(ContentArrangement::Disabled)
        .set_header(view.headings.iter().map(|heading| heading.text.as_str()));
    for row in &view.rows {
        table.add_row(row.iter().map(view::Cell::text));
    }
    for column in table.column_iter_mut() {
        column.set_cell_alignment(CellAlignment::Right);
    }
    line(text, &table.to_string());
    for sentence in &view.caption {
        line(text, sentence);
    }
    for heading in &view.headings {
        if let Some(detail) = &heading.detail {
            line(text, &format!("{}: {detail}", heading.text));
        }
    }
    text.push('\n');
}

/// Appends lines without trailing blanks, and without control characters, which could steer the terminal.
fn line(text: &mut String, content: &str) {
    for part in content.lines() {
        let visible: String = part.chars().filter(|letter| !letter.is_control()).collect();
        // Writing to a String cannot fail.
        let _ = writeln!(text, "{}", visible.trim_end());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    #[test]
    fn every_direction_has_its_table_with_every_column() {
        let text = terminal(&fixture::cuda());
        for part in [
            "Push, both ways at once",
            "Pull, one way",
            "block128",
            "nvshmem",
            "ratio",
            "copy engine",
            "in flight",
            "GB/s (10⁹ bytes a second)",
            "p50/p99",
            "Latency",
            "Every pair",
            "note: ",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }

    #[test]
    fn lines_fit_a_wide_terminal() {
        let mut pairs = fixture::cuda();
        (pairs.collectives, pairs.ag_gemm) = (None, None);
        for (report, most) in [(pairs, 110), (fixture::host(), 110), (fixture::cuda(), 150)] {
            for line in terminal(&report).lines() {
                assert!(line.chars().count() <= most, "{line}");
            }
        }
    }

    #[test]
    fn what_is_absent_leaves_no_trace() {
        let text = terminal(&fixture::host());
        for part in ["nvshmem", "copy engine", "both ways", "Latency", "graph GB"] {
            assert!(!text.contains(part), "{part:?} is in\n{text}");
        }
        assert!(text.contains("memcpy"));
    }

    #[test]
    fn nothing_in_a_report_can_steer_the_terminal() {
        let mut report = fixture::host();
        report.notes.push("\u{1b}[31mred\u{7}".to_owned());
        let text = terminal(&report);
        assert!(!text.contains(['\u{1b}', '\u{7}']));
        assert!(text.contains("[31mred"));
    }

    #[test]
    fn a_report_of_nothing_is_empty() {
        let mut report = fixture::host();
        report.points.clear();
        assert_eq!(terminal(&report), "");
    }
}
