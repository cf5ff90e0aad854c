//! `symmem bench collectives --predict`: times by a formula.

use super::*;
use symmem_bench::report::prediction::{Prediction, SCHEMA};

/// A recorded run of two GPUs.
fn measured() -> String {
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results");
    let file = results.join("2026-11-26-collectives-2xh200.json");
    file.to_str().unwrap().to_owned()
}

#[test]
fn a_prediction_needs_no_device_and_says_that_it_is_one() {
    let directory = directory("prediction");
    let arguments = [
        "bench",
        "collectives",
        "--predict",
        "2,4096",
        "--json",
        "p.json",
        "--op",
        "all",
    ];
    let mut command = symmem(&directory, &arguments);
    // A rank on this backend would fail.
    command.env("SYMMEM_BACKEND", "path:no-such-plugin.so");
    let output = text(&succeed(command).stdout);
    assert!(
        output.starts_with("Predicted, not measured: h200"),
        "{output}"
    );
    for part in [
        "No run of several nodes stands behind the links between nodes of `h200`",
        "All-reduce on 2 nodes, fastest algorithm (predicted)",
        "Scatter on 4096 nodes, every algorithm (predicted)",
        "data sheet",
        "assumed",
        "measured",
    ] {
        assert!(output.contains(part), "{part}");
    }
    let json = std::fs::read_to_string(directory.join("p.json")).unwrap();
    let prediction: Prediction = serde_json::from_str(&json).unwrap();
    assert_eq!(prediction.schema, SCHEMA);
    assert_eq!((prediction.ranks_per_node, prediction.rails), (8, 8));
    let share = (1_u64 << 30) as f64 / 8.0;
    let ring = |nodes| {
        let points = prediction.points.iter();
        let mut of_call = points.filter(|point| {
            (point.nodes, point.collective, point.bytes) == (nodes, Collective::AllReduce, 1 << 30)
        });
        let ring = of_call.find(|point| point.node_stage == "sharded" && point.leg == "ring");
        ring.unwrap().bytes_between_per_rail
    };
    assert_eq!(ring(2), share);
    assert_eq!(ring(4096), 2.0 * 4095.0 / 4096.0 * share);
    // The first of a call is the fastest.
    let calls = prediction.points.windows(2).filter(|pair| {
        (pair[0].nodes, pair[0].collective, pair[0].bytes)
            == (pair[1].nodes, pair[1].collective, pair[1].bytes)
    });
    for pair in calls {
        assert!(pair[0].seconds <= pair[1].seconds, "{pair:?}");
    }
}

#[test]
fn constants_are_fitted_to_a_report_and_the_error_is_told() {
    let directory = directory("fitted-prediction");
    let file = measured();
    let arguments = [
        "bench",
        "collectives",
        "--predict",
        "4",
        "-n",
        "2",
        "--quick",
        "--fit",
        &file,
        "--json",
        "-",
    ];
    let output = succeed(symmem(&directory, &arguments));
    let prediction: Prediction = serde_json::from_slice(&output.stdout).unwrap();
    let fit = prediction.fit.unwrap();
    assert!(fit.calls > 50 && fit.mean_error < 0.1, "{fit:?}");
    let source = |name: &str| {
        let mut all = prediction.constants.iter();
        all.find(|constant| constant.name == name)
            .unwrap()
            .source
            .clone()
    };
    assert_eq!(source("bandwidth inside"), "fitted");
    // The run had one node.
    assert_eq!(source("latency between"), "assumed");
    assert_eq!((prediction.ranks_per_node, prediction.rails), (2, 2));
    assert!(text(&output.stderr).contains("the formula is off by"));
}

#[test]
fn a_report_without_collectives_cannot_be_fitted_to() {
    let directory = directory("nothing-to-fit");
    let results = Path::new(env!("CARGO_MANIFEST_DIR")).join("../benches/results");
    let file = results.join("2026-11-20-p2p-2xh200.json");
    let arguments = [
        "bench",
        "collectives",
        "--predict",
        "2",
        "--fit",
        file.to_str().unwrap(),
    ];
    let error = fail(symmem(&directory, &arguments));
    assert!(
        error.contains("has no times of symmem's collectives to fit to"),
        "{error}"
    );
    assert_eq!(error.lines().count(), 1, "{error}");
}
