//! Made-up reports for tests. No figure here was ever measured: rates follow a formula.

use super::schema::*;
use super::statistics::{SingleShot, Spread, Timing};

const BYTES: [u64; 8] = [
    2 << 10,
    8 << 10,
    32 << 10,
    128 << 10,
    512 << 10,
    2 << 20,
    4 << 20,
    64 << 20,
];

/// A made-up timing: a start-up time plus `bytes` at the ceiling rate.
fn timing(bytes: u64, start_ns: f64, ceiling: f64) -> Timing {
    let ns = start_ns + bytes as f64 / ceiling;
    Timing::from_rounds(bytes, &[ns * 0.98, ns, ns * 1.03]).unwrap()
}

fn environment() -> Environment {
    let pairs = |pairs: &[(&str, &str)]| {
        let own = |&(name, value): &(&str, &str)| (name.to_owned(), value.to_owned());
        pairs.iter().map(own).collect()
    };
    Environment {
        commit: "0123456".to_owned(),
        date: "2000-01-01T00:00:00Z".to_owned(),
        command: "symmem bench p2p --example '<made up>'".to_owned(),
        host: Host {
            cpu: "Example processor & co".to_owned(),
            cores: 16,
            kernel: "0.0.0-example".to_owned(),
        },
        backend: "cuda".to_owned(),
        devices: vec!["Example GPU".to_owned(); 2],
        driver: Some("000.00.00".to_owned()),
        libraries: pairs(&[("nvshmem", "0.0.0"), ("nccl", "0.0.0")]),
        clocks: Some("SM 1000 MHz, memory 1000 MHz".to_owned()),
        network: None,
        links: Some("peer access between both devices".to_owned()),
        multicast: "off: forbidden by NVSHMEM_DISABLE_NVLS=1".to_owned(),
        variables: pairs(&[("NVSHMEM_DISABLE_NVLS", "1"), ("SYMMEM_BACKEND", "")]),
    }
}

/// Two GPUs with every column, direction and kind of traffic; also latencies, a matrix and a note.
pub fn cuda() -> Report {
    let mut report = Report::new(environment());
    let columns = [
        (Column::Block128, "bulk", 1, 128, 1900.0, 45.0),
        (Column::Nvshmem, "putmem_block", 1, 128, 2200.0, 11.0),
        (Column::BlockBest, "bulk", 1, 512, 1900.0, 50.0),
        (Column::GridBest, "bulk", 16, 512, 2500.0, 360.0),
        (Column::CopyEngine, "copy_engine", 0, 0, 9000.0, 390.0),
        (Column::Unrolled, "unrolled", 1, 128, 2000.0, 3.0),
    ];
    for traffic in Traffic::ALL {
        for direction in Direction::ALL {
            for bytes in BYTES {
                for (column, method, blocks, threads, start_ns, ceiling) in columns {
                    let looped = timing(bytes, start_ns, ceiling);
                    let ours = !column.is_baseline();
                    report.points.push(Point {
                        direction,
                        traffic,
                        rank: 0,
                        peer: 1,
                        bytes,
                        column,
                        method: method.to_owned(),
                        blocks,
                        threads,
                        bytes_in_flight: if method == "bulk" {
                            bytes.min(128 << 10) * u64::from(blocks)
                        } else {
                            0
                        },
                        looped,
                        graph: ours.then(|| timing(bytes, start_ns * 0.8, ceiling)),
                        single: ours.then_some(SingleShot {
                            p50_ns: looped.ns + 4000.0,
                            p99_ns: looped.ns + 7000.0,
                        }),
                        wrong_bytes: 0,
                        rounds: 9,
                        note: None,
                    });
                }
            }
        }
    }
    let spread = |median: f64| Spread {
        median,
        min: median * 0.95,
        p99: median * 1.4,
    };
    report.latencies = vec![
        Latency {
            name: "LL packet to a polling kernel".to_owned(),
            one_way_ns: spread(800.0),
            rounds: 1000,
            baseline: None,
            note: None,
        },
        Latency {
            name: "put, release, signal".to_owned(),
            one_way_ns: spread(1500.0),
            rounds: 1000,
            baseline: Some(LatencyBaseline {
                name: "nvshmem 0.0.0".to_owned(),
                one_way_ns: spread(3000.0),
            }),
            note: None,
        },
    ];
    report.matrices = vec![Matrix {
        direction: Direction::Push,
        bytes: 64 << 20,
        column: Column::CopyEngine,
        gbps: vec![vec![None, Some(390.0)], vec![Some(385.5), None]],
    }];
    report.collectives = Some(super::collectives::example());
    report.ag_gemm = Some(super::ag_gemm::example());
    report.notes = vec!["Every figure on this page is made up <for tests>.".to_owned()];
    report
}

/// The host backend: one way only, with one column and `memcpy`.
pub fn host() -> Report {
    let mut report = Report::new(Environment {
        backend: "host".to_owned(),
        devices: Vec::new(),
        driver: None,
        libraries: Default::default(),
        clocks: None,
        ..environment()
    });
    for direction in Direction::ALL {
        for bytes in BYTES {
            for (column, method, ceiling) in [
                (Column::GridBest, "vector", 9.5),
                (Column::Memcpy, "memcpy", 10.0),
            ] {
                let looped = timing(bytes, 100.0, ceiling);
                report.points.push(Point {
                    direction,
                    traffic: Traffic::OneWay,
                    rank: 0,
                    peer: 1,
                    bytes,
                    column,
                    method: method.to_owned(),
                    blocks: 0,
                    threads: 0,
                    bytes_in_flight: 0,
                    looped,
                    graph: None,
                    single: (column == Column::GridBest).then_some(SingleShot {
                        p50_ns: looped.ns,
                        p99_ns: looped.ns * 2.0,
                    }),
                    wrong_bytes: 0,
                    rounds: 9,
                    note: None,
                });
            }
        }
    }
    report
}
