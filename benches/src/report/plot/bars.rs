//! Contenders side by side: a bar from zero to the median for each, with the range of its rounds across.

use std::fmt::{self, Write};

use super::axis::{self, Axis};
use super::{Limit, Mark, WIDTH, class, mark, value};
use crate::report::html::Escaped;

/// Where bars begin; names stand left of it.
const LEFT: f64 = 156.0;
const RIGHT: f64 = 18.0;
const TOP: f64 = 8.0;
const BOTTOM: f64 = 40.0;
const LANE: f64 = 21.0;
const BAR: f64 = 11.0;
/// A line of a group's label, and how many letters it holds on a narrow screen.
const LABEL: f64 = 20.0;
const LETTERS: usize = 50;

/// A plot of bars, all on the same axis.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Bars {
    pub unit: &'static str,
    pub limit: Option<Limit>,
    pub groups: Vec<Group>,
}

/// Bars under a common label.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Group {
    pub label: String,
    /// Whether the label is drawn above the bars; tooltips always have it.
    pub labeled: bool,
    pub lanes: Vec<Lane>,
}

/// One bar.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::report) struct Lane {
    pub series: usize,
    pub name: String,
    pub mark: Mark,
}

impl Bars {
    /// One plot as an `svg` element; `None` if there is nothing to draw.
    pub fn draw(&self, label: &str) -> Result<Option<String>, fmt::Error> {
        let drawn = |lane: &&Lane| lane.mark.value.is_finite() && lane.mark.value > 0.0;
        let lanes = || {
            let all = self.groups.iter().flat_map(|group| &group.lanes);
            all.filter(drawn)
        };
        let ends = lanes().flat_map(|lane| {
            let most = lane.mark.range.map_or(lane.mark.value, |(_, most)| most);
            [lane.mark.value, most]
        });
        let limit = self.limit.iter().map(|limit| limit.value);
        let most = ends.chain(limit).filter(|end| end.is_finite());
        let most = most.fold(0.0, f64::max);
        if lanes().next().is_none() {
            return Ok(None);
        }
        let axis = Axis::from_zero(most);
        let across = |value: f64| LEFT + axis.place(value).clamp(0.0, 1.0) * (WIDTH - LEFT - RIGHT);
        let mut rows = String::new();
        let mut top = TOP;
        for group in &self.groups {
            if group.labeled {
                for line in lines(&group.label) {
                    top += LABEL;
                    write!(
                        rows,
                        "<text class=\"group\" x=\"2\" y=\"{:.1}\">{}</text>",
                        top - 5.0,
                        Escaped(&line)
                    )?;
                }
            }
            for lane in group.lanes.iter().filter(drawn) {
                self.draw_lane(&mut rows, group, lane, top, &across)?;
                top += LANE;
            }
            top += 4.0;
        }
        let height = top + BOTTOM;
        let mut svg = String::new();
        write!(
            svg,
            "<svg class=\"plot\" data-by=\"y\" viewBox=\"0 0 {WIDTH} {height:.0}\" tabindex=\"0\" role=\"img\" \
             aria-label=\"{}: bars in {}. The arrow keys read the values.\"><g class=\"grid\">",
            Escaped(label),
            self.unit
        )?;
        for (index, tick) in axis.ticks.iter().enumerate() {
            let x = across(*tick);
            let odd = if index % 2 == 1 { " odd" } else { "" };
            write!(
                svg,
                "<path d=\"M{x:.1},{TOP}V{top:.1}\"/><text class=\"x{odd}\" x=\"{x:.1}\" y=\"{:.1}\">{}</text>",
                top + 18.0,
                axis::label(*tick)
            )?;
        }
        write!(
            svg,
            "<text class=\"unit\" x=\"2\" y=\"{:.1}\">{}</text></g>{rows}",
            top + 18.0,
            self.unit
        )?;
        if let Some(limit) = &self.limit {
            let x = across(limit.value);
            write!(
                svg,
                "<g class=\"limit\"><path d=\"M{x:.1},{TOP}V{top:.1}\"/><text class=\"end\" x=\"{}\" y=\"{:.1}\">{}</text></g>",
                WIDTH - 4.0,
                top + 35.0,
                Escaped(&limit.name)
            )?;
        }
        svg.push_str("<path class=\"cross\"/></svg>");
        Ok(Some(svg))
    }

    fn draw_lane(
        &self,
        svg: &mut String,
        group: &Group,
        lane: &Lane,
        top: f64,
        across: &impl Fn(f64) -> f64,
    ) -> fmt::Result {
        let middle = top + LANE / 2.0;
        let end = across(lane.mark.value);
        write!(
            svg,
            "<g class=\"{}\"><text class=\"name\" x=\"{}\" y=\"{middle:.1}\">{}</text>\
             <path class=\"bar\" d=\"M{LEFT},{:.1}H{end:.1}v{BAR}H{LEFT}z\"/>",
            class(lane.series),
            LEFT - 8.0,
            Escaped(&shortened(&lane.name)),
            middle - BAR / 2.0
        )?;
        if let Some((least, most)) = lane.mark.range {
            write!(
                svg,
                "<path class=\"range\" d=\"M{:.1},{middle:.1}H{:.1}\"/>",
                across(least),
                across(most)
            )?;
        }
        let text = value(&lane.mark, self.unit);
        mark(
            svg,
            lane.series,
            [end, middle],
            &lane.name,
            &group.label,
            &text,
        )?;
        svg.push_str("</g>");
        Ok(())
    }
}

/// Shortens a name to the width left of the bars.
fn shortened(name: &str) -> String {
    match name.chars().count() {
        0..=18 => name.to_owned(),
        _ => name.chars().take(17).chain(['…']).collect(),
    }
}

/// Breaks a label into at most three lines that fit the plot.
fn lines(label: &str) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in label.split_whitespace() {
        let last = lines.last_mut().expect("a line is there from the start");
        let room = last.is_empty() || last.chars().count() + word.chars().count() < LETTERS;
        if room {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        } else {
            lines.push(word.to_owned());
        }
    }
    for line in &mut lines {
        if line.chars().count() > LETTERS {
            *line = line.chars().take(LETTERS - 1).chain(['…']).collect();
        }
    }
    lines.truncate(3);
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bars(values: &[f64]) -> Bars {
        let lane = |value: &f64| Lane {
            series: 0,
            name: "pull".into(),
            mark: Mark {
                at: 0,
                value: *value,
                range: Some((value * 0.9, value * 1.1)),
                note: String::new(),
            },
        };
        Bars {
            unit: "TFLOP/s",
            limit: None,
            groups: vec![Group {
                label: "16x32x64".into(),
                labeled: true,
                lanes: values.iter().map(lane).collect(),
            }],
        }
    }

    #[test]
    fn a_bar_has_a_name_a_range_and_a_value() {
        let svg = bars(&[1.0, 2.0]).draw("product").unwrap().unwrap();
        assert_eq!(svg.matches("class=\"bar\"").count(), 2);
        assert_eq!(svg.matches("class=\"range\"").count(), 2);
        assert!(svg.contains("<title>pull\n16x32x64\n1.00 TFLOP/s (0.900–1.10)</title>"));
        assert!(svg.contains("<text class=\"group\""));
    }

    #[test]
    fn without_a_positive_value_there_is_no_plot() {
        assert_eq!(bars(&[0.0, f64::NAN]).draw("product").unwrap(), None);
        assert_eq!(bars(&[]).draw("product").unwrap(), None);
        let svg = bars(&[f64::MAX / 2.0]).draw("product").unwrap().unwrap();
        assert!(!svg.contains("NaN"));
    }

    #[test]
    fn a_long_label_is_broken_between_words() {
        let label = "put of 1024 bytes by 128 threads, release, signal, to a polling kernel";
        assert_eq!(
            lines(label),
            [
                "put of 1024 bytes by 128 threads, release, signal,",
                "to a polling kernel"
            ]
        );
        assert_eq!(lines(&"x".repeat(99))[0].chars().count(), LETTERS);
    }
}
