//! All-gather + GEMM as plots: lines over M for shapes that differ in M only, bars for the other shapes.

use super::kind::kind_text;
use super::view::names;
use super::{
    ALGORITHMS, AUTOMATIC, AgGemmResults, GATHER, GEMM, GemmProblem, Measured, TOGETHER, TORCH,
    TORCH_FUSED, TRANSFORMER_ENGINE, VARIANTS, WINDOWS,
};
use crate::report::collectives::Time;
use crate::report::plot::{Bars, Group, Lane, Limit, Line, Mark};
use crate::report::text::decimal;

/// Fewest values of M that make a line.
const FEWEST: usize = 3;

/// Contenders of a line plot, in the order of colors. Variants by transport are in the bars only.
const SERIES: [&str; 10] = [
    ALGORITHMS[2],
    ALGORITHMS[3],
    ALGORITHMS[1],
    ALGORITHMS[0],
    AUTOMATIC,
    GEMM,
    TORCH,
    TORCH_FUSED,
    TRANSFORMER_ENGINE,
    WINDOWS,
];

fn series(by: &str) -> usize {
    // A variant has the color of its algorithm; `own gemm` has that of the GEMM.
    let place = |by: &str| SERIES.iter().position(|name| *name == by);
    let algorithm = by.split(' ').next().unwrap_or(by);
    let of_algorithm = VARIANTS.contains(&by).then(|| place(algorithm)).flatten();
    place(by).or(of_algorithm).or(place(GEMM)).unwrap_or(0)
}

fn is_ours(by: &str) -> bool {
    ALGORITHMS.contains(&by) || VARIANTS.contains(&by) || by == AUTOMATIC
}

/// Shapes that differ in M only, and TFLOP/s over M of each contender.
pub(super) struct OverRows {
    pub title: String,
    pub lines: Vec<Line>,
}

fn kind(measured: &Measured) -> GemmProblem {
    GemmProblem {
        m: 0,
        ..measured.problem
    }
}

/// Returns a plot for every group of at least three shapes that differ in M only.
pub(super) fn over_rows(section: &AgGemmResults) -> Vec<OverRows> {
    let mut known: Vec<GemmProblem> = Vec::new();
    let mut plots = Vec::new();
    for measured in &section.products {
        let kind_of = kind(measured);
        let alike: Vec<&Measured> = alike(section, measured).collect();
        if known.contains(&kind_of) || alike.len() < FEWEST {
            continue;
        }
        known.push(kind_of);
        let line = |by: &str| {
            let mut marks: Vec<Mark> = alike.iter().filter_map(|one| mark(one, by)).collect();
            marks.sort_by_key(|mark| mark.at);
            Line {
                series: series(by),
                ours: is_ours(by),
                name: by.to_owned(),
                marks,
            }
        };
        let lines: Vec<Line> = (SERIES.into_iter().map(line))
            .filter(|line| !line.marks.is_empty())
            .collect();
        if !lines.is_empty() {
            let GemmProblem { n, k, .. } = kind_of;
            plots.push(OverRows {
                title: format!("N={n} K={k}, {}", kind_text(&kind_of)),
                lines,
            });
        }
    }
    plots
}

fn alike<'a>(section: &'a AgGemmResults, one: &Measured) -> impl Iterator<Item = &'a Measured> {
    let kind_of = kind(one);
    (section.products.iter()).filter(move |other| kind(other) == kind_of)
}

/// Returns title and bars of each shape that is in no line plot.
pub(super) fn side_by_side(section: &AgGemmResults, limit: Option<&Limit>) -> Vec<(String, Bars)> {
    let mut plots = Vec::new();
    for measured in &section.products {
        if alike(section, measured).count() >= FEWEST {
            continue;
        }
        let lanes = (names(section).into_iter())
            .filter(|by| *by != GATHER && *by != TOGETHER)
            .filter_map(|by| {
                Some(Lane {
                    series: series(by),
                    name: by.to_owned(),
                    mark: mark(measured, by)?,
                })
            });
        let problem = &measured.problem;
        let title = format!("{}, {}", problem.shape(), kind_text(problem));
        let bars = Bars {
            unit: "TFLOP/s",
            limit: limit.cloned(),
            groups: vec![Group {
                label: title.clone(),
                labeled: false,
                lanes: lanes.collect(),
            }],
        };
        plots.push((title, bars));
    }
    plots
}

/// Returns TFLOP/s of a contender; `None` without a time.
fn mark(measured: &Measured, by: &str) -> Option<Mark> {
    let entry = measured.entry(by)?;
    let Time { ns, min, max } = entry.headline()?;
    let problem = &measured.problem;
    let mut note = format!("{} µs", decimal(ns / 1e3));
    if !entry.how.is_empty() {
        note += &format!(", {}", entry.how);
    }
    Some(Mark {
        at: problem.m as u64,
        value: problem.teraflops(ns),
        range: Some((problem.teraflops(max), problem.teraflops(min))),
        note,
    })
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn products_that_differ_in_their_rows_are_drawn_over_them() {
        let mut section = example();
        assert!(over_rows(&section).is_empty(), "a point is no line");
        assert_eq!(side_by_side(&section, None).len(), 2);
        for m in [64, 4] {
            let mut other = section.products[1].clone();
            other.problem.m = m;
            section.products.push(other);
        }
        let plots = over_rows(&section);
        assert_eq!(
            (plots.len(), plots[0].title.as_str()),
            (1, "N=3584 K=8192, f16, A sharded by columns")
        );
        let names: Vec<&str> = (plots[0].lines.iter())
            .map(|line| line.name.as_str())
            .collect();
        assert_eq!(names, ["pull", "baseline", GEMM, WINDOWS]);
        for line in &plots[0].lines {
            let rows: Vec<u64> = line.marks.iter().map(|mark| mark.at).collect();
            assert_eq!(rows, [4, 16, 64]);
        }
        assert_eq!(side_by_side(&section, None).len(), 1, "the other product");
    }

    #[test]
    fn a_transport_has_the_color_of_its_algorithm() {
        assert_eq!(series("push put"), series("push"));
        assert_eq!(series("own gemm"), series(GEMM));
        assert!(is_ours("pipeline get") && !is_ours(TORCH) && !is_ours(WINDOWS));
    }
}
