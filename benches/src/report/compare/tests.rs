//! Tests of a comparison's tables and page.

use super::*;
use crate::report::fixture;
use crate::report::view::Cell;
use crate::report::{Direction, Report, Traffic};

fn run(file: &str, report: Report) -> Run {
    Run {
        file: file.to_owned(),
        report,
    }
}

/// The made-up report, with this device name.
fn of_device(file: &str, device: &str) -> Run {
    let mut report = fixture::cuda();
    report.environment.devices = vec![device.to_owned(); 2];
    run(file, report)
}

/// H200, and MI300X with half the rates and 1.5 times the latencies.
fn two_machines() -> Comparison {
    let first = of_device("h200.json", "NVIDIA H200");
    let mut second = of_device("mi300x.json", "AMD Instinct MI300X");
    for point in &mut second.report.points {
        point.looped.gbps /= 2.0;
    }
    for latency in &mut second.report.latencies {
        latency.one_way_ns.median *= 1.5;
    }
    Comparison::new(vec![first, second]).unwrap()
}

fn row(comparison: &Comparison, title: &str, name: &str) -> Vec<String> {
    let views = view::views(comparison);
    let view = views.iter().find(|view| view.title == title).unwrap();
    let row = view.rows.iter().find(|row| row[0].text() == name).unwrap();
    assert_eq!(row.len(), view.headings.len());
    row.iter()
        .map(|cell| cell.text().trim().to_owned())
        .collect()
}

#[test]
fn a_rate_stands_beside_its_ratio_and_its_shares_of_link_and_engine() {
    let comparison = two_machines();
    let title = "Push, both ways at once: grid best";
    let row = row(&comparison, title, "64 MiB");
    // The fixture's kernel at 64 MiB: 355.2 GB/s, its copy engine 370.5.
    assert_eq!(
        row,
        [
            "64 MiB",
            "355.2",
            "177.6",
            "0.50×",
            "78.9 %",
            "277.5 %",
            "95.9 %",
            "95.9 %",
            "46.55 · 72.7 %"
        ]
    );
}

#[test]
fn a_collective_is_held_against_the_links_that_its_ranks_have() {
    let comparison = two_machines();
    let row = row(&comparison, "all_reduce", "1 GiB");
    let (first, second) = (&row[3], &row[4]);
    assert_eq!(first, second, "the same time, so the same busbw: {row:?}");
    // The fixture's world is 8: one switch of 450 GB/s, a mesh of 7 × 64.
    let share =
        |busbw: &str, whole: f64| format!("{:.1} %", 100.0 * busbw.parse::<f64>().unwrap() / whole);
    assert_eq!(row[6], share(first, 450.0), "{row:?}");
    assert_eq!(row[7], share(first, 448.0), "{row:?}");
    assert_eq!(row.last().unwrap(), "315.18 · 70.4 %", "RCCL on 8 MI300X");
}

#[test]
fn what_was_published_is_always_called_so_with_its_source() {
    let text = terminal(&two_machines());
    let page = html(&two_machines()).unwrap();
    for text in [text, page] {
        for part in [
            "published:",
            "RCCL 2.22.3",
            "rocm.blogs.amd.com",
            "not measured here",
        ] {
            assert!(text.contains(part), "{part:?} is missing in\n{text}");
        }
    }
}

#[test]
fn messages_are_compared_by_name() {
    let row = row(&two_machines(), "Latency", "put, release, signal");
    assert_eq!(row[1..], ["1.500", "2.250", "0.67×"]);
}

#[test]
fn a_run_without_a_copy_engine_takes_the_rate_of_the_same_device() {
    let mut collectives = of_device("collectives.json", "NVIDIA H200");
    collectives.report.points.clear();
    let pairs = of_device("pairs.json", "NVIDIA H200");
    let other = of_device("other.json", "NVIDIA A100-SXM4-80GB");
    let comparison = Comparison::new(vec![collectives, pairs, other]).unwrap();
    let (direction, traffic) = (Direction::Push, Traffic::BothWays);
    assert!(comparison.runs[0].engine(direction, traffic).is_none());
    let (_, _, whose) = comparison.engine_and_run(0, direction, traffic).unwrap();
    assert_eq!(whose, 1);
    assert!(terminal(&comparison).contains("in B, the same device"));
}

#[test]
fn an_unknown_device_has_no_share_of_its_links() {
    let unknown = Comparison::new(vec![
        run("a.json", fixture::cuda()),
        run("b.json", fixture::cuda()),
    ]);
    let shares = |comparison: &Comparison, title: &str| {
        let views = view::views(comparison);
        let view = views.iter().find(|view| view.title == title).unwrap();
        ["A\nof link", "A\nof engine"]
            .map(|name| view.headings.iter().any(|heading| heading.text == name))
    };
    let (unknown, pairs) = (unknown.unwrap(), "Push, both ways at once: grid best");
    assert_eq!(shares(&unknown, pairs), [false, true]);
    assert_eq!(shares(&unknown, "all_reduce"), [false, false]);
    let known = two_machines();
    assert_eq!(shares(&known, pairs), [true, true]);
    assert_eq!(shares(&known, "all_reduce"), [true, true]);
}

#[test]
fn wrong_results_show_no_figure_and_no_ratio() {
    let mut comparison = two_machines();
    for point in &mut comparison.runs[1].report.points {
        point.wrong_bytes = 7;
    }
    let title = "Push, both ways at once: grid best";
    let views = view::views(&comparison);
    let view = views.iter().find(|view| view.title == title).unwrap();
    assert_eq!(view.rows[0][2], Cell::Wrong(7));
    assert_eq!(view.rows[0][3], Cell::Wrong(7));
}

#[test]
fn sizes_that_only_one_run_has_are_left_out() {
    let mut comparison = two_machines();
    let points = &mut comparison.runs[1].report.points;
    points.retain(|point| point.bytes == 64 << 20);
    let found = sections::sections(&comparison);
    assert!(
        found
            .transfers
            .iter()
            .all(|section| section.sizes.len() == 1)
    );
    // A curve still has all measured sizes.
    assert_eq!(found.transfers[0].sides[0].values.len(), 8);
}

#[test]
fn what_cannot_be_compared_is_an_error_that_says_why() {
    let error = Comparison::new(vec![of_device("a.json", "NVIDIA H200")]).unwrap_err();
    assert!(matches!(error, CompareError::TooFew(1)), "{error}");

    let mut pairs = fixture::cuda();
    (pairs.collectives, pairs.latencies) = (None, Vec::new());
    let mut collectives = fixture::cuda();
    (collectives.points, collectives.latencies) = (Vec::new(), Vec::new());
    let runs = vec![
        run("pairs.json", pairs),
        run("collectives.json", collectives),
    ];
    let error = Comparison::new(runs).unwrap_err();
    assert!(matches!(error, CompareError::NothingInCommon { .. }));
    let said = error.to_string();
    for part in [
        "pairs.json: transfers of 2 KiB to 64 MiB",
        "collectives.json: all_reduce, all_gather",
    ] {
        assert!(said.contains(part), "{said}");
    }

    for (text, words) in [
        ("nonsense", "not a report"),
        (r#"{"schema": "symmem-report/2"}"#, "symmem-report/2"),
        (r#"{"schema": "symmem-selftest/1"}"#, "symmem-selftest/1"),
    ] {
        let error = Run::parse("x.json", text).unwrap_err();
        assert!(matches!(error, CompareError::Read { .. }));
        let said = error.to_string();
        assert!(
            said.starts_with("x.json: ") && said.contains(words),
            "{said}"
        );
    }
}

#[test]
fn a_page_has_a_plot_for_each_thing_compared_and_loads_nothing() {
    let page = html(&two_machines()).unwrap();
    // Three means, two ways, two directions; two collectives.
    assert_eq!(page.matches("<figure>").count(), 12 + 2);
    for reference in ["src=", "href=\"h", "url(", "@import", "<link"] {
        assert!(!page.contains(reference), "{reference} is in the page");
    }
    assert!(page.contains("A: 2 × NVIDIA H200") && page.trim_end().ends_with("</html>"));
}

#[test]
fn machines_are_told_apart_by_letters_and_then_numbers() {
    let letters = [0, 1, 25, 26].map(Comparison::letter);
    assert_eq!(letters, ["A", "B", "Z", "27"]);
}
