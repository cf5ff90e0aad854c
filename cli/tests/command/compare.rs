//! Comparison of recorded reports.

use super::*;

fn recorded(name: &str) -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results");
    results.join(name).display().to_string()
}

#[test]
fn two_recorded_runs_stand_side_by_side_in_the_terminal_and_on_a_page() {
    let directory = directory("compare");
    let two = recorded("2026-11-21-copy-engine-2xh200.json");
    let four = recorded("2026-11-21-copy-engine-4xh200.json");
    let arguments = ["compare", &two, &four, "--html", "c.html"];
    let output = text(&succeed(symmem(&directory, &arguments)).stdout);
    for part in [
        "2 × NVIDIA H200",
        "4 × NVIDIA H200",
        "pair link",
        "all_reduce",
        "B/A",
        "of link",
        "RCCL 2.22.3",
        "not measured here",
    ] {
        assert!(output.contains(part), "{part:?} is missing in\n{output}");
    }
    let page = std::fs::read_to_string(directory.join("c.html")).unwrap();
    assert!(page.contains("<svg") && page.trim_end().ends_with("</html>"));
    assert!(page.contains("published, not measured here"));
}

#[test]
fn files_that_cannot_be_compared_are_named_with_what_is_wrong() {
    let directory = directory("not-comparable");
    std::fs::write(directory.join("text.json"), "no JSON").unwrap();
    let good = recorded("2026-11-21-copy-engine-2xh200.json");
    let pairs = recorded("2026-11-20-p2p-host-32-cores-1.json");
    let enqueue = recorded("2026-11-20-enqueue-2xh200.json");
    for (files, words) in [
        (&[&*good][..], &["2 values required"][..]),
        (&[&*good, "absent.json"], &["absent.json", "No such file"]),
        (&[&*good, "text.json"], &["text.json", "not a report"]),
        (
            &[&*good, &*enqueue],
            &["enqueue-2xh200.json", "symmem-enqueue/1"],
        ),
        (
            &[&*good, &*pairs],
            &["the same", "all_reduce", "transfers of 2 KiB to"],
        ),
    ] {
        let arguments: Vec<&str> = [&["compare"][..], files].concat();
        let error = fail(symmem(&directory, &arguments));
        for word in words {
            assert!(
                error.contains(word),
                "{files:?}: {word:?} is missing in {error}"
            );
        }
    }
    let arguments = ["compare", &good, &good, "--json", "c.json"];
    assert!(fail(symmem(&directory, &arguments)).contains("unexpected argument '--json'"));
}
