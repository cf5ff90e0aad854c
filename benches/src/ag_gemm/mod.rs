//! All-gather + GEMM with every algorithm, checked and timed together with its parts and other libraries in one run.
//!
//! Method: A and B are random. Each algorithm is called once, then once more with another A into a poisoned C, which is
//! compared with a reference in f64. A stale tile of the first call is therefore found. Then all contenders take turns
//! in rounds: the GEMM alone (cuBLASLt or hipBLASLt with its fastest heuristic, and symmem's kernel), the gather alone,
//! the gather by NCCL or RCCL between symmetric windows followed by the GEMM, each algorithm, the selector's choice if
//! it is none of them, and PyTorch. An untimed barrier of all ranks on the stream comes before each call. Times are
//! measured by events; the result is the median over rounds of the slowest rank's time. For large M, GEMM and gather
//! also run at once, without a dependency. For small M, calls are also captured and replayed. DDLB's published method
//! (calls back to back without a barrier, mean of rank 0) is optional.
//!
//! `gemm` has random matrices, the GEMM alone, and the timing. `reference` computes the expected C. `session` holds
//! one rank's matrices, `calls` enqueues the contenders' calls on them. `windows` and `torch` call other libraries, `kernel`
//! is symmem's GEMM kernel alone, `side` a second stream. `contender` is one contender, `lineup` creates them, `run` has what all shapes share,
//! `rounds` the rounds. `shapes` checks shapes, `options` says what to measure, and `measure` runs everything.

mod calls;
mod contender;
mod kernel;
mod lineup;
mod measure;
mod options;
mod reference;
mod rounds;
mod run;
mod session;
pub mod shapes;
mod side;
mod torch;
mod windows;

pub use measure::{UnreportedResults, add};
pub use options::{ALL_TRANSPORTS, Options};

#[cfg(test)]
mod tests {
    use crate::report::ag_gemm::{ALGORITHMS, GemmProblem, Sharding, VARIANTS};
    use symmem::tuning::{gemm_algorithm, gemm_transport};

    #[test]
    fn every_algorithm_of_the_tables_is_one_of_ours() {
        for name in ALGORITHMS {
            assert!(gemm_algorithm(name).is_some(), "{name}");
        }
        for name in VARIANTS {
            let (by, moved) = name.split_once(' ').unwrap();
            assert!(
                ALGORITHMS.contains(&by) && gemm_transport(moved).is_some(),
                "{name}"
            );
        }
        assert_eq!(gemm_algorithm("automatic"), None);
    }

    #[test]
    fn the_files_of_shapes_are_what_they_are_said_to_be() {
        let read = |text: &str| serde_json::from_str::<Vec<GemmProblem>>(text).unwrap();
        let small = read(include_str!("../../dataset/ag_gemm.json"));
        assert_eq!(small.len(), 26, "13 numbers of rows, two types");
        let fixed = |p: &GemmProblem| (p.n, p.k, p.sharding) == (3584, 8192, Sharding::Columns);
        assert!(small.iter().all(fixed));
        let large = read(include_str!("../../dataset/ag_gemm_large.json"));
        assert_eq!(large[0].shape(), "32768x8192x16384");
        assert!(
            large
                .iter()
                .all(|problem| problem.sharding == Sharding::Rows)
        );
    }
}
