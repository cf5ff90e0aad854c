//! Rates over sizes as SVG: both axes logarithmic, a line for each column, a title on each point.
//!
//! poloto draws axes, grid and lines in the logarithms of the figures; colours come from the page's
//! style sheet by class. The points are ours, because poloto's carry no title.

use std::fmt::Write;

use poloto::build;
use poloto::ticks::from_iter;

use super::page::Escaped;
use super::schema::{Column, Direction, Report, Traffic};
use super::view;

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 520.0;
/// What poloto leaves free beside and above the axes. It does not say so; a test compares.
const BESIDE: f64 = 150.0;
const ABOVE: f64 = 100.0;
/// The part that is shown: poloto's margins are made for a legend and titles that the page has itself.
const VIEW_BOX: &str = "98 72 640 382";
/// Most ticks on an axis.
const MOST_TICKS: i32 = 8;

/// The axes that all plots of a report share, so that one can be held against another.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Axes {
    /// Binary logarithms of bytes.
    x: Axis,
    /// Decimal logarithms of GB/s.
    y: Axis,
}

#[derive(Clone, Debug, PartialEq)]
struct Axis {
    ticks: Vec<f64>,
    low: f64,
    high: f64,
}

impl Axis {
    /// Between 0 and 1.
    fn place(&self, value: f64) -> f64 {
        (value - self.low) / (self.high - self.low)
    }

    /// Over whole powers, at a stride that leaves between 2 and about [`MOST_TICKS`] ticks.
    fn of_powers(low: i32, high: i32) -> Self {
        let high = high.max(low + 1);
        let stride = (high - low + MOST_TICKS - 1) / MOST_TICKS;
        Self {
            ticks: (low..=high)
                .step_by(stride as usize)
                .map(f64::from)
                .collect(),
            low: low.into(),
            high: high.into(),
        }
    }

    /// Over 1, 2, 5, 10, 20, …: the finer ticks of an axis of few decades.
    fn of_decades(least: f64, most: f64) -> Self {
        let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        if high - low > 3 {
            return Self::of_powers(low, high);
        }
        let ladder: Vec<f64> = (low..=high.max(low + 1))
            .flat_map(|decade| [1.0f64, 2.0, 5.0].map(|step| step.log10() + f64::from(decade)))
            .collect();
        let below = ladder.iter().rposition(|tick| *tick <= least.log10());
        let above = ladder.iter().position(|tick| *tick >= most.log10());
        let below = below.unwrap_or(0);
        let above = above.unwrap_or(ladder.len() - 1).max(below + 1);
        let ticks = ladder[below..=above.min(ladder.len() - 1)].to_vec();
        Self {
            low: ticks[0],
            high: ticks[ticks.len() - 1],
            ticks,
        }
    }
}

impl Axes {
    /// For everything in the report that can be drawn; `None` if nothing can.
    pub fn of(report: &Report) -> Option<Self> {
        let drawn: Vec<Mark> = (Traffic::ALL.iter())
            .flat_map(|traffic| Direction::ALL.map(|direction| (direction, *traffic)))
            .flat_map(|(direction, traffic)| series(report, direction, traffic))
            .flat_map(|(_, marks)| marks)
            .collect();
        let bytes = |mark: &Mark| mark.bytes;
        let (small, large) = (
            drawn.iter().map(bytes).min()?,
            drawn.iter().map(bytes).max()?,
        );
        let rates = || drawn.iter().map(|mark| mark.gbps);
        Some(Self {
            x: Axis::of_powers(
                (small as f64).log2().floor() as i32,
                (large as f64).log2().ceil() as i32,
            ),
            y: Axis::of_decades(
                rates().fold(f64::INFINITY, f64::min),
                rates().fold(0.0, f64::max),
            ),
        })
    }
}

/// A point of a line.
struct Mark {
    bytes: u64,
    gbps: f64,
    title: String,
}

impl Mark {
    fn logarithms(&self) -> [f64; 2] {
        [(self.bytes as f64).log2(), self.gbps.log10()]
    }
}

/// The lines of a plot; only what has a logarithm, and only what was right.
fn series(report: &Report, direction: Direction, traffic: Traffic) -> Vec<(Column, Vec<Mark>)> {
    let lines = view::slowest_points(report, direction, traffic);
    let marks = |column: Column| {
        (lines.iter().filter(move |point| point.column == column))
            .filter(|point| point.wrong_bytes == 0 && point.bytes != 0)
            .filter(|point| point.looped.gbps.is_finite() && point.looped.gbps > 0.0)
            .map(|point| Mark {
                bytes: point.bytes,
                gbps: point.looped.gbps,
                title: format!(
                    "{}, {}: {} GB/s ({}–{})",
                    column.label(),
                    view::size(point.bytes),
                    view::rate(point.looped.gbps).trim_end(),
                    view::rate(point.looped.min).trim_end(),
                    view::rate(point.looped.max).trim_end(),
                ),
            })
            .collect()
    };
    Column::ALL.map(|column| (column, marks(column))).into()
}

/// One plot as an `svg` element; `None` if there is nothing to draw.
///
/// # Errors
/// Those of poloto's writer; writing to memory raises none.
pub(super) fn svg(
    report: &Report,
    axes: &Axes,
    direction: Direction,
    traffic: Traffic,
) -> Result<Option<String>, std::fmt::Error> {
    let series = series(report, direction, traffic);
    if series.iter().all(|(_, marks)| marks.is_empty()) {
        return Ok(None);
    }
    let Axes { x, y } = axes;
    let lines = series.iter().map(|(_, marks)| {
        // Every column has a line, if an empty one: its number, and so its colour, is always the same.
        let line: Vec<[f64; 2]> = marks.iter().map(Mark::logarithms).collect();
        build::plot("").line(line)
    });
    let bounds = build::markers([x.low, x.high], [y.low, y.high]);
    let drawn = poloto::frame()
        .with_viewbox([WIDTH, HEIGHT])
        .with_tick_lines([true, true])
        .num_css_class(None)
        .build()
        .data(poloto::plots!(bounds, lines))
        .map_xticks(|_| from_iter(x.ticks.iter().copied()).with_tick_fmt(|tick| bytes_label(*tick)))
        .map_yticks(|_| from_iter(y.ticks.iter().copied()).with_tick_fmt(|tick| rate_label(*tick)))
        .build_and_label(("", "", ""))
        .headless()
        .render_string()?;

    let name = format!("{} bandwidth, {}", direction.label(), traffic.label());
    let mut text = format!(r#"<svg viewBox="{VIEW_BOX}" role="img" aria-label="{name}">"#);
    // poloto numbers its lines by id in each plot; on a page of several these would not be unique.
    let mut rest = drawn.as_str();
    while let Some(at) = rest.find(" id=\"poloto_plot") {
        text.push_str(&rest[..at]);
        let after = &rest[at + " id=\"".len()..];
        rest = after.find('"').map_or("", |end| &after[end + 1..]);
    }
    text.push_str(rest);
    write!(
        text,
        r#"<text class="unit" x="{}" y="{}">GB/s</text>"#,
        BESIDE - 8.0,
        ABOVE - 16.0
    )?;
    for (column, marks) in &series {
        for mark in marks {
            let [across, up] = mark.logarithms();
            write!(
                text,
                r#"<circle class="mark poloto{}" cx="{:.2}" cy="{:.2}" r="3"><title>{}</title></circle>"#,
                *column as usize,
                BESIDE + x.place(across) * (WIDTH - 2.0 * BESIDE),
                HEIGHT - ABOVE - y.place(up) * (HEIGHT - 2.0 * ABOVE),
                Escaped(&mark.title),
            )?;
        }
    }
    text.push_str("</svg>");
    Ok(Some(text))
}

fn bytes_label(power: f64) -> String {
    // The last tick above the largest u64 would be 2⁶⁴.
    view::size(1 << (power as u32).min(63))
}

fn rate_label(power: f64) -> String {
    let rate = 10f64.powf(power);
    // Ticks are 1, 2 or 5 times a power of ten: so many decimals are exact.
    let decimals = (-(power + 1e-9).floor()).max(0.0) as usize;
    format!("{rate:.decimals$}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::fixture;

    fn push(report: &Report) -> String {
        let axes = Axes::of(report).unwrap();
        svg(report, &axes, Direction::Push, Traffic::BothWays)
            .unwrap()
            .unwrap()
    }

    /// The vertices of poloto's line number `line`.
    fn vertices(svg: &str, line: usize) -> Vec<[f64; 2]> {
        let group = svg.find(&format!("poloto_line poloto{line} ")).unwrap();
        let path = &svg[group..];
        let path = &path[path.find(" d=\"").unwrap() + 4..];
        let path = &path[..path.find('"').unwrap()];
        let numbers: Vec<f64> = path
            .split(|letter: char| !letter.is_ascii_digit() && letter != '.')
            .filter_map(|number| number.parse().ok())
            .collect();
        numbers.chunks_exact(2).map(|at| [at[0], at[1]]).collect()
    }

    fn marks(svg: &str, line: usize) -> Vec<[f64; 2]> {
        let number = |text: &str, name: &str| -> f64 {
            let from = &text[text.find(&format!("{name}=\"")).unwrap() + name.len() + 2..];
            from[..from.find('"').unwrap()].parse().unwrap()
        };
        svg.split("<circle ")
            .filter(|circle| circle.starts_with(&format!("class=\"mark poloto{line}\"")))
            .map(|circle| [number(circle, "cx"), number(circle, "cy")])
            .collect()
    }

    #[test]
    fn marks_lie_on_the_vertices_of_their_line() {
        let svg = push(&fixture::cuda());
        for column in [Column::Block128, Column::Nvshmem] {
            let (line, marks) = (
                vertices(&svg, column as usize),
                marks(&svg, column as usize),
            );
            assert_eq!(line.len(), 8);
            assert_eq!(line.len(), marks.len());
            for (a, b) in line.iter().zip(&marks) {
                assert!(
                    (a[0] - b[0]).abs() < 0.02 && (a[1] - b[1]).abs() < 0.02,
                    "{a:?} {b:?}"
                );
            }
        }
    }

    #[test]
    fn every_point_has_a_title_and_no_element_an_id() {
        let svg = push(&fixture::cuda());
        assert_eq!(svg.matches("<title>").count(), 6 * 8);
        assert!(svg.contains("<title>block128, 2 KiB: "));
        assert!(!svg.contains("id=\"poloto"));
    }

    #[test]
    fn what_is_wrong_or_has_no_logarithm_is_not_drawn() {
        let mut report = fixture::cuda();
        report.points[0].wrong_bytes = 1;
        report.points[1].looped.gbps = 0.0;
        report.points[2].looped.gbps = f64::NAN;
        let svg = push(&report);
        assert_eq!(svg.matches("<title>").count(), 6 * 8 - 3);
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn one_point_or_a_huge_one_can_be_drawn() {
        let mut report = fixture::cuda();
        report.points.truncate(1);
        for (bytes, gbps) in [(1, 1.0), (4096, 10.0), (u64::MAX, f64::MAX), (3, 1e-300)] {
            report.points[0].bytes = bytes;
            report.points[0].looped.gbps = gbps;
            assert!(push(&report).contains("<title>"), "{bytes} {gbps}");
        }
        report.points.clear();
        assert_eq!(Axes::of(&report), None);
    }

    #[test]
    fn axes_end_at_ticks_and_hold_every_point() {
        for (least, most) in [
            (0.2, 350.0),
            (1.0, 1.0),
            (0.99, 1.01),
            (2.0, 5.0),
            (9.9, 99.0),
            (1e-9, 1e3),
        ] {
            let axis = Axis::of_decades(least, most);
            assert!(axis.ticks.len() >= 2, "{axis:?}");
            assert!(axis.ticks.len() <= 13, "{axis:?}");
            assert!(
                axis.low <= least.log10() && most.log10() <= axis.high,
                "{least} {most} {axis:?}"
            );
        }
        let axis = Axis::of_powers(11, 30);
        assert_eq!(axis.ticks, [11.0, 14.0, 17.0, 20.0, 23.0, 26.0, 29.0]);
    }

    #[test]
    fn labels_are_exact() {
        let labels = [-2.0, -1.0, 0.5f64.log10(), 0.0, 5f64.log10(), 3.0].map(rate_label);
        assert_eq!(labels, ["0.01", "0.1", "0.5", "1", "5", "1000"]);
        assert_eq!(bytes_label(21.0), "2 MiB");
    }
}
