//! How long collectives take, by the network's legs and by NCCL's.

use crate::checks::value;
use std::time::{Duration, Instant};
use symmem::{
    CollectiveOptions, Communicator, ErrorKind, Provider, ReduceOp, Result, Stream, SymmetricBuffer,
};

/// Bytes of the largest call.
const MOST: usize = 64 << 20;
/// Bytes that the calls of a point move, about; and bytes that the latency of a call counts for.
const EACH: usize = 64 << 20;
const LATENCY: usize = 256 << 10;

#[derive(Clone, Copy, Debug)]
enum Operation {
    AllReduce,
    AllGather,
    ReduceScatter,
    AllToAll,
}

/// Prints a line of JSON for each point: microseconds of a call in a loop, and of one that is waited for (median), both the
/// longest of all ranks. `bytes` is as nccl-tests counts it. Every result is checked.
pub fn run(communicator: Communicator) -> Result<()> {
    let mut bench = Bench {
        stream: communicator.stream()?,
        source: communicator.allocate(&[MOST / 4])?,
        destination: communicator.allocate(&[MOST / 4])?,
        communicator: &communicator,
        legs: "ucx",
        options: CollectiveOptions::new().provider(Provider::Symmem),
    };
    bench.all()?;
    match communicator.open_nccl(false) {
        Ok(library) => {
            if communicator.rank() == 0 {
                let (name, version) = (library.name, library.version);
                println!("{{\"library\":\"{name}\",\"version\":{version}}}");
            }
            bench.legs = "nccl";
            bench.options = CollectiveOptions::new().provider(Provider::Nccl);
            bench.all()?;
        }
        Err(error) if error.kind() == ErrorKind::Unsupported => {}
        Err(error) => return Err(error),
    }
    drop(bench);
    communicator.finalize().map(drop)
}

struct Bench<'c> {
    communicator: &'c Communicator,
    stream: Stream,
    source: SymmetricBuffer<f32>,
    destination: SymmetricBuffer<f32>,
    legs: &'static str,
    options: CollectiveOptions<'c>,
}

impl Bench<'_> {
    fn all(&mut self) -> Result<()> {
        let (world, rank) = (self.communicator.world_size(), self.communicator.rank());
        let data: Vec<f32> = (0..MOST / 4).map(|at| value(rank, at, 0) as f32).collect();
        self.stream.write(&self.source, &data)?;
        for operation in [
            Operation::AllReduce,
            Operation::AllGather,
            Operation::ReduceScatter,
            Operation::AllToAll,
        ] {
            let mut bytes = 8;
            while bytes <= MOST {
                let elements = match operation {
                    Operation::AllReduce => bytes / 4,
                    _ => (bytes / 4 / world).max(1) * world,
                };
                match self.point(operation, elements) {
                    Err(error) if error.kind() == ErrorKind::Unsupported => break,
                    other => other?,
                }
                bytes *= if bytes == 16 << 20 { 4 } else { 8 };
            }
        }
        Ok(())
    }

    fn call(&self, operation: Operation, elements: usize) -> Result<()> {
        let world = self.communicator.world_size();
        let calls = self.stream.with(&self.options);
        let part = elements / world;
        let (to, from) = (&self.destination, &self.source);
        match operation {
            Operation::AllReduce => calls.all_reduce(
                to.slice(..elements)?,
                from.slice(..elements)?,
                ReduceOp::Sum,
            ),
            Operation::AllGather => {
                calls.all_gather(to.slice(..part * world)?, from.slice(..part)?)
            }
            Operation::ReduceScatter => calls.reduce_scatter(
                to.slice(..part)?,
                from.slice(..part * world)?,
                ReduceOp::Sum,
            ),
            Operation::AllToAll => {
                calls.all_to_all(to.slice(..part * world)?, from.slice(..part * world)?)
            }
        }
    }

    fn point(&self, operation: Operation, elements: usize) -> Result<()> {
        let poison = vec![-99.0_f32; elements];
        self.stream
            .write(self.destination.slice(..elements)?, &poison)?;
        for _ in 0..2 {
            self.call(operation, elements)?;
            self.stream.synchronize()?;
        }
        // All ranks make as many calls.
        let calls = EACH.div_ceil(4 * elements + LATENCY).clamp(5, 60);
        self.communicator.host_barrier()?;
        let mut times = Vec::new();
        for _ in 0..calls {
            let start = Instant::now();
            self.call(operation, elements)?;
            self.stream.synchronize()?;
            times.push(start.elapsed());
        }
        times.sort();
        self.communicator.host_barrier()?;
        let start = Instant::now();
        for _ in 0..calls {
            self.call(operation, elements)?;
        }
        self.stream.synchronize()?;
        let looped = start.elapsed() / calls as u32;
        self.check(operation, elements)?;
        let (looped, single) = (self.longest(looped)?, self.longest(times[calls / 2])?);
        if self.communicator.rank() == 0 {
            let (world, nodes) = (self.communicator.world_size(), self.communicator.nodes());
            println!(
                "{{\"operation\":\"{operation:?}\",\"bytes\":{},\"legs\":\"{}\",\"ranks\":{world},\"nodes\":{nodes},\
                 \"looped_us\":{:.1},\"single_us\":{:.1},\"calls\":{calls}}}",
                4 * elements,
                self.legs,
                looped.as_secs_f64() * 1e6,
                single.as_secs_f64() * 1e6,
            );
        }
        Ok(())
    }

    /// Returns the longest time of all ranks.
    fn longest(&self, time: Duration) -> Result<Duration> {
        let all = self
            .communicator
            .host_all_gather(&(time.as_nanos() as u64).to_le_bytes())?;
        let times = all.iter().map(|one| {
            let bytes = one.as_slice().try_into().expect("eight bytes");
            Duration::from_nanos(u64::from_le_bytes(bytes))
        });
        Ok(times.max().unwrap_or_default())
    }

    fn check(&self, operation: Operation, elements: usize) -> Result<()> {
        let (world, rank) = (self.communicator.world_size(), self.communicator.rank());
        let part = elements / world;
        let sum = |at: usize| (0..world).map(|member| value(member, at, 0)).sum::<u64>();
        let expected = |at: usize| match operation {
            Operation::AllReduce => sum(at),
            Operation::AllGather => value(at / part, at % part, 0),
            Operation::ReduceScatter => sum(rank * part + at),
            Operation::AllToAll => value(at / part, rank * part + at % part, 0),
        };
        let results = match operation {
            Operation::ReduceScatter => part,
            _ => elements,
        };
        let mut seen = vec![0.0_f32; results];
        self.stream
            .read(self.destination.slice(..results)?, &mut seen)?;
        for (at, &seen) in seen.iter().enumerate() {
            assert_eq!(
                seen,
                expected(at) as f32,
                "{operation:?} of {elements} elements by {}, rank {rank}: element {at}",
                self.legs
            );
        }
        Ok(())
    }
}
