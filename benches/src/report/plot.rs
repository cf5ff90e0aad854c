//! Rates over sizes as SVG: both axes logarithmic, a line for each column, a title on each point.
//!
//! poloto draws the axes with their grid and labels, in the logarithms of the figures. What lies on
//! them is ours: poloto paints its grid over its lines and gives points no titles. Colours come from
//! the page's style sheet, by class.

use std::fmt::Write;

use poloto::build;
use poloto::ticks::from_iter;

use super::collectives::{Collective, CollectiveResults, Curve, curves};
use super::html::Escaped;
use super::schema::{Column, Direction, Report, Traffic};
use super::text::{rate, size};
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
    /// Binary logarithms of bytes, or of rows.
    x: Axis,
    /// Decimal logarithms of rates.
    y: Axis,
    what: PlotKind,
}

/// What is drawn over what.
#[derive(Clone, Copy, Debug, PartialEq)]
enum PlotKind {
    /// GB/s over bytes.
    Bandwidth,
    /// TFLOP/s over rows.
    Gemm,
}

impl PlotKind {
    fn unit(self) -> &'static str {
        match self {
            Self::Bandwidth => "GB/s",
            Self::Gemm => "TFLOP/s",
        }
    }

    /// A place on the axis across.
    fn across(self, value: u64) -> String {
        match self {
            Self::Bandwidth => size(value),
            Self::Gemm => value.to_string(),
        }
    }

    /// What is there.
    fn title(self, name: &str, across: u64, figure: f64) -> String {
        let (place, unit) = (self.across(across), self.unit());
        let place = match self {
            Self::Bandwidth => place,
            Self::Gemm => format!("{place} rows"),
        };
        format!("{name}, {place}: {} {unit}", rate(figure).trim_end())
    }
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

    /// Between steps of 1, 2, 5, 10, 20, …; an axis within a decade has each digit for a step, and of
    /// an axis of many decades only whole ones are ticks.
    fn of_decades(least: f64, most: f64) -> Self {
        let (least, most) = (least.log10(), most.log10());
        let (first, last) = (least.floor() as i32, most.ceil() as i32);
        let digits: &[f64] = if most - least < 1.0 {
            &[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0, 9.0]
        } else {
            &[1.0, 2.0, 5.0]
        };
        let steps: Vec<f64> = (first..=last.max(first + 1))
            .flat_map(|decade| {
                digits
                    .iter()
                    .map(move |digit| f64::from(decade) + digit.log10())
            })
            .collect();
        // The first step is at or below `least`, and the last above `most`.
        let below = steps.iter().rposition(|step| *step <= least).unwrap_or(0);
        let above = steps.iter().position(|step| *step >= most);
        let above = above.unwrap_or(steps.len() - 1).max(below + 1);
        let (low, high) = (steps[below], steps[above]);
        let ticks = if high - low > 3.0 {
            let (first, last) = (low.ceil() as i32, high.floor() as i32);
            Self::of_powers(first, last).ticks
        } else {
            steps[below..=above].to_vec()
        };
        Self { ticks, low, high }
    }
}

impl Axes {
    /// For every transfer between pairs that can be drawn; `None` if none can.
    pub fn of(report: &Report) -> Option<Self> {
        let lines = (Traffic::ALL.iter())
            .flat_map(|traffic| Direction::ALL.map(|direction| (direction, *traffic)))
            .flat_map(|(direction, traffic)| series(report, direction, traffic));
        Self::over(&lines.collect::<Vec<_>>())
    }

    /// For every collective that can be drawn; `None` if none can.
    pub fn of_collectives(section: &CollectiveResults) -> Option<Self> {
        let lines = (section.measured().into_iter())
            .flat_map(|collective| curve_lines(PlotKind::Bandwidth, curves(section, collective)));
        Self::over(&lines.collect::<Vec<_>>())
    }

    /// For TFLOP/s over rows; `None` if nothing can be drawn.
    pub fn of_products<'a>(curves: impl IntoIterator<Item = Curve<'a>>) -> Option<Self> {
        let axes = Self::over(&curve_lines(PlotKind::Gemm, curves))?;
        Some(Self {
            what: PlotKind::Gemm,
            ..axes
        })
    }

    /// For curves that are drawn in several plots; `None` if none can be drawn.
    pub fn of_curves<'a>(curves: impl IntoIterator<Item = Curve<'a>>) -> Option<Self> {
        Self::over(&curve_lines(PlotKind::Bandwidth, curves))
    }

    fn over(lines: &[Line]) -> Option<Self> {
        let drawn: Vec<&Mark> = lines.iter().flat_map(|line| &line.marks).collect();
        let bytes = || drawn.iter().map(|mark| mark.bytes);
        let (small, large) = (bytes().min()?, bytes().max()?);
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
            what: PlotKind::Bandwidth,
        })
    }

    /// Where a point lies in the drawing.
    fn place(&self, mark: &Mark) -> [f64; 2] {
        let across = self.x.place((mark.bytes as f64).log2());
        let up = self.y.place(mark.gbps.log10());
        [
            BESIDE + across * (WIDTH - 2.0 * BESIDE),
            HEIGHT - ABOVE - up * (HEIGHT - 2.0 * ABOVE),
        ]
    }
}

/// A line of a plot, and the class of the style sheet that gives it its colour.
struct Line {
    class: &'static str,
    marks: Vec<Mark>,
}

/// A point of a line.
struct Mark {
    bytes: u64,
    gbps: f64,
    title: String,
}

/// The lines of a plot; only what has a logarithm, and only what was right.
fn series(report: &Report, direction: Direction, traffic: Traffic) -> Vec<Line> {
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
                    size(point.bytes),
                    rate(point.looped.gbps).trim_end(),
                    rate(point.looped.min).trim_end(),
                    rate(point.looped.max).trim_end(),
                ),
            })
            .collect()
    };
    (Column::ALL.into_iter())
        .map(|column| Line {
            class: column.class(),
            marks: marks(column),
        })
        .filter(|line: &Line| !line.marks.is_empty())
        .collect()
}

/// The classes of ours and of the baselines of collectives, in their order.
const COLLECTIVE_CLASSES: [&str; 6] = [
    "block128",
    "block-best",
    "grid-best",
    "copy-engine",
    "unrolled",
    "baseline",
];

/// The class of the line in place `index`: ours is the first.
pub(super) fn collective_class(index: usize) -> &'static str {
    COLLECTIVE_CLASSES[index.min(COLLECTIVE_CLASSES.len() - 1)]
}

/// The lines of curves; those without a point are left out.
fn curve_lines<'a>(what: PlotKind, curves: impl IntoIterator<Item = Curve<'a>>) -> Vec<Line> {
    (curves.into_iter())
        .map(|(place, name, curve)| Line {
            class: collective_class(place),
            marks: (curve.into_iter())
                .map(|(bytes, gbps)| Mark {
                    bytes,
                    gbps,
                    title: what.title(name, bytes, gbps),
                })
                .collect(),
        })
        .filter(|line| !line.marks.is_empty())
        .collect()
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
    let name = format!("{} bandwidth, {}", direction.label(), traffic.label());
    draw(&name, axes, &series(report, direction, traffic))
}

/// busbw of one collective operation over sizes, out of place; `None` if there is nothing to draw.
///
/// # Errors
/// As [`svg`].
pub(super) fn collective_svg(
    section: &CollectiveResults,
    axes: &Axes,
    collective: Collective,
) -> Result<Option<String>, std::fmt::Error> {
    let name = format!("busbw of {}", collective.name());
    curves_svg(&name, axes, curves(section, collective))
}

/// Curves of rates over sizes; `None` if there is nothing to draw.
///
/// # Errors
/// As [`svg`].
pub(super) fn curves_svg<'a>(
    name: &str,
    axes: &Axes,
    curves: impl IntoIterator<Item = Curve<'a>>,
) -> Result<Option<String>, std::fmt::Error> {
    draw(name, axes, &curve_lines(axes.what, curves))
}

fn draw(name: &str, axes: &Axes, lines: &[Line]) -> Result<Option<String>, std::fmt::Error> {
    if lines.is_empty() {
        return Ok(None);
    }
    let Axes { x, y, what } = axes;
    let corners = build::markers::<_, _, (f64, f64)>([x.low, x.high], [y.low, y.high]);
    let drawn = poloto::frame()
        .with_viewbox([WIDTH, HEIGHT])
        .with_tick_lines([true, true])
        .build()
        .data(corners)
        .map_xticks(|_| {
            from_iter(x.ticks.iter().copied()).with_tick_fmt(|tick| power_label(*what, *tick))
        })
        .map_yticks(|_| from_iter(y.ticks.iter().copied()).with_tick_fmt(|tick| rate_label(*tick)))
        .build_and_label(("", "", ""))
        .headless()
        .render_string()?;

    let mut text = format!(r#"<svg viewBox="{VIEW_BOX}" role="img" aria-label="{name}">{drawn}"#);
    write!(
        text,
        r#"<text class="unit" x="{}" y="{}">{}</text>"#,
        BESIDE - 8.0,
        ABOVE - 16.0,
        what.unit()
    )?;
    for Line { class, marks } in lines {
        write!(text, r#"<g class="{class}"><polyline points=""#)?;
        for mark in marks {
            let [across, up] = axes.place(mark);
            write!(text, "{across:.2},{up:.2} ")?;
        }
        text.push_str("\"/>");
        for mark in marks {
            let [across, up] = axes.place(mark);
            write!(
                text,
                r#"<circle cx="{across:.2}" cy="{up:.2}" r="3"><title>{}</title></circle>"#,
                Escaped(&mark.title),
            )?;
        }
        text.push_str("</g>");
    }
    text.push_str("</svg>");
    Ok(Some(text))
}

fn power_label(what: PlotKind, power: f64) -> String {
    // The last tick above the largest u64 would be 2⁶⁴.
    what.across(1 << (power as u32).min(63))
}

fn rate_label(power: f64) -> String {
    let rate = 10f64.powf(power);
    // Ticks are a digit times a power of ten: so many decimals are exact.
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

    /// The numbers of attribute `name` in each element that `begin` opens.
    fn numbers(svg: &str, begin: &str, name: &str) -> Vec<f64> {
        let of = |element: &str| -> Option<f64> {
            let element = &element[..element.find('>')?];
            let from = element.split_once(&format!("{name}=\""))?.1;
            from[..from.find('"')?].parse().ok()
        };
        svg.split(begin).skip(1).filter_map(of).collect()
    }

    #[test]
    fn points_lie_on_the_axes_that_poloto_draws() {
        let mut report = fixture::cuda();
        // One point on a tick of each axis.
        report.points.truncate(2);
        (report.points[0].bytes, report.points[0].looped.gbps) = (2048, 1.0);
        (report.points[1].bytes, report.points[1].looped.gbps) = (4096, 10.0);
        let svg = push(&report);
        let grid = |axis: &str| {
            let from = &svg[svg.find(&format!("poloto_grid poloto_{axis}")).unwrap()..];
            from[..from.find("</g>").unwrap()].to_owned()
        };
        let (across, up) = (
            numbers(&grid("x"), "<line", "x1"),
            numbers(&grid("y"), "<line", "y1"),
        );
        assert_eq!((across.len(), up.len()), (2, 4), "2 and 4 KiB; 1, 2, 5, 10");
        let (cx, cy) = (
            numbers(&svg, "<circle", "cx"),
            numbers(&svg, "<circle", "cy"),
        );
        assert_eq!(cx, across);
        assert_eq!(cy, [up[0], up[3]]);
    }

    #[test]
    fn every_point_has_a_title_and_no_element_an_id() {
        let svg = push(&fixture::cuda());
        assert_eq!(svg.matches("<title>").count(), 6 * 8);
        assert_eq!(svg.matches("<polyline").count(), 6);
        assert!(svg.contains("<title>block128, 2 KiB: "));
        assert!(!svg.contains(" id="));
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
        assert_eq!(power_label(PlotKind::Bandwidth, 21.0), "2 MiB");
        assert_eq!(power_label(PlotKind::Gemm, 10.0), "1024");
    }
}
