//! Runs a case: several calls, each with a new `A`, compared with sums in f64; then the last call again, which must give the same
//! bits. Of an all-reduce all ranks must have the same bits, too.

use super::case::{GemmReduceCase, ReductionName};
use super::memory::Memory;
use super::reference::Reference;
use super::values::Values;
use crate::findings::{Fault, Findings};
use crate::gemm_float::GemmFloat;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use symmem::{Communicator, Queue, Result, Stream};

/// Calls per case, each with new data.
const ROUNDS: u64 = 2;
/// Repetitions of the last call.
const REPEATS: u64 = 2;

/// The communicator, stream and case that a check uses.
pub struct GemmReduceCheck<'a> {
    pub communicator: &'a Communicator,
    pub stream: &'a Stream,
    pub case: &'a GemmReduceCase,
    pub deadline: Duration,
    /// A fault that a test planted.
    pub fault: Option<Fault>,
}

/// Runs a case and returns its findings. Collective; blocks until the calls are done.
///
/// # Errors
/// Any error of creating the operation, of its memory or of a call.
pub fn check(sum: &GemmReduceCheck<'_>) -> Result<Findings> {
    if sum.case.half {
        return sum.check::<half::f16>();
    }
    sum.check::<half::bf16>()
}

impl GemmReduceCheck<'_> {
    fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn check<T: GemmFloat>(&self) -> Result<Findings> {
        let memory = Memory::<T>::new(self.communicator, self.case, self.deadline)?;
        let called = self.calls(&memory);
        // Every rank takes part. A rank that failed or found something wrong by itself has no bits to compare, so that it is the
        // rank which is blamed.
        let bits = match (&called, self.case.reduction) {
            (Ok((findings, bits)), ReductionName::All) if findings.is_empty() => {
                bits.to_le_bytes().to_vec()
            }
            _ => Vec::new(),
        };
        let told = self.communicator.host_all_gather(&bits);
        let (mut findings, _) = called?;
        let told = told?;
        let differs = |other: &Vec<u8>| !(other.is_empty() || bits.is_empty() || *other == bits);
        let other = told.iter().position(differs);
        findings.extend(other.map(|rank| format!("C has other bits than rank {rank}'s")));
        memory.free()?;
        Ok(findings)
    }

    /// Makes all calls; returns what is wrong, and a hash of every `C`.
    fn calls<T: GemmFloat>(&self, memory: &Memory<T>) -> Result<(Findings, u64)> {
        let (communicator, stream, case) = (self.communicator, self.stream, self.case);
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let operands = memory.operands(case)?;
        let enqueue = |queue: &Queue| queue.gemm_reduce(&memory.operation, &operands);
        let graph = match case.captured {
            true => Some(communicator.stream()?.capture(enqueue)?),
            false => None,
        };
        let call = |values: &Values<T>| {
            memory.write(stream, case, values, rank)?;
            match &graph {
                _ if self.planted(Fault::Absent) => {}
                Some(graph) => stream.launch_graph(graph)?,
                None => enqueue(stream)?,
            }
            stream.synchronize_within(self.deadline)?;
            memory.read(stream, case, values, rank)
        };
        let (mut findings, mut hashes) = (Findings::new(), Vec::new());
        let mut previous: Vec<T> = Vec::new();
        for number in 0..ROUNDS + REPEATS {
            let round = number.min(ROUNDS - 1);
            let values = Values::<T>::new(case, world, round);
            if number > round {
                self.come_late(number);
            }
            let roundings = case.variant.roundings(world);
            let reference = Reference::new(&values, case.bias, (case.n, case.k), roundings);
            let mut seen = call(&values)?;
            seen.plant(self.fault, case, &reference, (rank, world), &previous);
            if number == round {
                let found = seen.wrong(case, &reference, (rank, world));
                findings.extend(found.map(|found| format!("call {round}: {found}")));
            } else {
                if self.planted(Fault::OtherRepeat) {
                    seen.change_last_bit();
                }
                // The calls go on: the other ranks wait for this one.
                if hashes.last() != Some(&seen.hash()) {
                    findings.push(format!("call {round} repeated: it gave other bits"));
                }
            }
            previous = seen.c.elements().to_vec();
            hashes.push(seen.hash());
        }
        let mut all = DefaultHasher::new();
        hashes.hash(&mut all);
        Ok((findings, all.finish()))
    }

    /// Sleeps, so that ranks start, and sums arrive, in a different order in each repetition.
    fn come_late(&self, repeat: u64) {
        /// Longer than the GEMMs of a case take on most devices.
        const STEP: Duration = Duration::from_millis(1);
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        let place = (rank as u64 + repeat) % world as u64;
        std::thread::sleep(STEP * place as u32);
    }
}
