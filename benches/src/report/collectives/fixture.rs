//! A made-up section for tests. No figure here was ever measured: times follow a formula.

use super::{
    BaselineState, Collective, CollectivePoint, CollectiveResults, OURS, PlacementResults, Time,
};
use crate::report::SingleShot;

const WORLD: u32 = 8;

/// Two operations, three sizes, two baselines (one out of place only), and one absent baseline.
pub fn collectives() -> CollectiveResults {
    let mut points = Vec::new();
    for collective in [Collective::AllReduce, Collective::AllGather] {
        for bytes in [1 << 10, 1 << 20, 1 << 30_u64] {
            for (by, start_ns, ceiling) in [
                (OURS, 4000.0, 200.0),
                ("nccl", 12_000.0, 190.0),
                ("torch one-shot", 8000.0, 50.0),
            ] {
                let ns = start_ns + bytes as f64 / ceiling;
                let placed = PlacementResults {
                    looped: Time::from_rounds(&[ns * 1.5, ns * 1.6, ns * 1.7]),
                    graph: Time::from_rounds(&[ns * 0.9, ns, ns * 1.2]),
                    single: Some(SingleShot {
                        p50_ns: ns * 3.0,
                        p99_ns: ns * 5.0,
                    }),
                    wire_bytes: None,
                    wrong: 0,
                    checked: 1000,
                };
                let elements = bytes / 2;
                points.push(CollectivePoint {
                    collective,
                    bytes,
                    count: match collective.has_parts() {
                        true => elements / u64::from(WORLD),
                        false => elements,
                    },
                    element: "bfloat16".into(),
                    root: None,
                    by: by.into(),
                    algorithm: if by == OURS { "packets" } else { "" }.into(),
                    blocks: if by == OURS { 8 } else { 0 },
                    threads: if by == OURS { 512 } else { 0 },
                    in_place_algorithm: String::new(),
                    out_of_place: Some(placed),
                    in_place: (by != "torch one-shot").then_some(placed),
                    rounds: 9,
                });
            }
        }
    }
    let state = |name: &str, version: Option<&str>, absent: Option<&str>| BaselineState {
        name: name.into(),
        version: version.map(Into::into),
        absent: absent.map(Into::into),
    };
    CollectiveResults {
        world: WORLD,
        nodes: None,
        baselines: vec![
            state("nccl", Some("0.0.0"), None),
            state("torch one-shot", Some("0.0.0"), None),
            state("mpi", None, Some("no mpicc")),
        ],
        points,
        barrier: Some(PlacementResults {
            graph: Time::from_rounds(&[2000.0]),
            ..PlacementResults::default()
        }),
        between: None,
        plain: false,
        summary: None,
    }
}
