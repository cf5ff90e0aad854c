//! All-gather with a GEMM, by every algorithm, every one checked, beside its parts and baselines in the same
//! run.
//!
//! Method: A and B are random. Each algorithm is called once, then once more with another A into a poisoned
//! C, which is compared with a reference in f64, so that a tile left over from the call before is wrong.
//! Then come rounds in which all take turns: the GEMM alone (the vendor's library, in the fastest of its
//! ways, and our own kernel), the gather alone, the vendor's gather between symmetric windows and then the
//! GEMM, each algorithm, what the selector chooses where that is none of them, PyTorch. Before each call is a barrier of all ranks on the
//! stream, outside of what is timed; time is that of events, of the slowest rank; the median counts.
//! Of large products GEMM and gather are run side by side as well, without a dependency between them.
//! Products of few rows are captured and replayed as well. DDLB's published method (calls back to back
//! without a barrier, mean of rank 0) is there on demand.
//!
//! `data` makes matrices, `reference` says what C should be, `session` is one rank's matrices, `calls` what is
//! done with them, `library`, `windows` and `torch` are the others, `kernel` is ours alone, `side` a second stream,
//! `contender` is one who takes turns, `lineup` says who does, `run` is what all products have in common, `rounds`
//! has the rounds; `options` says what to measure, and `measure` does it all.

mod calls;
mod contender;
mod data;
mod element;
mod kernel;
mod library;
mod lineup;
mod measure;
mod options;
mod reference;
mod rounds;
mod run;
mod session;
mod side;
mod torch;
mod windows;

pub use measure::{Told, add};
pub use options::{ALL_TRANSPORTS, Options};

#[cfg(test)]
mod tests {
    use crate::report::ag_gemm::{ALGORITHMS, Product, Sharded, VARIANTS};
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
        let read = |text: &str| serde_json::from_str::<Vec<Product>>(text).unwrap();
        let small = read(include_str!("../../dataset/ag_gemm.json"));
        assert_eq!(small.len(), 26, "13 numbers of rows, two types");
        let fixed = |p: &Product| (p.n, p.k, p.sharding) == (3584, 8192, Sharded::Columns);
        assert!(small.iter().all(fixed));
        let large = read(include_str!("../../dataset/ag_gemm_large.json"));
        assert_eq!(large[0].shape(), "32768x8192x16384");
        assert!(
            large
                .iter()
                .all(|product| product.sharding == Sharded::Rows)
        );
    }
}
