//! Transfers between pairs: push beside pull for each kind of traffic, and their tables.

use super::super::html::{Document, table};
use super::super::plot::{self, Across, Axes, Limit, Line, Mark};
use super::super::schema::{Column, Direction, Point, Report, Traffic};
use super::super::text::{capital, decimal};
use super::super::view;
use std::fmt::{self, Write};

/// Writes the section of transfers; nothing if none was measured. `limit` is the bandwidth of the link of a pair.
pub(super) fn section(page: &mut Document, report: &Report, limit: Option<Limit>) -> fmt::Result {
    if report.points.is_empty() {
        return Ok(());
    }
    let all: Vec<(Traffic, Direction, Vec<Line>)> = (Traffic::ALL.into_iter())
        .flat_map(|traffic| Direction::ALL.map(|direction| (traffic, direction)))
        .map(|(traffic, direction)| (traffic, direction, lines(report, direction, traffic)))
        .collect();
    let drawn = || all.iter().flat_map(|(_, _, lines)| lines);
    let axes = Axes::over(Across::Bytes, "GB/s", limit, drawn());
    let text = page.section("Transfers between pairs")?;
    if axes.is_some() {
        plot::legend(text, drawn())?;
        explain(text, report)?;
    }
    for traffic in Traffic::ALL {
        let measured = report.points.iter().any(|point| point.traffic == traffic);
        if !measured {
            continue;
        }
        let text = page.part(&capital(traffic.label()))?;
        if let Some(axes) = &axes {
            text.push_str("<div class=\"plots\">\n");
            for (_, direction, lines) in all.iter().filter(|(of, _, _)| *of == traffic) {
                let title = format!("{}, {}", capital(direction.label()), traffic.label());
                if let Some(svg) = axes.draw(&title, lines)? {
                    plot::figure(text, &title, "per rank that moves data, looped", &svg)?;
                }
            }
            text.push_str("</div>\n");
        }
        for direction in Direction::ALL {
            for view in [
                view::rates(report, direction, traffic),
                view::single_shots(report, direction, traffic),
            ]
            .into_iter()
            .flatten()
            {
                table(text, &view)?;
            }
        }
    }
    Ok(())
}

/// Explains the columns that ran kernels.
fn explain(text: &mut String, report: &Report) -> fmt::Result {
    let sentences = Column::ALL.into_iter().filter_map(|column| {
        let what = match column {
            Column::Block128 => "one block of 128 threads",
            Column::BlockBest => "one block, its fastest geometry at each size",
            Column::GridBest => "at most 16 blocks, the fastest at each size",
            Column::Unrolled => "one block of 128 threads by TileScale's unrolled copy",
            Column::CopyEngine | Column::Nvshmem | Column::Memcpy | Column::UcxPerftest => {
                return None;
            }
        };
        let ran = |point: &Point| point.column == column && point.blocks != 0;
        let ran = report.points.iter().any(ran);
        ran.then(|| format!("{}: {what}", column.label()))
    });
    let sentences: Vec<String> = sentences.collect();
    if sentences.is_empty() {
        return Ok(());
    }
    writeln!(text, "<p class=\"caption\">{}.</p>", sentences.join("; "))
}

/// Returns one line per column with the slowest pair at each size; wrong results are left out.
fn lines(report: &Report, direction: Direction, traffic: Traffic) -> Vec<Line> {
    let points = view::slowest_points(report, direction, traffic);
    let of = |column: Column| points.iter().filter(move |point| point.column == column);
    let line = |(series, column): (usize, Column)| {
        let right = of(column).filter(|point| point.wrong_bytes == 0);
        Line {
            // NVSHMEM and memcpy never stand in one report.
            series: series.min(5),
            ours: !column.is_baseline(),
            name: view::name(of(column).copied(), column).to_owned(),
            marks: right.map(|point| mark(point)).collect(),
        }
    };
    let lines = Column::ALL.into_iter().enumerate().map(line);
    lines.filter(|line| !line.marks.is_empty()).collect()
}

fn mark(point: &Point) -> Mark {
    let mut note = format!("{} µs", decimal(point.looped.ns / 1e3));
    if !point.method.is_empty() {
        note += &format!(", {}", point.method);
    }
    if point.blocks != 0 {
        note += &format!(" {}×{}", point.blocks, point.threads);
    }
    Mark {
        at: point.bytes,
        value: point.looped.gbps,
        range: Some((point.looped.min, point.looped.max)),
        note,
    }
}
