//! Collectives as tables and as curves.

use super::{
    BaselineState, Collective, CollectivePoint, CollectiveResults, OURS, Placement,
    PlacementResults, Time,
};
use crate::report::text::{decimal, size};
use crate::report::view::{Cell, View, heading};
use std::collections::{BTreeMap, BTreeSet};

/// nccl-tests' columns, with its two heading lines: the columns that name a row, and those of each placement.
const NAMES: [&str; 5] = ["size\n(B)", "count\n(elements)", "type", "redop", "root"];
const PLACED: [&str; 4] = ["time\n(us)", "algbw\n(GB/s)", "busbw\n(GB/s)", "#wrong"];

/// Returns a line for each baseline: its version, or why it is absent.
pub(in crate::report) fn baselines(states: &[BaselineState]) -> Vec<String> {
    let sentence = |baseline: &BaselineState| match (&baseline.version, &baseline.absent) {
        (_, Some(why)) => format!("baseline {}: absent, {why}", baseline.name),
        (Some(version), None) => format!("baseline {}: {version}", baseline.name),
        (None, None) => format!("baseline {}", baseline.name),
    };
    states.iter().map(sentence).collect()
}

/// Returns every table of the section.
pub(in crate::report) fn views(section: &CollectiveResults) -> Vec<View> {
    let mut views = Vec::new();
    for collective in section.measured() {
        views.extend(views_of(section, collective));
    }
    views.extend(section.barrier.as_ref().map(barrier));
    views.extend(means(section));
    views
}

/// The tables of one operation.
pub(super) fn views_of(section: &CollectiveResults, collective: Collective) -> Vec<View> {
    let mut views = vec![nccl_tests(section, collective), times(section, collective)];
    views.extend(compared(section, collective));
    views
}

pub(super) fn of(
    section: &CollectiveResults,
    collective: Collective,
) -> impl Iterator<Item = &CollectivePoint> {
    (section.points.iter()).filter(move |point| point.collective == collective)
}

fn ours(
    section: &CollectiveResults,
    collective: Collective,
) -> impl Iterator<Item = &CollectivePoint> {
    of(section, collective).filter(|point| point.by == OURS)
}

/// The method behind the times of the first table.
pub(super) fn how(section: &CollectiveResults) -> &'static str {
    match section.is_replayed() {
        true => "graph replay",
        false => "looped",
    }
}

/// Symmem's points in nccl-tests' layout: out of place, then in place.
fn nccl_tests(section: &CollectiveResults, collective: Collective) -> View {
    let points: Vec<_> = ours(section, collective).collect();
    let rounds: BTreeSet<u32> = points.iter().map(|point| point.rounds).collect();
    let rounds = match (rounds.first(), rounds.last()) {
        (Some(least), Some(most)) if least != most => format!("{least} to {most}"),
        (Some(only), _) => only.to_string(),
        _ => "no".into(),
    };
    let mut caption = vec![format!(
        "{} ranks; {}, median of {rounds} rounds of the slowest rank's time; out of place, then in place.",
        section.world,
        how(section),
    )];
    caption.extend(between(section));
    caption.extend(wrong(section, collective));
    View {
        title: collective.name().into(),
        caption,
        headings: (NAMES.iter().map(|text| heading(*text)))
            .chain(
                Placement::ALL
                    .into_iter()
                    .flat_map(|placement| PLACED.map(|text| heading(text).of(placement.label()))),
            )
            .collect(),
        rows: points
            .iter()
            .map(|point| {
                let mut row = vec![
                    Cell::Name(point.bytes.to_string()),
                    Cell::Figure(point.count.to_string()),
                    Cell::Figure(point.element.clone()),
                    Cell::Figure(if collective.reduces() { "sum" } else { "none" }.into()),
                    Cell::Figure(point.root.map_or("-1".into(), |root| root.to_string())),
                ];
                for placement in Placement::ALL {
                    row.extend(placed(section, point, placement));
                }
                row
            })
            .collect(),
    }
}

/// The cells of one placement: time, algbw, busbw and wrong elements.
fn placed(section: &CollectiveResults, point: &CollectivePoint, placement: Placement) -> [Cell; 4] {
    let absent = || [Cell::Absent, Cell::Absent, Cell::Absent, Cell::Absent];
    let Some(placed) = point.placed(placement) else {
        return absent();
    };
    if placed.wrong != 0 {
        let wrong = || Cell::Wrong(placed.wrong);
        let count = Cell::Figure(placed.wrong.to_string());
        return [wrong(), wrong(), wrong(), count];
    }
    let Some(time) = section.headline(placed) else {
        return absent();
    };
    let (algbw, busbw) = point.bandwidths(section.world, time.ns);
    [
        Cell::Figure(decimal(time.ns / 1e3)),
        Cell::Figure(format!("{algbw:.2}")),
        Cell::Figure(format!("{busbw:.2}")),
        Cell::Figure("0".into()),
    ]
}

/// Says which kernel the times include, if there was one.
fn between(section: &CollectiveResults) -> Option<String> {
    let between = section.between.as_ref()?;
    let time = |alone: &PlacementResults| {
        let time = section.headline(alone)?;
        Some(format!("{} µs", decimal(time.ns / 1e3)))
    };
    let mut alone = time(&between.alone).map_or(String::new(), |time| format!(", {time} alone"));
    for one in &between.in_programs {
        if let Some(time) = time(&one.alone) {
            alone += &format!(" ({time} in {})", one.program);
        }
    }
    Some(format!(
        "Before each looped or replayed call: {}{alone}; time and bandwidth are of both.",
        between.kernel
    ))
}

fn wrong(section: &CollectiveResults, collective: Collective) -> Vec<String> {
    let mut sentences = Vec::new();
    for point in of(section, collective) {
        for placement in Placement::ALL {
            if let Some(placed) = point.placed(placement).filter(|placed| placed.wrong != 0) {
                sentences.push(format!(
                    "WRONG: {} of {} {} had {} wrong elements; its time is not shown.",
                    point.by,
                    size(point.bytes),
                    placement.label(),
                    placed.wrong
                ));
            }
        }
    }
    sentences
}

/// The cells of one placement: looped, graph replay, and single calls, in µs.
fn three(placed: &PlacementResults) -> [Cell; 3] {
    let figure =
        |time: Option<Time>| time.map_or(Cell::Absent, |time| Cell::Figure(decimal(time.ns / 1e3)));
    let single = placed.single.map_or(Cell::Absent, |single| {
        Cell::Figure(format!(
            "{}/{}",
            decimal(single.p50_ns / 1e3),
            decimal(single.p99_ns / 1e3)
        ))
    });
    [figure(placed.looped), figure(placed.graph), single]
}

pub(super) fn barrier(placed: &PlacementResults) -> View {
    let mut row = vec![Cell::Name("barrier".into())];
    row.extend(three(placed));
    View {
        title: "barrier".into(),
        caption: vec![
            "µs: calls back to back, calls replayed from a graph, single calls timed on the host."
                .into(),
        ],
        headings: ["", "looped", "graph", "p50/p99"]
            .map(|text| heading(text).of(if text.is_empty() { "" } else { "µs" }))
            .into(),
        rows: vec![row],
    }
}

/// Symmem's looped, replayed and single-call times at each size, and the algorithm.
fn times(section: &CollectiveResults, collective: Collective) -> View {
    let mut headings = vec![heading("size"), heading("algorithm")];
    for unit in ["µs, out of place", "µs, in place"] {
        headings.extend(["looped", "graph", "p50/p99"].map(|text| heading(text).of(unit)));
    }
    let rows = ours(section, collective)
        .map(|point| {
            let mut algorithm = point.algorithm.clone();
            if point.blocks != 0 {
                algorithm += &format!(" {}×{}", point.blocks, point.threads);
            }
            if !point.in_place_algorithm.is_empty() {
                algorithm += &format!(", {}", point.in_place_algorithm);
            }
            let algorithm = match algorithm.as_str() {
                "" => Cell::Absent,
                _ => Cell::Figure(algorithm),
            };
            let mut row = vec![Cell::Name(size(point.bytes)), algorithm];
            for placement in Placement::ALL {
                let placed = point.placed(placement).copied().unwrap_or_default();
                row.extend(three(&placed));
            }
            row
        })
        .collect();
    View {
        title: format!("{}: looped, replayed and single calls", collective.name()),
        caption: [
            "µs, out of place, then in place: calls back to back, calls replayed from a graph, single calls timed \
             on the host."
                .into(),
            "algorithm: the selector's choice with blocks×threads of the grid, then the in-place choice if it \
             differs."
                .into(),
        ]
        .into_iter()
        .chain(between(section))
        .collect(),
        headings,
        rows,
    }
}

/// The table that compares symmem with the baselines; `None` without a baseline.
fn compared(section: &CollectiveResults, collective: Collective) -> Option<View> {
    // In the order in which they were requested.
    let beside: Vec<&str> = (section.baselines.iter())
        .map(|baseline| baseline.name.as_str())
        .filter(|name| of(section, collective).any(|point| point.by == *name))
        .collect();
    if beside.is_empty() {
        return None;
    }
    let cells: BTreeMap<(u64, &str), &CollectivePoint> = of(section, collective)
        .map(|point| ((point.bytes, point.by.as_str()), point))
        .collect();
    let mut headings = vec![heading("size"), heading(OURS).of("µs, out/in place")];
    headings.extend((beside.iter()).map(|name| heading(*name).of("µs, out/in place")));
    headings.push(heading("best ÷ symmem").of("×, out of place"));
    headings.push(heading("in place").of("×"));
    headings.push(heading("best"));
    let rows = ours(section, collective)
        .map(|point| {
            let mut row = vec![Cell::Name(size(point.bytes))];
            for by in std::iter::once(OURS).chain(beside.iter().copied()) {
                let found = cells.get(&(point.bytes, by));
                row.push(found.map_or(Cell::Absent, |point| both(section, point)));
            }
            let mut best = Cell::Absent;
            for placement in Placement::ALL {
                let found = section.comparison(collective, point.bytes, placement);
                row.push(
                    found
                        .as_ref()
                        .map_or(Cell::Absent, |f| Cell::Ratio(f.ratio)),
                );
                if let (Some(found), Placement::OutOfPlace) = (found, placement) {
                    best = Cell::Figure(found.best.into());
                }
            }
            row.push(best);
            row
        })
        .collect();
    let mut caption = vec![
        match section.is_replayed() {
            true => "µs, out of place/in place; graph replay, or looped without replays.".to_owned(),
            false => "µs, out of place/in place; looped.".to_owned(),
        },
        "best ÷ symmem: the best baseline's time divided by symmem's, out of place, then in place; above 1, symmem \
         is faster."
            .to_owned(),
        "Replays are compared with replays, loops with loops.".to_owned(),
    ];
    caption.extend(between(section));
    if let Some(mean) = section.geometric_mean(Some(collective)) {
        caption.push(format!("Geometric mean of the ratios: {mean:.3}."));
    }
    Some(View {
        title: format!("{}: symmem and baselines", collective.name()),
        caption,
        headings,
        rows,
    })
}

/// A cell `out of place/in place` in microseconds.
fn both(section: &CollectiveResults, point: &CollectivePoint) -> Cell {
    if point.is_wrong() {
        let wrong = |placed: Option<PlacementResults>| placed.map_or(0, |placed| placed.wrong);
        return Cell::Wrong(wrong(point.out_of_place) + wrong(point.in_place));
    }
    let time = |placement| {
        let placed = point.placed(placement);
        let time = placed.and_then(|placed| section.headline(placed));
        time.map_or("–".to_owned(), |time| decimal(time.ns / 1e3))
    };
    let [out, within] = Placement::ALL.map(time);
    Cell::Figure(format!("{out}/{within}"))
}

/// The table of geometric means by operation and over all; `None` without a baseline.
pub(super) fn means(section: &CollectiveResults) -> Option<View> {
    let overall = section.geometric_mean(None)?;
    let mut rows: Vec<_> = (section.measured().into_iter())
        .filter_map(|collective| {
            Some((collective.name(), section.geometric_mean(Some(collective))?))
        })
        .collect();
    rows.push(("all", overall));
    Some(View {
        title: "Collectives: symmem and the best baseline".into(),
        caption: vec![
            "Geometric mean over sizes and placements of the best baseline's time divided by symmem's.".into(),
        ],
        headings: vec![heading("operation"), heading("best ÷ symmem").of("×")],
        rows: rows
            .into_iter()
            .map(|(name, mean)| vec![Cell::Name(name.into()), Cell::Ratio(mean)])
            .collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    fn texts(view: &View) -> Vec<&str> {
        view.headings.iter().map(|h| h.text.as_str()).collect()
    }

    #[test]
    fn the_first_table_has_the_columns_of_nccl_tests() {
        let view = &views(&example())[0];
        // nccl-tests' second and third heading lines.
        let first = "size count type redop root time algbw busbw #wrong time algbw busbw #wrong";
        let second = "(B) (elements) (us) (GB/s) (GB/s) (us) (GB/s) (GB/s)";
        let lines = |line: usize| {
            let texts = texts(view).into_iter();
            texts.filter_map(move |text| text.lines().nth(line))
        };
        assert_eq!(lines(0).collect::<Vec<_>>().join(" "), first);
        assert_eq!(lines(1).collect::<Vec<_>>().join(" "), second);
        for row in &view.rows {
            assert_eq!(row.len(), view.headings.len());
        }
        let first: Vec<String> = view.rows[0].iter().map(Cell::text).collect();
        assert_eq!(first[..5], ["1024", "512", "bfloat16", "sum", "-1"]);
        // 1 KiB in slightly more than 4 µs is 0.26 GB/s, times 7/4 for busbw.
        assert_eq!(first[5..9], ["4.01", "0.26", "0.45", "0"]);
        let gather = &views(&example())[3];
        assert_eq!(gather.title, "all_gather");
        let first: Vec<String> = gather.rows[0].iter().map(Cell::text).collect();
        assert_eq!(first[..4], ["1024", "64", "bfloat16", "none"]);
    }

    #[test]
    fn every_baseline_that_took_part_has_a_column_and_the_best_is_named() {
        let view = &views(&example())[2];
        assert_eq!(
            texts(view),
            [
                "size",
                "symmem",
                "nccl",
                "torch one-shot",
                "best ÷ symmem",
                "in place",
                "best"
            ]
        );
        assert_eq!(view.rows[0][6], Cell::Figure("torch one-shot".into()));
        assert_eq!(view.rows[2][6], Cell::Figure("nccl".into()));
        let text = view.rows[0][3].text();
        assert!(text.ends_with("/–"), "out of place only: {text}");
        for row in &view.rows {
            assert_eq!(row.len(), view.headings.len());
        }
    }

    #[test]
    fn without_baselines_nothing_is_compared() {
        let mut section = example();
        section.points.retain(|point| point.by == OURS);
        let titles: Vec<String> = views(&section).into_iter().map(|view| view.title).collect();
        assert_eq!(
            titles,
            [
                "all_reduce",
                "all_reduce: looped, replayed and single calls",
                "all_gather",
                "all_gather: looped, replayed and single calls",
                "barrier"
            ]
        );
    }

    #[test]
    fn a_wrong_result_is_called_wrong_and_shows_no_time() {
        let mut section = example();
        section.points[0].in_place.as_mut().unwrap().wrong = 7;
        let views = views(&section);
        assert_eq!(views[0].rows[0][9], Cell::Wrong(7));
        assert_eq!(views[0].rows[0][12], Cell::Figure("7".into()));
        assert!(
            views[0]
                .caption
                .iter()
                .any(|line| line.starts_with("WRONG"))
        );
        assert_eq!(views[2].rows[0][1], Cell::Wrong(7));
    }
}
