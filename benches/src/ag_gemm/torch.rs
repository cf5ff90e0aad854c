//! PyTorch's all-gather + GEMM as a baseline, in `torch_ag_gemm.py`, which is embedded in this program.
//!
//! After the processes have met ([`crate::torch::start`]), each request and answer is one line. WAY is `plain`
//! (all-gather, then GEMM), `fused` (`fused_all_gather_matmul`) or `overlapped` (Transformer Engine):
//!
//! | request | answer |
//! |---|---|
//! | `shape M N K DTYPE SHARDING ORDER BIAS` | `shaped`: new matrices replace the old ones; or `absent REASON` |
//! | `check WAY` | `wrong WRONG CHECKED`, or `absent REASON` |
//! | `time WAY CALLS` | `times NANOSECONDS …`: single calls, each after a barrier, after one untimed call |
//! | `replay WAY CALLS LAUNCHES` | `times NANOSECONDS`: time per call in graph replays; or `absent REASON` |
//! | `loop WAY WARM CALLS` | `times NANOSECONDS`: mean of calls without a barrier |
//! | `quit` | |

use crate::Result;
use crate::outcome::{Outcome, agree};
use crate::process::Process;
use crate::report::ag_gemm::{GemmProblem, MatrixElement};
use crate::torch;
use symmem::Communicator;

const SCRIPT: &str = include_str!("../../baselines/torch_ag_gemm.py");

/// This rank's process.
pub(super) struct Torch {
    process: Process,
    pub(super) version: String,
}

impl Torch {
    /// Starts the processes, of all ranks or of none. Collective.
    pub(super) fn start(communicator: &Communicator) -> Result<Outcome<Self>> {
        let started = torch::start(communicator, SCRIPT, &[])?;
        let started = started.map(|(process, version)| Self { process, version });
        agree(communicator, started)
    }

    /// Sends a line and returns the rest of the answer after `word`, or the reason of an `absent`. Blocks.
    fn ask(&mut self, line: &str, word: &str) -> Result<Outcome<String>> {
        self.process.tell(line)?;
        match self.process.answer()? {
            (first, rest) if first == word => Ok(Ok(rest)),
            (first, rest) if first == "absent" => Ok(Err(rest)),
            (first, rest) => Err(self.process.unexpected(&first, &rest, word)),
        }
    }

    /// Creates the matrices of a shape.
    pub(super) fn shape(&mut self, problem: &GemmProblem) -> Result<Outcome<()>> {
        if problem.dtype == MatrixElement::F8E4M3 {
            let reason = "PyTorch multiplies 8-bit floats by scaled_mm, which is not measured here";
            return Ok(Err(reason.into()));
        }
        let line = format!(
            "shape {} {} {} {} {} {} {}",
            problem.m,
            problem.n,
            problem.k,
            problem.dtype.name(),
            problem.sharding_name(),
            problem.b_order_name(),
            u32::from(problem.bias)
        );
        Ok(self.ask(&line, "shaped")?.map(drop))
    }

    /// Calls once; returns the numbers of wrong and of compared elements.
    pub(super) fn check(&mut self, method: &str) -> Result<Outcome<(u64, u64)>> {
        Ok(match self.ask(&format!("check {method}"), "wrong")? {
            Ok(rest) => {
                let [wrong, compared] = self.process.numbers(&rest)?;
                Ok((wrong as u64, compared as u64))
            }
            Err(reason) => Err(reason),
        })
    }

    /// Times single calls, in nanoseconds.
    pub(super) fn time(&mut self, method: &str, calls: u32) -> Result<Outcome<Vec<f64>>> {
        self.times(&format!("time {method} {calls}"), calls)
    }

    /// Times a replayed call, in nanoseconds.
    pub(super) fn replay(
        &mut self,
        method: &str,
        calls: u32,
        launches: u32,
    ) -> Result<Outcome<Vec<f64>>> {
        self.times(&format!("replay {method} {calls} {launches}"), 1)
    }

    /// Returns the mean time of calls without a barrier, in nanoseconds.
    pub(super) fn looped(
        &mut self,
        method: &str,
        warm: u32,
        calls: u32,
    ) -> Result<Outcome<Vec<f64>>> {
        self.times(&format!("loop {method} {warm} {calls}"), 1)
    }

    fn times(&mut self, line: &str, expected: u32) -> Result<Outcome<Vec<f64>>> {
        let rest = match self.ask(line, "times")? {
            Ok(rest) => rest,
            Err(reason) => return Ok(Err(reason)),
        };
        let times: Vec<f64> = rest
            .split_whitespace()
            .filter_map(|word| word.parse().ok())
            .collect();
        match times.len() == expected as usize {
            true => Ok(Ok(times)),
            false => Err(self
                .process
                .failed(format!("it answered `{rest}`; expected {expected} times"))),
        }
    }
}
