//! All-gather + GEMM as tables.

use super::kind::{KIND, kind_text, row};
use super::ratios::{AS_BASELINE, ratios, shares};
use super::{
    ALGORITHMS, AUTOMATIC, AgGemmResults, Choice, Entry, GATHER, GEMM, Measured, OWN_GEMM,
    TOGETHER, TORCH, TORCH_FUSED, TRANSFORMER_ENGINE, VARIANTS, WINDOWS,
};
use crate::report::collectives::Time;
use crate::report::published;
use crate::report::text::{decimal, tflops};
use crate::report::view::{Cell, View, heading};

/// The contenders that were measured, in the order of the columns.
pub(super) fn names(section: &AgGemmResults) -> Vec<&'static str> {
    let all = [GEMM, OWN_GEMM, GATHER, TOGETHER, WINDOWS]
        .into_iter()
        .chain(ALGORITHMS)
        .chain(VARIANTS)
        .chain([AUTOMATIC, TORCH, TORCH_FUSED, TRANSFORMER_ENGINE]);
    let took_part = |by: &&str| {
        let entries = section
            .products
            .iter()
            .filter_map(|measured| measured.entry(by));
        entries.into_iter().any(|entry| entry.absent.is_none())
    };
    all.filter(took_part).collect()
}

/// Returns every table of the section. `hopper`: whether published figures are for devices of this kind.
pub(in crate::report) fn views(section: &AgGemmResults, hopper: bool) -> Vec<View> {
    let names = names(section);
    let mut views = Vec::new();
    let by_events = |entry: &Entry| entry.time;
    let replayed = |entry: &Entry| entry.graph;
    views.extend(times(
        section,
        &names,
        "barrier before each call",
        by_events,
    ));
    views.extend(times(section, &names, "graph replay", replayed));
    views.extend(rates(section, &names, hopper));
    views.extend(shares(section));
    views.extend(ratios(section));
    views.extend(choices(section));
    views.extend(looped(section, &names));
    views.push(checked(section, &names));
    views
}

fn table(
    section: &AgGemmResults,
    names: &[&'static str],
    (title, unit): (String, &'static str),
    caption: Vec<String>,
    of: impl Fn(&Measured, &str) -> Cell,
) -> Option<View> {
    let mut headings = vec![heading("MxNxK"), heading(KIND)];
    headings.extend((names.iter()).map(|name| heading(name.replace(' ', "\n")).of(unit)));
    let rows: Vec<Vec<Cell>> = (section.products.iter())
        .map(|measured| {
            let mut row = row(measured);
            row.extend(names.iter().map(|name| of(measured, name)));
            row
        })
        .filter(|row| row[2..].iter().any(|cell| *cell != Cell::Absent))
        .collect();
    (!rows.is_empty()).then_some(View {
        title,
        caption,
        headings,
        rows,
    })
}

/// Times of all contenders in microseconds.
fn times(
    section: &AgGemmResults,
    names: &[&'static str],
    how: &str,
    time: impl Fn(&Entry) -> Option<Time>,
) -> Option<View> {
    let title = format!("all-gather + GEMM of {} ranks: {how}", section.world);
    let caption = vec![
        "µs: median over rounds of the slowest rank's time; all contenders take turns in each round.".into(),
        "gemm: cuBLASLt or hipBLASLt, A already local; own gemm: the same by symmem's large-tile kernel; the last \
         table says if push uses another."
            .into(),
        "gather: the all-gather of A alone, by the algorithm that the last table names.".into(),
        "together: gemm and gather at once, without a dependency.".into(),
        AS_BASELINE.into(),
        "baseline windows: NCCL or RCCL gathers between symmetric windows, then cuBLASLt or hipBLASLt multiplies."
            .into(),
    ];
    table(section, names, (title, "µs"), caption, |measured, by| {
        let Some(entry) = measured.entry(by) else {
            return Cell::Absent;
        };
        match (entry.wrong, time(entry)) {
            (0, Some(time)) => Cell::Figure(decimal(time.ns / 1e3)),
            (0, None) => Cell::Absent,
            (wrong, _) => Cell::Wrong(wrong),
        }
    })
}

/// TFLOP/s per device.
fn rates(section: &AgGemmResults, names: &[&'static str], hopper: bool) -> Option<View> {
    let names: Vec<_> = names
        .iter()
        .copied()
        .filter(|by| *by != GATHER && *by != TOGETHER)
        .collect();
    let title = "all-gather + GEMM: TFLOP/s per device".to_owned();
    let mut caption = vec![
        "2·M·N·K over the time, where N counts the columns of B on one device; by graph replay if measured."
            .into(),
    ];
    let mut products = section.products.iter();
    if hopper && products.any(|measured| published::is_overlap(&measured.problem)) {
        caption.extend(published::OVERLAP.map(str::to_owned));
    }
    table(
        section,
        &names,
        (title, "TFLOP/s"),
        caption,
        |measured, by| {
            let derived = measured.derive(by);
            derived.map_or(Cell::Absent, |derived| {
                Cell::Figure(tflops(derived.teraflops))
            })
        },
    )
}

/// A choice at most this much slower than the fastest counts as equally good, in percent.
const GOOD_ENOUGH: f64 = 3.0;

/// The selector's choice and symmem's fastest algorithm, one row per shape, and the worst choice.
fn choices(section: &AgGemmResults) -> Option<View> {
    let rows: Vec<Vec<Cell>> = (section.products.iter())
        .filter_map(|measured| {
            let (chosen, fastest) = (measured.chosen.clone()?, measured.best()?);
            let behind = |choice: Choice| Cell::Figure(format!("{:.1}", choice.behind_percent));
            let mut row = row(measured);
            row.push(Cell::Figure(chosen));
            row.push(Cell::Figure(fastest.into()));
            row.push(measured.choose().map_or(Cell::Absent, behind));
            Some(row)
        })
        .collect();
    let known: Vec<Choice> = (section.products.iter())
        .filter_map(Measured::choose)
        .collect();
    let mut caption = Vec::new();
    if let Some(worst) = section.find_worst_choice() {
        let good = (known.iter()).filter(|choice| choice.behind_percent <= GOOD_ENOUGH);
        caption.push(format!(
            "Within {GOOD_ENOUGH:.0} % of the fastest for {} of {} shapes. Worst: {} for {}, {}: {:.1} % slower \
             than {}.",
            good.count(),
            known.len(),
            worst.choice.chosen,
            worst.problem.shape(),
            kind_text(&worst.problem),
            worst.choice.behind_percent,
            worst.choice.fastest,
        ));
    }
    caption.push(
        "slower: by how much the choice takes longer than symmem's fastest algorithm; by graph replay if measured."
            .into(),
    );
    if known.len() < rows.len() {
        caption.push(
            "An empty cell: the selector's choice was not among the algorithms timed.".into(),
        );
    }
    (!rows.is_empty()).then(|| View {
        title: "all-gather + GEMM: the selector's choice".into(),
        caption,
        headings: ["MxNxK", KIND, "chosen", "fastest", "slower\n(%)"]
            .map(heading)
            .into(),
        rows,
    })
}

/// TFLOP/s by DDLB's method, for comparison with published figures.
fn looped(section: &AgGemmResults, names: &[&'static str]) -> Option<View> {
    let names: Vec<_> = names
        .iter()
        .copied()
        .filter(|by| *by != GATHER && *by != TOGETHER)
        .collect();
    let title = "all-gather + GEMM: TFLOP/s by DDLB's method".to_owned();
    let caption = vec![
        "Mean of 50 calls back to back at rank 0, after 5 untimed calls, without a barrier.".into(),
    ];
    table(
        section,
        &names,
        (title, "TFLOP/s"),
        caption,
        |measured, by| {
            let ns = measured.entry(by).filter(|entry| entry.wrong == 0);
            let ns = ns.and_then(|entry| entry.ddlb_ns);
            ns.map_or(Cell::Absent, |ns| {
                Cell::Figure(tflops(measured.problem.teraflops(ns)))
            })
        },
    )
}

/// Algorithm details, numbers of checked elements, and reasons for absent contenders.
fn checked(section: &AgGemmResults, names: &[&'static str]) -> View {
    let mut caption = Vec::new();
    for measured in &section.products {
        for entry in &measured.entries {
            let shape = measured.problem.shape();
            if entry.wrong != 0 {
                caption.push(format!(
                    "WRONG: {} of {shape} had {} wrong elements; its time is not shown.",
                    entry.by, entry.wrong
                ));
            }
            // Listed once, even if it holds for many shapes.
            let absent = entry
                .absent
                .as_ref()
                .map(|why| format!("{} is absent: {why}", entry.by));
            caption.extend(absent.filter(|sentence| !caption.contains(sentence)));
        }
    }
    let products = names
        .iter()
        .copied()
        .filter(|by| ![GEMM, TOGETHER].contains(by));
    let names: Vec<_> = products.collect();
    let mut headings = vec![heading("MxNxK"), heading(KIND)];
    headings.extend(names.iter().map(|name| {
        let unit = if *name == GATHER { "" } else { "elements" };
        heading(name.replace(' ', "\n")).of(unit)
    }));
    let rows = (section.products.iter())
        .map(|measured| {
            let mut row = row(measured);
            row.extend(names.iter().map(|name| match measured.entry(name) {
                None => Cell::Absent,
                Some(entry) if entry.absent.is_some() => Cell::Absent,
                Some(entry) if entry.wrong != 0 => Cell::Wrong(entry.wrong),
                Some(entry) => {
                    match (*name == GATHER, entry.how.as_str()) {
                        // A gather has no C to check.
                        (true, "") => Cell::Absent,
                        (true, how) => Cell::Figure(how.into()),
                        (false, "") => Cell::Figure(entry.checked.to_string()),
                        (false, how) => Cell::Figure(format!("{how}, {}", entry.checked)),
                    }
                }
            }));
            row
        })
        .collect();
    caption.insert(
        0,
        "Transport (vendor: NCCL or RCCL), heuristic or kernel, and the number of elements of C on all ranks that were \
         compared with a reference in f64."
            .into(),
    );
    View {
        title: "all-gather + GEMM: details and checks".into(),
        caption,
        headings,
        rows,
    }
}

#[cfg(test)]
mod tests {
    use super::super::example;
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_heading_and_who_was_nowhere_no_column() {
        let views = views(&example(), true);
        assert_eq!(views.len(), 8);
        for view in &views {
            for row in &view.rows {
                assert_eq!(row.len(), view.headings.len(), "{}", view.title);
            }
        }
        let first: Vec<_> = views[0]
            .headings
            .iter()
            .map(|one| one.text.as_str())
            .collect();
        assert!(
            first.contains(&"pull") && !first.contains(&TORCH),
            "{first:?}"
        );
        assert_eq!(views[0].rows.len(), 2);
        assert_eq!(views[1].rows.len(), 1, "only the small one was replayed");
        assert_eq!(views[6].rows.len(), 1, "only the large one was looped");
    }

    #[test]
    fn the_choice_has_a_line_for_each_product_and_the_worst_is_said() {
        let views = views(&example(), true);
        let choices = &views[5];
        assert_eq!(choices.rows.len(), 2);
        // `Baseline` takes 27 µs, pull 21.
        assert_eq!(choices.rows[1][4], Cell::Figure("28.6".into()));
        assert_eq!(
            choices.caption[0],
            "Within 3 % of the fastest for 1 of 2 shapes. Worst: baseline for 16x3584x8192, f16, A sharded by columns: \
             28.6 % slower than pull."
        );
    }

    #[test]
    fn published_rates_stand_beside_their_shape_only() {
        let published = |views: &[View]| {
            let mut captions = views.iter().flat_map(|view| &view.caption);
            captions.any(|sentence| sentence.contains("678"))
        };
        let mut section = example();
        assert!(published(&views(&section, true)));
        section.products.remove(0);
        assert!(!published(&views(&section, true)));
        assert!(!published(&views(&example(), false)), "another device");
    }

    #[test]
    fn wrong_elements_and_absences_are_said() {
        let mut section = example();
        let entries = &mut section.products[0].entries;
        let push = entries.iter_mut().find(|entry| entry.by == "push");
        push.unwrap().wrong = 3;
        let views = views(&section, true);
        let said = |part: &str| {
            let mut captions = views.iter().flat_map(|view| &view.caption);
            captions.any(|sentence| sentence.contains(part))
        };
        assert!(said("WRONG: push of 32768x8192x16384 had 3 wrong elements"));
        assert!(said("pull is absent: this device has no `Pull` kernel"));
        assert_eq!(
            views[0].rows[0]
                .iter()
                .filter(|cell| **cell == Cell::Wrong(3))
                .count(),
            1
        );
    }
}
