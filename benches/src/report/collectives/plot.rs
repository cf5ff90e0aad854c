//! Collectives as lines of plots.

use super::view::of;
use super::{Collective, CollectiveResults, OURS, Placement};
use crate::report::plot::{Line, Mark};
use crate::report::text::decimal;
use std::collections::BTreeMap;

/// Returns busbw over sizes in one placement: symmem first, then the baselines in their order.
pub(super) fn lines(
    section: &CollectiveResults,
    collective: Collective,
    placement: Placement,
) -> Vec<Line> {
    let mut lines: BTreeMap<usize, Line> = BTreeMap::new();
    for point in of(section, collective).filter(|point| !point.is_wrong()) {
        let placed = point.placed(placement);
        let Some(time) = placed.and_then(|placed| section.headline(placed)) else {
            continue;
        };
        let busbw = |ns: f64| point.bandwidths(section.world, ns).1;
        let place = (section.baselines.iter()).position(|baseline| baseline.name == point.by);
        let series = place.map_or(0, |place| place + 1);
        let mut note = format!("{} µs", decimal(time.ns / 1e3));
        let other = !point.in_place_algorithm.is_empty() && placement == Placement::InPlace;
        let algorithm = match other {
            true => &point.in_place_algorithm,
            false => &point.algorithm,
        };
        if !algorithm.is_empty() {
            note += &format!(", {algorithm}");
        }
        let line = lines.entry(series).or_insert_with(|| Line {
            series,
            ours: point.by == OURS,
            name: point.by.clone(),
            marks: Vec::new(),
        });
        line.marks.push(Mark {
            at: point.bytes,
            value: busbw(time.ns),
            range: Some((busbw(time.max), busbw(time.min))),
            note,
        });
    }
    for line in lines.values_mut() {
        line.marks.sort_by_key(|mark| mark.at);
    }
    lines.into_values().collect()
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn there_is_a_line_for_each_library_in_the_placements_that_it_has() {
        let section = example();
        let names = |placement| -> Vec<String> {
            let lines = lines(&section, Collective::AllReduce, placement);
            lines.into_iter().map(|line| line.name).collect()
        };
        assert_eq!(
            names(Placement::OutOfPlace),
            ["symmem", "nccl", "torch one-shot"]
        );
        assert_eq!(names(Placement::InPlace), ["symmem", "nccl"]);
        let ours = &lines(&section, Collective::AllReduce, Placement::OutOfPlace)[0];
        assert_eq!(ours.marks.len(), 3);
        let (least, most) = ours.marks[0].range.unwrap();
        assert!(least <= ours.marks[0].value && ours.marks[0].value <= most);
    }

    #[test]
    fn what_was_wrong_is_not_drawn() {
        let mut section = example();
        section.points[0].in_place.as_mut().unwrap().wrong = 7;
        let lines = lines(&section, Collective::AllReduce, Placement::InPlace);
        assert_eq!(lines[0].marks.len(), 2);
    }
}
