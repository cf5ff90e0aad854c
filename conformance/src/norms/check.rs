//! Runs a case: several calls, each with new data, compared with the reference; then the last call again, which must give the
//! same bits. All ranks must have the same bits, too.

use super::case::{NormCase, NormName, NormOutput, ResidualUse};
use super::reference::Expected;
use super::seen::{NormFloat, POISON_F8, Results, Seen};
use super::values::{EPSILON, Values};
use crate::dtype::Dtype;
use crate::findings::{Fault, Findings};
use crate::floats::Format;
use crate::region::Region;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::Duration;
use symmem::{CollectiveOptions, Communicator, F8E4M3, Queue, Result, RowNorm, Scales, Stream};

/// Calls per case, each with new data.
const ROUNDS: u64 = 2;

/// The communicator, stream and case that a check uses.
pub struct NormCheck<'a> {
    pub communicator: &'a Communicator,
    pub stream: &'a Stream,
    pub case: &'a NormCase,
    pub deadline: Duration,
    /// A fault that a test planted.
    pub fault: Option<Fault>,
}

/// Runs a case and returns its findings. Collective; blocks until the calls are done.
///
/// # Errors
/// Any error of the memory or of a call.
pub fn check(norm: &NormCheck<'_>) -> Result<Findings> {
    match norm.case.dtype {
        Dtype::F16 => norm.check::<half::f16>(),
        Dtype::Bf16 => norm.check::<half::bf16>(),
        _ => norm.check::<f32>(),
    }
}

/// The matrices of a case. What a case does not use is not allocated.
struct Memory<T: NormFloat> {
    source: Region<T>,
    destination: Option<Region<T>>,
    bytes: Option<Region<F8E4M3>>,
    scales: Option<Region<f32>>,
    residual: Option<Region<T>>,
    sums: Option<Region<T>>,
    weight: Region<T>,
    bias: Region<T>,
}

impl NormCheck<'_> {
    fn planted(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn check<T: NormFloat>(&self) -> Result<Findings> {
        let memory = self.memory::<T>()?;
        let called = self.calls(&memory);
        // Every rank takes part. A rank that failed or found something wrong by itself has no bits to compare, so that it is the
        // rank which is blamed.
        let bits = match &called {
            Ok((findings, bits)) if findings.is_empty() => bits.to_le_bytes().to_vec(),
            _ => Vec::new(),
        };
        let told = self.communicator.host_all_gather(&bits);
        let (mut findings, _) = called?;
        let told = told?;
        let differs = |other: &Vec<u8>| !(other.is_empty() || bits.is_empty() || *other == bits);
        let other = told.iter().position(differs);
        findings
            .extend(other.map(|rank| format!("the results have other bits than rank {rank}'s")));
        memory.free()?;
        Ok(findings)
    }

    /// Makes all calls; returns what is wrong, and a hash of everything that they wrote.
    fn calls<T: NormFloat>(&self, memory: &Memory<T>) -> Result<(Findings, u64)> {
        let world = self.communicator.world_size();
        let enqueue = |queue: &Queue| self.enqueue(queue, memory);
        let graph = match self.case.captured {
            true => Some(self.communicator.stream()?.capture(enqueue)?),
            false => None,
        };
        let call = |values: &Values| {
            self.write(memory, values)?;
            match &graph {
                _ if self.planted(Fault::Absent) => {}
                Some(graph) => self.stream.launch_graph(graph)?,
                None => enqueue(self.stream)?,
            }
            self.stream.synchronize_within(self.deadline)?;
            self.read(memory, values)
        };
        let mut findings = Findings::new();
        let mut hashes = Vec::new();
        let (mut values, mut expected);
        for round in 0..ROUNDS {
            values = Values::new(self.case, world, round);
            expected = Expected::new(self.case, &values);
            let mut seen = call(&values)?;
            seen.plant(self.fault, self.case, &values);
            let found = seen.wrong(&expected, self.case, values.scale);
            findings.extend(found.map(|found| format!("call {round}: {found}")));
            hashes.push(seen.hash(!self.case.sharded));
        }
        self.come_late();
        values = Values::new(self.case, world, ROUNDS - 1);
        let mut seen = call(&values)?;
        seen.plant(self.fault, self.case, &values);
        if self.planted(Fault::OtherRepeat) {
            seen.change_last_bit();
        }
        hashes.push(seen.hash(!self.case.sharded));
        let [.., last, again] = hashes[..] else {
            return Ok((findings, 0));
        };
        if last != again {
            findings.push("the last call repeated: it gave other bits".into());
        }
        let mut all = DefaultHasher::new();
        hashes.hash(&mut all);
        Ok((findings, all.finish()))
    }

    fn memory<T: NormFloat>(&self) -> Result<Memory<T>> {
        let (communicator, case) = (self.communicator, self.case);
        let poison = T::of_bits(Format::of(case.dtype).encode(f32::NAN));
        let matrix = |count| Region::new(communicator, case.offset, count, poison);
        let elements = case.elements();
        let optional = |is_used: bool| is_used.then(|| matrix(elements)).transpose();
        let world = communicator.world_size();
        let room = case.residual_of(0, world).len();
        let count = case.residual_of(communicator.rank(), world).len();
        let rows = || Region::with_room(communicator, case.offset, (room, count), poison);
        let own = |is_used: bool| is_used.then(rows).transpose();
        let is_narrow = case.output != NormOutput::Same;
        let scales = || Region::new(communicator, case.offset, case.scales(), f32::NAN);
        let bytes = || Region::new(communicator, case.offset, elements, POISON_F8);
        Ok(Memory {
            source: matrix(elements)?,
            destination: optional(!is_narrow && !case.in_place)?,
            bytes: is_narrow.then(bytes).transpose()?,
            scales: is_narrow.then(scales).transpose()?,
            residual: own(case.residual != ResidualUse::Absent)?,
            sums: own(case.residual == ResidualUse::Apart)?,
            weight: matrix(case.hidden)?,
            bias: matrix(case.hidden)?,
        })
    }

    /// Writes what a call reads, and poison to what it writes.
    fn write<T: NormFloat>(&self, memory: &Memory<T>, values: &Values) -> Result<()> {
        let stream = self.stream;
        let of = |bits: &[u32]| -> Vec<T> { bits.iter().map(|bits| T::of_bits(*bits)).collect() };
        let own = &values.sources[self.communicator.rank()];
        memory.source.write(stream, &of(own))?;
        memory.weight.write(stream, &of(&values.weight))?;
        memory.bias.write(stream, &of(&values.bias))?;
        if let Some(residual) = &memory.residual {
            residual.write(stream, &of(&values.residual[self.own()]))?;
        }
        for region in [&memory.destination, &memory.sums].into_iter().flatten() {
            region.poison(stream)?;
        }
        if let Some(bytes) = &memory.bytes {
            bytes.poison(stream)?;
        }
        match &memory.scales {
            Some(scales) if self.case.output == NormOutput::Tensor => {
                scales.write(stream, &[values.scale])
            }
            Some(scales) => scales.poison(stream),
            None => Ok(()),
        }
    }

    fn enqueue<T: NormFloat>(&self, queue: &Queue, memory: &Memory<T>) -> Result<()> {
        let case = self.case;
        let own = case.own;
        let mut norm = match case.norm {
            NormName::None => RowNorm::none(),
            NormName::RootMeanSquare => {
                RowNorm::root_mean_square(memory.weight.operand(own)?, EPSILON)
            }
            NormName::Layer => RowNorm::layer(
                memory.weight.operand(own)?,
                memory.bias.operand(own)?,
                EPSILON,
            ),
        };
        if case.from_one {
            norm = norm.weight_offset(1.0);
        }
        if let Some(residual) = &memory.residual {
            let sums = memory.sums.as_ref().unwrap_or(residual);
            let (from, to) = (residual.operand(own)?, sums.operand(own)?);
            norm = match case.sharded {
                true => norm.residual_shard(from, to),
                false => norm.residual(from, to),
            };
        }
        let mut options = CollectiveOptions::new().deadline(self.deadline);
        if case.blocks > 0 {
            options = options.blocks(case.blocks);
        }
        if case.threads > 0 {
            options = options.threads(case.threads);
        }
        let (calls, source) = (queue.with(&options), memory.source.operand(own)?);
        let (Some(bytes), Some(scales)) = (&memory.bytes, &memory.scales) else {
            let destination = memory.destination.as_ref().unwrap_or(&memory.source);
            let destination = destination.operand(own)?;
            return calls.all_reduce_norm(destination, source, case.hidden, &norm);
        };
        let scales = scales.operand(own)?;
        let scales = match case.output {
            NormOutput::Same | NormOutput::Tensor => Scales::Tensor(scales),
            NormOutput::Rows => Scales::Rows(scales),
            NormOutput::Groups => Scales::Groups(scales),
        };
        let bytes = bytes.operand(own)?;
        calls.all_reduce_norm_f8(bytes, scales, source, case.hidden, &norm)
    }

    fn read<T: NormFloat>(&self, memory: &Memory<T>, values: &Values) -> Result<Seen<T>> {
        let (stream, rank) = (self.stream, self.communicator.rank());
        let results = match &memory.bytes {
            Some(bytes) => Results::Narrow(bytes.read(stream)?),
            None => {
                let destination = memory.destination.as_ref().unwrap_or(&memory.source);
                Results::Same(destination.read(stream)?)
            }
        };
        let mut inputs = vec![
            ("weight", memory.weight.read(stream)?, values.weight.clone()),
            ("bias", memory.bias.read(stream)?, values.bias.clone()),
        ];
        if !self.case.in_place {
            let source = memory.source.read(stream)?;
            inputs.push(("source", source, values.sources[rank].clone()));
        }
        let sums = match (&memory.residual, &memory.sums) {
            (Some(residual), Some(sums)) => {
                let values = values.residual[self.own()].to_vec();
                inputs.push(("residual", residual.read(stream)?, values));
                Some(sums.read(stream)?)
            }
            (Some(residual), None) => Some(residual.read(stream)?),
            (None, _) => None,
        };
        let scales = memory.scales.as_ref();
        Ok(Seen {
            results,
            scales: scales.map(|scales| scales.read(stream)).transpose()?,
            sums,
            first_sum: self.own().start,
            inputs,
        })
    }

    /// Returns the elements of the residual that this rank has.
    fn own(&self) -> std::ops::Range<usize> {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        self.case.residual_of(rank, world)
    }

    /// Sleeps, so that ranks start in another order in the repetition.
    fn come_late(&self) {
        /// Longer than the call of a case takes on most devices.
        const STEP: Duration = Duration::from_millis(1);
        std::thread::sleep(STEP * self.communicator.rank() as u32);
    }
}

impl<T: NormFloat> Memory<T> {
    /// Frees all memory. Collective.
    fn free(self) -> Result<()> {
        let rows = [self.destination, self.residual, self.sums];
        let rows = rows.into_iter().flatten();
        rows.chain([self.source, self.weight, self.bias])
            .try_for_each(Region::free)?;
        self.bytes.map_or(Ok(()), Region::free)?;
        self.scales.map_or(Ok(()), Region::free)
    }
}
