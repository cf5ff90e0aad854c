//! One rank's memory, stream and clock, with three ways to run a call: checked, looped and replayed.

use super::element::{Content, RowFloat};
use super::reference::{EPSILON, Row, TENSOR_SCALE, sampled};
use crate::Result;
use crate::clock::Clock;
use crate::poison::poison;
use crate::report::norms::{NormOutput, NormPoint};
use symmem::{
    CollectiveOptions, Communicator, Element, F8E4M3, Graph, Provider, Queue, ReduceOp, RowNorm,
    Scales, Stream, SymmetricBuffer,
};
use zerocopy::IntoBytes;

/// Elements behind each result, which a call must not change.
const GUARD: usize = 256;
/// The bytes of poison: NaN in every type.
const POISON: u8 = 0xff;

/// What makes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Implementation {
    /// symmem's all-reduce with residual and norm.
    Fused,
    /// symmem's all-reduce alone.
    AllReduce,
    /// The all-reduce of NCCL or RCCL alone.
    Vendor,
}

/// The memory, stream and clock of one rank. Each matrix has room for the largest point.
pub(super) struct Session<'a, T: RowFloat> {
    pub(super) communicator: &'a Communicator,
    stream: Stream,
    clock: Clock<'a>,
    source: SymmetricBuffer<T>,
    destination: SymmetricBuffer<T>,
    residual: SymmetricBuffer<T>,
    sums: SymmetricBuffer<T>,
    weight: SymmetricBuffer<T>,
    bytes: SymmetricBuffer<F8E4M3>,
    scales: SymmetricBuffer<f32>,
}

impl<'a, T: RowFloat> Session<'a, T> {
    /// Allocates memory for these points, and fills what calls read. Collective.
    pub(super) fn new(communicator: &'a Communicator, points: &[NormPoint]) -> Result<Self> {
        let most = |of: fn(&NormPoint) -> usize| points.iter().map(of).max().unwrap_or(1);
        let elements = most(NormPoint::elements);
        let hidden = most(|point| point.hidden);
        let stream = communicator.stream()?;
        let matrix = |count: usize| communicator.allocate::<T>(&[count + GUARD]);
        let filled = |content: Content, count: usize| -> Result<_> {
            let buffer = matrix(count)?;
            buffer.write(&stream, 0, &content.elements::<T>(count))?;
            Ok(buffer)
        };
        let session = Self {
            source: filled(Content::Source(communicator.rank()), elements)?,
            destination: matrix(elements)?,
            residual: filled(Content::Residual, elements)?,
            sums: matrix(elements)?,
            weight: filled(Content::Weight, hidden)?,
            bytes: communicator.allocate(&[elements + GUARD])?,
            scales: communicator.allocate(&[most(NormPoint::scales) + GUARD])?,
            clock: Clock::new(communicator, 1)?,
            stream,
            communicator,
        };
        communicator.host_barrier()?;
        Ok(session)
    }

    /// Enqueues a call.
    fn enqueue(&self, on: &Queue, point: &NormPoint, by: Implementation) -> Result<()> {
        let elements = point.elements();
        let (to, from) = (
            self.destination.slice(..elements)?,
            self.source.slice(..elements)?,
        );
        let options = CollectiveOptions::new();
        let all_reduce = |provider| {
            let options = options.provider(provider);
            on.with(&options).all_reduce(to, from, ReduceOp::Sum)
        };
        match by {
            Implementation::AllReduce => return Ok(all_reduce(Provider::Symmem)?),
            Implementation::Vendor => return Ok(all_reduce(Provider::Nccl)?),
            Implementation::Fused => {}
        }
        let mut norm = RowNorm::root_mean_square(self.weight.slice(..point.hidden)?, EPSILON);
        if point.residual {
            // Each row at its place, also where a rank has some only.
            let own = self.own(point);
            let own = own.start * point.hidden..own.end * point.hidden;
            let (from, to) = (self.residual.slice(own.clone())?, self.sums.slice(own)?);
            norm = match point.sharded {
                true => norm.residual_shard(from, to),
                false => norm.residual(from, to),
            };
        }
        let scales = self.scales.slice(..point.scales())?.into();
        let scales = match point.output {
            NormOutput::Same => {
                return Ok(on.all_reduce_norm(to, from, point.hidden, &norm)?);
            }
            NormOutput::Tensor => Scales::Tensor(scales),
            NormOutput::Row => Scales::Rows(scales),
            NormOutput::Group => Scales::Groups(scales),
        };
        let bytes = self.bytes.slice(..elements)?;
        Ok(on.all_reduce_norm_f8(bytes, scales, from, point.hidden, &norm)?)
    }

    /// Times calls back to back, after one untimed call. Returns nanoseconds per call at this rank. Collective.
    pub(super) fn looped(&self, point: &NormPoint, by: Implementation, calls: u32) -> Result<f64> {
        self.enqueue(&self.stream, point, by)?;
        let total = self.clock.timed(&self.stream, &|| {
            (0..calls).try_for_each(|_| self.enqueue(&self.stream, point, by))
        })?;
        Ok(total / f64::from(calls))
    }

    /// Captures a graph of `calls` calls.
    pub(super) fn graph(&self, point: &NormPoint, by: Implementation, calls: u32) -> Result<Graph> {
        let mut outcome = Ok(());
        let graph = self.communicator.stream()?.capture(|queue| {
            outcome = (0..calls).try_for_each(|_| self.enqueue(queue, point, by));
            Ok(())
        });
        outcome?;
        Ok(graph?)
    }

    /// Replays a graph of `calls` calls `launches` times, after one untimed replay. Returns nanoseconds per call at this rank.
    /// Collective.
    pub(super) fn replayed(&self, graph: &Graph, calls: u32, launches: u32) -> Result<f64> {
        self.stream.launch_graph(graph)?;
        let launch = || (0..launches).try_for_each(|_| Ok(self.stream.launch_graph(graph)?));
        let total = self.clock.timed(&self.stream, &launch)?;
        Ok(total / f64::from(calls) / f64::from(launches))
    }

    /// Makes the fused call once into poisoned memory. Returns the number of wrong elements at this rank, guards included, and of
    /// those that were compared. Collective.
    pub(super) fn check(&self, point: &NormPoint) -> Result<(u64, u64)> {
        self.check_after(point, || {
            self.enqueue(&self.stream, point, Implementation::Fused)
        })
    }

    /// Like [`Session::check`], with a graph replay.
    pub(super) fn check_replay(&self, point: &NormPoint, graph: &Graph) -> Result<(u64, u64)> {
        self.check_after(point, || Ok(self.stream.launch_graph(graph)?))
    }

    fn check_after(
        &self,
        point: &NormPoint,
        work: impl FnOnce() -> Result<()>,
    ) -> Result<(u64, u64)> {
        let elements = point.elements() + GUARD;
        self.poison(&self.destination, elements)?;
        self.poison(&self.sums, elements)?;
        self.poison(&self.bytes, elements)?;
        self.poison(&self.scales, point.scales() + GUARD)?;
        if point.output == NormOutput::Tensor {
            self.scales.write(&self.stream, 0, &[TENSOR_SCALE])?;
        }
        self.clock.start_together(&self.stream)?;
        work()?;
        self.stream.barrier()?;
        self.stream.synchronize()?;
        self.wrong(point)
    }

    fn poison<E: Element>(&self, buffer: &SymmetricBuffer<E>, elements: usize) -> Result<()> {
        poison(self.communicator, buffer, elements, POISON, &self.stream)
    }

    /// Compares sampled rows and the guards.
    fn wrong(&self, point: &NormPoint) -> Result<(u64, u64)> {
        let (hidden, world) = (point.hidden, self.communicator.world_size());
        let (mut wrong, mut checked) = (0, 0);
        let mut elements = vec![T::ZERO; hidden];
        for row in sampled(point.rows) {
            let expected = Row::new::<T>(point, row, world);
            if point.residual && self.own(point).contains(&row) {
                self.sums.read(&self.stream, row * hidden, &mut elements)?;
                wrong += expected.wrong_sums(&elements);
                checked += hidden as u64;
            }
            checked += hidden as u64;
            if point.output == NormOutput::Same {
                self.destination
                    .read(&self.stream, row * hidden, &mut elements)?;
                wrong += expected.wrong_results(&elements);
                continue;
            }
            let mut bytes = vec![F8E4M3(0); hidden];
            self.bytes.read(&self.stream, row * hidden, &mut bytes)?;
            let of_row = point.scales_of_row();
            let mut scales = vec![0.0; of_row];
            let first = match point.output {
                NormOutput::Tensor => 0,
                _ => row * of_row,
            };
            self.scales.read(&self.stream, first, &mut scales)?;
            let bytes: Vec<f32> = bytes.into_iter().map(F8E4M3::to_f32).collect();
            wrong += expected.wrong_bytes(&bytes, &scales);
        }
        let end = point.elements();
        wrong += match point.output {
            NormOutput::Same => self.touched(&self.destination, end, T::ZERO)?,
            _ => {
                self.touched(&self.bytes, end, F8E4M3(0))?
                    + self.touched(&self.scales, point.scales(), 0.0)?
            }
        };
        wrong += self.touched(&self.sums, end, T::ZERO)?;
        Ok((wrong, checked))
    }

    /// Returns the rows of the residual that this rank has.
    fn own(&self, point: &NormPoint) -> std::ops::Range<usize> {
        point.residual_of(self.communicator.rank(), self.communicator.world_size())
    }

    /// Counts the bytes of the guard behind `end` that are not poison.
    fn touched<E: Element>(&self, buffer: &SymmetricBuffer<E>, end: usize, zero: E) -> Result<u64> {
        let mut guard = vec![zero; GUARD];
        buffer.read(&self.stream, end, &mut guard)?;
        let bytes = guard.as_slice().as_bytes().iter();
        Ok(bytes.filter(|byte| **byte != POISON).count() as u64)
    }

    /// Changes a weight of this rank, for a test. Blocks.
    #[cfg(test)]
    pub(super) fn spoil(&self) {
        self.weight
            .write(&self.stream, 0, &[T::from_number(100.0)])
            .unwrap();
    }

    /// Frees the memory. No graph may use it any more. Collective.
    pub(super) fn finish(self) -> Result<()> {
        for rows in [
            self.source,
            self.destination,
            self.residual,
            self.sums,
            self.weight,
        ] {
            rows.free()?;
        }
        self.bytes.free()?;
        Ok(self.scales.free()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::norms::RowElement;
    use half::bf16;
    use std::time::Duration;
    use symmem::Builder;
    use symmem::backends::Selection;
    use symmem::bootstrap::LaunchEnvironment;

    /// Returns the wrong elements at each of two ranks on the host backend: of a right call, and with rank 1's first weight spoilt.
    fn wrong(output: NormOutput) -> [[u64; 2]; 2] {
        let job = LaunchEnvironment::alone().unwrap().job.unwrap();
        let point = NormPoint {
            rows: 3,
            hidden: 256,
            element: RowElement::Bf16,
            output,
            residual: true,
            sharded: false,
            entries: Vec::new(),
            rounds: 0,
        };
        std::thread::scope(|scope| {
            let ranks = [0, 1].map(|rank| {
                let (job, point) = (job.clone(), &point);
                scope.spawn(move || {
                    let communicator = Builder::new()
                        .launch(LaunchEnvironment::local(rank, 2, job).unwrap())
                        .backend(Selection::Named("host".into()))
                        .setup_deadline(Duration::from_secs(5))
                        .build()
                        .unwrap();
                    let points = std::slice::from_ref(point);
                    let session = Session::<bf16>::new(&communicator, points).unwrap();
                    let before = session.check(point).unwrap();
                    assert_eq!(before.1, 2 * 3 * 256);
                    if rank == 1 {
                        session.spoil();
                    }
                    let after = session.check(point).unwrap();
                    session.finish().unwrap();
                    [before.0, after.0]
                })
            });
            ranks.map(|rank| rank.join().unwrap())
        })
    }

    #[test]
    fn what_one_rank_computes_wrongly_is_counted_there() {
        for output in [NormOutput::Same, NormOutput::Tensor] {
            // The first result of each row.
            assert_eq!(wrong(output), [[0, 0], [0, 3]], "{output:?}");
        }
        for output in [NormOutput::Row, NormOutput::Group] {
            let [own, [before, after]] = wrong(output);
            // The scale of each row is wrong, too.
            assert!(
                own == [0, 0] && before == 0 && after > 3,
                "{output:?}: {after}"
            );
        }
    }
}
