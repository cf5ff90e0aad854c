//! Description of an operation as text.

use crate::base::gemm_names::{GemmAlgorithm, GemmTransport};
use crate::base::gemm_shape::GemmShape;
use crate::gemm::matrix::GemmElement;
use crate::gemm::operation::AllGatherGemm;
use crate::gemm::plan::Problem;
use std::fmt::Write;

impl<T: GemmElement> AllGatherGemm<T> {
    /// Returns a description of the operation: the choice, the formulas behind the indices, and this rank's
    /// steps.
    pub fn explain(&self) -> String {
        let Problem {
            rank,
            world,
            division,
            algorithm,
            transport,
            ..
        } = self.problem;
        let GemmShape { m, n, k, .. } = self.shape;
        let mut text = String::new();
        // Writing to a string does not fail, here and below.
        let _ = writeln!(
            text,
            "rank {rank} of {world}: C[{m}, {n}] = A[{m}, {k}] * B[{k}, {n}] of {}, {} {} of A on each rank",
            T::TYPE.name(),
            division.shard,
            if division.by_columns() {
                "columns"
            } else {
                "rows"
            },
        );
        let _ = match &self.library {
            Some((library, file)) => writeln!(text, "GEMM library: {library} ({file})"),
            None => writeln!(text, "GEMM library: none"),
        };
        let _ = match (algorithm, transport) {
            (GemmAlgorithm::Baseline, GemmTransport::Nccl) => {
                writeln!(text, "Baseline: NCCL or RCCL gathers all of A first")
            }
            (GemmAlgorithm::Baseline, _) => writeln!(
                text,
                "Baseline: symmem's all-gather gathers all of A first (NCCL or RCCL is not used)"
            ),
            (GemmAlgorithm::Pipeline, _) => {
                let then = match division.by_columns() {
                    true => "once all shards have arrived, A is multiplied on the caller's stream"
                        .into(),
                    false => format!(
                        "each shard is multiplied on GEMM stream i mod {}",
                        self.problem.streams.min(world)
                    ),
                };
                writeln!(
                    text,
                    "Pipeline by {transport:?}: in step i the shard of rank ({rank} + i) mod {world} arrives and \
                     this rank's shard goes to rank ({rank} - i) mod {world}, on copy stream (i - 1) mod {}; {then}",
                    self.problem.lanes().max(1)
                )
            }
            _ if self.problem.at_once => writeln!(
                text,
                "{algorithm:?} by {transport:?}, whose kernel is its own barrier: this rank's shard goes to all \
                 ranks in {} chunks of {} rows, each stored by one block, which then multiplies",
                self.problem.chunks, self.problem.chunk
            ),
            _ => writeln!(
                text,
                "{algorithm:?} by {transport:?}: {} chunks of {} rows per shard, in step i from rank ({rank} + i) \
                 mod {world} and to rank ({rank} - i) mod {world}; {} blocks",
                self.problem.chunks,
                self.problem.chunk,
                self.options.blocks.unwrap_or(self.limits.blocks)
            ),
        };
        for step in &self.steps {
            let _ = writeln!(text, "  {step}");
        }
        text
    }
}
