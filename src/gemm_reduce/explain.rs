//! Description of an operation as text.

use crate::gemm::matrix::GemmElement;
use crate::gemm_reduce::operation::GemmReduce;
use crate::gemm_reduce::plan::Problem;
use crate::gemm_reduce::shape::GemmReduceShape;
use std::fmt::Write;

impl<T: GemmElement> GemmReduce<T> {
    /// Returns a description of the operation: the choice, the formulas behind the indices, and this rank's
    /// steps.
    pub fn explain(&self) -> String {
        let Problem {
            rank,
            world,
            reduction,
            transport,
            shard,
            chunk,
            chunks,
            ..
        } = self.problem;
        let GemmReduceShape { m, n, k, .. } = self.shape;
        let mut text = String::new();
        // Writing to a string does not fail, here and below.
        let _ = writeln!(
            text,
            "{}, rank {rank} of {world}: C[{m}, {n}] = the sum of all ranks' A[{m}, {k}] * B[{k}, {n}] of {}",
            reduction.name(),
            T::TYPE.name(),
        );
        let _ = match &self.library {
            Some((library, file)) => writeln!(text, "GEMM library: {library} ({file})"),
            None => writeln!(text, "GEMM library: not used"),
        };
        let _ = match (&self.kernel, self.problem.is_pipeline()) {
            (Some(kernel), _) => writeln!(
                text,
                "{:?}: one kernel of {} blocks of {} threads multiplies tiles of {} x {} and sends parts in {}; {} bytes of \
                 inbox",
                self.problem.algorithm,
                kernel.limits.blocks,
                kernel.limits.threads,
                kernel.limits.tile_m,
                kernel.limits.tile_n,
                self.options.partials.code(T::TYPE).name().to_lowercase(),
                kernel.limits.inbox_bytes,
            ),
            (None, true) => writeln!(
                text,
                "Pipeline by {transport:?}: {shard} rows of each rank in {chunks} chunks of {chunk}; in hop h this rank adds \
                 to the rows of rank ({rank} - 1 - h) mod {world}"
            ),
            (None, false) => writeln!(text, "Baseline: one GEMM, then the collective"),
        };
        for step in &self.steps {
            let _ = writeln!(text, "  {step}");
        }
        text
    }
}
