//! GEMM + reduce-scatter or GEMM + all-reduce as tables.

use super::problem::text;
use super::{
    AUTOMATIC, COLLECTIVE, GEMM, GEMM_THEN_NCCL, GEMM_THEN_SYMMEM, GemmReduceResults,
    MeasuredReduce,
};
use crate::report::collectives::Time;
use crate::report::text::{decimal, tflops};
use crate::report::view::{Cell, View, heading};
use crate::report::{Choice, Entry};

/// A choice at most this much slower than the fastest counts as equally good, in percent.
const GOOD_ENOUGH: f64 = 3.0;

/// Returns every table of the section.
pub(in crate::report) fn views(section: &GemmReduceResults) -> Vec<View> {
    let mut views = Vec::new();
    views.extend(shares(section));
    views.extend(choices(section));
    views.push(contenders(section));
    views
}

fn title(section: &GemmReduceResults, what: &str) -> String {
    format!("GEMM + {}: {what}", section.collective.label())
}

fn name(measured: &MeasuredReduce) -> Cell {
    Cell::Name(text(&measured.problem))
}

fn microseconds(time: Option<f64>) -> Cell {
    time.map_or(Cell::Absent, |ns| Cell::Figure(decimal(ns / 1e3)))
}

/// Symmem beside its parts and the baselines, one row per shape.
fn shares(section: &GemmReduceResults) -> Option<View> {
    let share = |share: Option<f64>| {
        share.map_or(Cell::Absent, |share| Cell::Figure(format!("{share:.3}")))
    };
    let rows: Vec<Vec<Cell>> = (section.products.iter())
        .filter_map(|measured| {
            let ours = measured.symmem()?;
            Some(vec![
                name(measured),
                microseconds(measured.ns(GEMM)),
                microseconds(measured.ns(COLLECTIVE)),
                microseconds(measured.ns(ours)),
                share(measured.over(GEMM, ours)),
                share(measured.of_ideal(ours)),
                (measured.over_best_baseline(ours)).map_or(Cell::Absent, Cell::Ratio),
            ])
        })
        .collect();
    let collective = section.collective.label();
    (!rows.is_empty()).then(|| View {
        title: title(section, &format!("symmem of {} ranks", section.world)),
        caption: vec![
            "µs: median over rounds of the slowest rank's time; all contenders take turns in each round; by graph replay \
             if measured."
                .into(),
            format!(
                "gemm: cuBLASLt or hipBLASLt alone; collective: the {collective} alone by symmem; symmem: the selector's \
                 choice, or the fastest algorithm if the choice was not timed."
            ),
            "ideal: the longer of the times of gemm and collective; best baseline: the fastest of a GEMM then NCCL or \
             RCCL, a GEMM then symmem's collective, and symmem's algorithm `Baseline`."
                .into(),
        ],
        headings: vec![
            heading("MxNxK"),
            heading("gemm\n(µs)"),
            heading("collective\n(µs)"),
            heading("symmem\n(µs)"),
            heading("gemm\n÷ symmem").of("share"),
            heading("ideal\n÷ symmem").of("share"),
            heading("best baseline\n÷ symmem"),
        ],
        rows,
    })
}

/// The selector's choice and symmem's fastest algorithm, one row per shape, and the worst choice.
fn choices(section: &GemmReduceResults) -> Option<View> {
    let rows: Vec<Vec<Cell>> = (section.products.iter())
        .filter_map(|measured| {
            let (chosen, fastest) = (measured.chosen.clone()?, measured.best()?);
            let behind = |choice: Choice| Cell::Figure(format!("{:.1}", choice.behind_percent));
            Some(vec![
                name(measured),
                Cell::Figure(chosen),
                Cell::Figure(fastest.into()),
                measured.choose().map_or(Cell::Absent, behind),
            ])
        })
        .collect();
    let known: Vec<Choice> = (section.products.iter())
        .filter_map(MeasuredReduce::choose)
        .collect();
    let mut caption = Vec::new();
    if let Some(worst) = section.find_worst_choice() {
        let good = (known.iter()).filter(|choice| choice.behind_percent <= GOOD_ENOUGH);
        caption.push(format!(
            "Within {GOOD_ENOUGH:.0} % of the fastest for {} of {} shapes. Worst: {} for {}: {:.1} % slower than {}.",
            good.count(),
            known.len(),
            worst.choice.chosen,
            text(&worst.problem),
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
        title: title(section, "the selector's choice"),
        caption,
        headings: ["MxNxK", "chosen", "fastest", "slower\n(%)"]
            .map(heading)
            .into(),
        rows,
    })
}

/// Every contender of every shape: times, rate, checked elements and details.
fn contenders(section: &GemmReduceResults) -> View {
    let mut caption = vec![
        "Single calls after a barrier of all ranks, and graph replays; TFLOP/s: 2·M·N·K over the time, by graph replay if \
         measured; checked: elements of C on all ranks that were compared with a reference in f64."
            .into(),
        format!(
            "{AUTOMATIC}: the selector's choice; {GEMM_THEN_NCCL}, {GEMM_THEN_SYMMEM}: a GEMM by the library, then the \
             {} by NCCL (RCCL) or by symmem.",
            section.collective.label()
        ),
    ];
    let mut rows = Vec::new();
    for measured in &section.products {
        let shape = text(&measured.problem);
        for entry in &measured.entries {
            if entry.wrong != 0 {
                caption.push(format!(
                    "WRONG: {} of {shape} had {} wrong elements; its time is not shown.",
                    entry.by, entry.wrong
                ));
            }
            match &entry.absent {
                Some(why) => {
                    // Listed once, even if it holds for many shapes.
                    let sentence = format!("{} is absent: {why}", entry.by);
                    if !caption.contains(&sentence) {
                        caption.push(sentence);
                    }
                }
                None => rows.push(row(measured, entry)),
            }
        }
    }
    View {
        title: title(section, "every contender"),
        caption,
        headings: vec![
            heading("MxNxK"),
            heading("contender"),
            heading("single call\n(µs)"),
            heading("replay\n(µs)"),
            heading("TFLOP/s"),
            heading("checked").of("elements"),
            heading("details"),
        ],
        rows,
    }
}

fn row(measured: &MeasuredReduce, entry: &Entry) -> Vec<Cell> {
    let time = |time: Option<Time>| match entry.wrong {
        0 => microseconds(time.map(|time| time.ns)),
        wrong => Cell::Wrong(wrong),
    };
    let rate = measured.ns(&entry.by).filter(|_| entry.by != COLLECTIVE);
    vec![
        name(measured),
        Cell::Figure(entry.by.clone()),
        time(entry.time),
        time(entry.graph),
        rate.map_or(Cell::Absent, |ns| {
            Cell::Figure(tflops(measured.problem.teraflops(ns)))
        }),
        match entry.checked {
            0 => Cell::Absent,
            checked => Cell::Figure(checked.to_string()),
        },
        match entry.how.as_str() {
            "" => Cell::Absent,
            how => Cell::Figure(how.into()),
        },
    ]
}

#[cfg(test)]
mod tests {
    use super::super::fixture::example;
    use super::*;

    #[test]
    fn every_row_has_a_cell_for_each_heading_and_no_table_more_than_seven() {
        let views = views(&example());
        assert_eq!(views.len(), 3);
        for view in &views {
            assert!(view.headings.len() <= 7, "{}", view.title);
            for row in &view.rows {
                assert_eq!(row.len(), view.headings.len(), "{}", view.title);
            }
        }
        let first: Vec<String> = views[0].rows[0].iter().map(Cell::text).collect();
        let expected = [
            "8192x8192x4096 bf16",
            "900.0",
            "500.0",
            "1000.0",
            "0.900",
            "0.900",
            "1.20×",
        ];
        assert_eq!(first, expected);
    }

    #[test]
    fn the_choice_has_a_line_for_each_shape_and_the_worst_is_said() {
        let view = choices(&example()).unwrap();
        let behind: Vec<String> = view.rows.iter().map(|row| row[3].text()).collect();
        assert_eq!(behind, ["1.0", "0.0"]);
        assert_eq!(
            view.caption[0],
            "Within 3 % of the fastest for 2 of 2 shapes. Worst: pipeline put, 2 chunks, 2 streams for \
             8192x8192x4096 bf16: 1.0 % slower than pipeline kernel, 2 chunks, 2 streams."
        );
    }

    #[test]
    fn wrong_elements_and_absences_are_said() {
        let mut section = example();
        let entries = &mut section.products[0].entries;
        let baseline = entries.iter_mut().find(|entry| entry.by == "baseline");
        baseline.unwrap().wrong = 3;
        let view = contenders(&section);
        let said = |part: &str| view.caption.iter().any(|line| line.contains(part));
        assert!(said(
            "WRONG: baseline of 8192x8192x4096 bf16 had 3 wrong elements"
        ));
        assert!(said("gemm then nccl is absent: NCCL was not found"));
        let wrong = view.rows.iter().flatten();
        assert_eq!(wrong.filter(|cell| **cell == Cell::Wrong(3)).count(), 2);
    }
}
