//! Rates over sizes on logarithmic axes: one line per contender with the min–max band of its rounds, and a line for the
//! physical limit.

use std::fmt::{self, Write};

use super::axis::{self, Axis};
use super::{Limit, Line, Mark, WIDTH, class, mark, value};
use crate::report::html::Escaped;
use crate::report::text::size;

const HEIGHT: f64 = 300.0;
const LEFT: f64 = 52.0;
const RIGHT: f64 = 16.0;
const TOP: f64 = 26.0;
const BOTTOM: f64 = 37.0;

/// Quantity on the horizontal axis.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::report) enum Across {
    Bytes,
    Rows,
}

impl Across {
    fn label(self, value: u64) -> String {
        match self {
            Self::Bytes => size(value),
            Self::Rows => value.to_string(),
        }
    }

    fn place(self, value: u64) -> String {
        match self {
            Self::Bytes => size(value),
            Self::Rows => format!("{value} rows"),
        }
    }
}

/// The axes that several plots share, so that one can be held against another.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Axes {
    across: Across,
    unit: &'static str,
    limit: Option<Limit>,
    /// Binary logarithms of bytes or rows.
    x: Axis,
    /// Decimal logarithms of rates.
    y: Axis,
}

/// Whether a mark can be drawn on logarithmic axes.
fn is_drawn(mark: &&Mark) -> bool {
    mark.at != 0 && mark.value.is_finite() && mark.value > 0.0
}

impl Axes {
    /// For lines that are drawn in several plots; `None` if no point of them can be drawn.
    pub fn over<'a>(
        across: Across,
        unit: &'static str,
        limit: Option<Limit>,
        lines: impl IntoIterator<Item = &'a Line>,
    ) -> Option<Self> {
        let marks: Vec<&Mark> = (lines.into_iter())
            .flat_map(|line| line.marks.iter().filter(is_drawn))
            .collect();
        let at = || marks.iter().map(|mark| mark.at);
        let (small, large) = (at().min()?, at().max()?);
        // With the bands, so that none ends at the edge of a plot.
        let values = || {
            let range = |mark: &Mark| mark.range.map_or([mark.value; 2], <[f64; 2]>::from);
            let ends = marks
                .iter()
                .flat_map(move |mark| [[mark.value; 2], range(mark)]);
            ends.flatten().filter(|end| end.is_finite() && *end > 0.0)
        };
        let limits = || limit.iter().map(|limit| limit.value);
        let least = values().chain(limits()).fold(f64::INFINITY, f64::min);
        let most = values().chain(limits()).fold(0.0, f64::max);
        Some(Self {
            across,
            unit,
            x: Axis::of_powers(
                (small as f64).log2().floor() as i32,
                (large as f64).log2().ceil() as i32,
            ),
            y: Axis::of_decades(least, most),
            limit,
        })
    }

    fn across(&self, at: u64) -> f64 {
        LEFT + self.x.place((at as f64).log2()) * (WIDTH - LEFT - RIGHT)
    }

    fn up(&self, value: f64) -> f64 {
        let place = self.y.place(value.log10()).clamp(0.0, 1.0);
        HEIGHT - BOTTOM - place * (HEIGHT - TOP - BOTTOM)
    }

    /// One plot as an `svg` element; `None` if there is nothing to draw.
    pub fn draw(&self, label: &str, lines: &[Line]) -> Result<Option<String>, fmt::Error> {
        let drawn = |line: &&Line| line.marks.iter().any(|mark| is_drawn(&mark));
        let lines: Vec<&Line> = lines.iter().filter(drawn).collect();
        if lines.is_empty() {
            return Ok(None);
        }
        let mut svg = String::new();
        write!(
            svg,
            "<svg class=\"plot\" data-by=\"x\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" tabindex=\"0\" role=\"img\" \
             aria-label=\"{}: {} over {}, both logarithmic. Lines: {}. The arrow keys read the values.\">",
            Escaped(label),
            self.unit,
            match self.across {
                Across::Bytes => "bytes",
                Across::Rows => "rows",
            },
            Escaped(&names(&lines))
        )?;
        self.draw_grid(&mut svg)?;
        if let Some(limit) = &self.limit {
            let up = self.up(limit.value);
            write!(
                svg,
                "<g class=\"limit\"><path d=\"M{LEFT},{up:.1}H{}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text></g>",
                WIDTH - RIGHT,
                WIDTH - RIGHT,
                up - 5.0,
                Escaped(&limit.name)
            )?;
        }
        for line in lines {
            self.draw_line(&mut svg, line)?;
        }
        svg.push_str("<path class=\"cross\"/></svg>");
        Ok(Some(svg))
    }

    fn draw_grid(&self, svg: &mut String) -> fmt::Result {
        let (right, bottom) = (WIDTH - RIGHT, HEIGHT - BOTTOM);
        svg.push_str("<g class=\"grid\">");
        for (index, tick) in self.x.ticks.iter().enumerate() {
            // The last tick above the largest u64 would be 2⁶⁴.
            let at = 1u64 << (*tick as u32).min(63);
            let x = LEFT + self.x.place(*tick) * (right - LEFT);
            let odd = if index % 2 == 1 { " odd" } else { "" };
            write!(
                svg,
                "<path d=\"M{x:.1},{TOP}V{bottom}\"/><text class=\"x{odd}\" x=\"{x:.1}\" y=\"{}\">{}</text>",
                bottom + 24.0,
                self.across.label(at)
            )?;
        }
        for tick in &self.y.ticks {
            let figure = 10f64.powf(*tick).min(f64::MAX);
            let y = self.up(figure);
            write!(
                svg,
                "<path d=\"M{LEFT},{y:.1}H{right}\"/><text class=\"y\" x=\"{}\" y=\"{y:.1}\">{}</text>",
                LEFT - 7.0,
                axis::label(figure)
            )?;
        }
        write!(
            svg,
            "<text class=\"unit\" x=\"2\" y=\"12\">{}</text></g>",
            self.unit
        )
    }

    fn draw_line(&self, svg: &mut String, line: &Line) -> fmt::Result {
        let theirs = if line.ours { "" } else { " theirs" };
        write!(svg, "<g class=\"{}{theirs}\">", class(line.series))?;
        let marks = || line.marks.iter().filter(is_drawn);
        let band: Vec<(f64, f64, f64)> = marks()
            .map(|mark| {
                let (least, most) = mark.range.unwrap_or((mark.value, mark.value));
                let least = if least > 0.0 { least } else { mark.value };
                (self.across(mark.at), self.up(least), self.up(most))
            })
            .collect();
        if band
            .iter()
            .any(|(_, least, most)| (least - most).abs() > 0.2)
        {
            svg.push_str("<path class=\"band\" d=\"M");
            for (x, _, most) in &band {
                write!(svg, "{x:.1},{most:.1} ")?;
            }
            for (x, least, _) in band.iter().rev() {
                write!(svg, "{x:.1},{least:.1} ")?;
            }
            svg.push_str("z\"/>");
        }
        svg.push_str("<polyline points=\"");
        for mark in marks() {
            write!(
                svg,
                "{:.1},{:.1} ",
                self.across(mark.at),
                self.up(mark.value)
            )?;
        }
        svg.push_str("\"/>");
        for one in marks() {
            mark(
                svg,
                line.series,
                [self.across(one.at), self.up(one.value)],
                &line.name,
                &self.across.place(one.at),
                &value(one, self.unit),
            )?;
        }
        svg.push_str("</g>");
        Ok(())
    }
}

fn names(lines: &[&Line]) -> String {
    let names: Vec<&str> = lines.iter().map(|line| line.name.as_str()).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(values: &[(u64, f64)]) -> Line {
        Line {
            series: 0,
            ours: true,
            name: "symmem".into(),
            marks: (values.iter())
                .map(|(at, value)| Mark {
                    at: *at,
                    value: *value,
                    range: Some((value * 0.5, value * 1.5)),
                    note: String::new(),
                })
                .collect(),
        }
    }

    fn draw(line: &Line, limit: Option<Limit>) -> Option<String> {
        let axes = Axes::over(Across::Bytes, "GB/s", limit, [line])?;
        axes.draw("push", std::slice::from_ref(line)).unwrap()
    }

    /// The numbers of an attribute in each element that `begin` opens.
    fn numbers(svg: &str, begin: &str, name: &str) -> Vec<f64> {
        let of = |element: &str| -> Option<f64> {
            let element = &element[..element.find('>')?];
            let from = element.split_once(&format!(" {name}=\""))?.1;
            from[..from.find('"')?].parse().ok()
        };
        svg.split(begin).skip(1).filter_map(of).collect()
    }

    #[test]
    fn points_lie_at_the_ticks_of_their_values() {
        let mut line = line(&[(2048, 1.0), (4096, 10.0)]);
        for mark in &mut line.marks {
            mark.range = None;
        }
        let svg = draw(&line, None).unwrap();
        let across = numbers(&svg, "<text class=\"x", "x");
        let up = numbers(&svg, "<text class=\"y\"", "y");
        assert_eq!((across.len(), up.len()), (2, 4), "2 and 4 KiB; 1, 2, 5, 10");
        assert_eq!(numbers(&svg, "<use", "x"), across);
        assert_eq!(numbers(&svg, "<use", "y"), [up[0], up[3]]);
    }

    #[test]
    fn a_point_says_who_where_and_how_much() {
        let svg = draw(&line(&[(2048, 1.0), (4096, 10.0)]), None).unwrap();
        assert!(svg.contains("<title>symmem\n2 KiB\n1.00 GB/s (0.500–1.50)</title>"));
        assert!(svg.contains("class=\"band\"") && !svg.contains(" id="));
    }

    #[test]
    fn the_limit_is_on_the_axis_and_a_line_of_its_own() {
        let limit = Limit {
            name: "link 450 GB/s".into(),
            value: 450.0,
        };
        let svg = draw(&line(&[(2048, 1.0), (4096, 10.0)]), Some(limit)).unwrap();
        assert!(svg.contains("class=\"limit\"") && svg.contains(">link 450 GB/s</text>"));
        let up = numbers(&svg, "<text class=\"end\"", "y")[0];
        let hundred = numbers(&svg, "<text class=\"y\"", "y")[2];
        assert!((10.0..hundred).contains(&up), "above 100: {up} {hundred}");
    }

    #[test]
    fn what_has_no_logarithm_is_not_drawn() {
        let svg = draw(
            &line(&[(0, 1.0), (8, 0.0), (16, f64::NAN), (32, 2.0)]),
            None,
        )
        .unwrap();
        assert_eq!(svg.matches("<title>").count(), 1);
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert_eq!(draw(&line(&[(0, 1.0)]), None), None);
    }

    #[test]
    fn one_point_or_a_huge_one_can_be_drawn() {
        for (at, value) in [(1, 1.0), (4096, 10.0), (u64::MAX, f64::MAX), (3, 1e-300)] {
            let svg = draw(&line(&[(at, value)]), None).unwrap();
            assert!(svg.contains("<title>"), "{at} {value}");
            assert!(!svg.contains("NaN") && !svg.contains("inf"), "{at} {value}");
        }
    }
}
