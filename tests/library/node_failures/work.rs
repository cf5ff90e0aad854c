//! The laps of a rank: mixed operations, the same ones on all ranks, each compared with what it must give.

use crate::plan::Random;
use symmem::{Communicator, Condition, Graph, ReduceOp, Result, Stream, SymmetricBuffer};

/// Elements of the largest operand of one rank.
const LARGEST: usize = 1 << 16;
const CHANNEL: u32 = 1;

/// What a rank works with.
pub struct Work<'c> {
    communicator: &'c Communicator,
    stream: Stream,
    given: SymmetricBuffer<u32>,
    made: SymmetricBuffer<u32>,
    words: SymmetricBuffer<u64>,
    graph: Option<Graph>,
    laps: usize,
    /// Times that the previous rank has added to this rank's word.
    added: u64,
}

/// Returns the element of a rank in a lap.
fn element(rank: usize, lap: usize, index: usize) -> u32 {
    (rank * 7919 + lap * 104_729 + index * 31) as u32
}

impl<'c> Work<'c> {
    pub fn new(communicator: &'c Communicator) -> Result<Self> {
        let world = communicator.world_size();
        let stream = communicator.stream()?;
        Ok(Self {
            stream,
            given: communicator.allocate(&[LARGEST * world])?,
            made: communicator.allocate(&[LARGEST * world])?,
            words: communicator.allocate(&[1])?,
            communicator,
            graph: None,
            laps: 0,
            added: 0,
        })
    }

    /// Makes one lap.
    pub fn lap(&mut self) -> Result<()> {
        let lap = self.laps;
        self.laps += 1;
        let mut random = Random(lap as u64);
        let count = 1 << random.below(LARGEST.ilog2() as usize + 1);
        match random.below(10) {
            0 | 1 => self.all_reduce(lap, count),
            2 => self.reduce_scatter(lap, count),
            3 => self.all_gather(lap, count),
            4 => self.all_to_all(lap, count),
            5 => self.broadcast(lap, count),
            6 => self.pass_on(lap, count),
            7 => self.count_up(),
            8 => self.replay(lap),
            _ => self.meet(),
        }?;
        self.communicator.check()
    }

    fn give(&self, lap: usize, count: usize) -> Result<()> {
        let rank = self.communicator.rank();
        let elements: Vec<u32> = (0..count).map(|index| element(rank, lap, index)).collect();
        self.given.write(&self.stream, 0, &elements)
    }

    fn expect(&self, what: &str, count: usize, expected: impl Fn(usize) -> u32) -> Result<()> {
        let mut made = vec![0; count];
        self.made.read(&self.stream, 0, &mut made)?;
        let wrong = (0..count).find(|&index| made[index] != expected(index));
        assert_eq!(
            wrong,
            None,
            "{what} of {count} elements in lap {}",
            self.laps - 1
        );
        // A fast rank must not write to what another one still compares.
        self.stream.barrier()
    }

    fn sum(&self, lap: usize, index: usize) -> u32 {
        let ranks = 0..self.communicator.world_size();
        ranks.fold(0, |sum, rank| sum.wrapping_add(element(rank, lap, index)))
    }

    fn all_reduce(&self, lap: usize, count: usize) -> Result<()> {
        self.give(lap, count)?;
        let (made, given) = (self.made.slice(..count)?, self.given.slice(..count)?);
        self.stream.all_reduce(made, given, ReduceOp::Sum)?;
        self.expect("all_reduce", count, |index| self.sum(lap, index))
    }

    fn reduce_scatter(&self, lap: usize, count: usize) -> Result<()> {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        self.give(lap, count * world)?;
        let (made, given) = (
            self.made.slice(..count)?,
            self.given.slice(..count * world)?,
        );
        self.stream.reduce_scatter(made, given, ReduceOp::Sum)?;
        self.expect("reduce_scatter", count, |index| {
            self.sum(lap, rank * count + index)
        })
    }

    fn all_gather(&self, lap: usize, count: usize) -> Result<()> {
        let whole = count * self.communicator.world_size();
        self.give(lap, count)?;
        let (made, given) = (self.made.slice(..whole)?, self.given.slice(..count)?);
        self.stream.all_gather(made, given)?;
        self.expect("all_gather", whole, |index| {
            element(index / count, lap, index % count)
        })
    }

    fn all_to_all(&self, lap: usize, count: usize) -> Result<()> {
        let rank = self.communicator.rank();
        let whole = count * self.communicator.world_size();
        self.give(lap, whole)?;
        let (made, given) = (self.made.slice(..whole)?, self.given.slice(..whole)?);
        self.stream.all_to_all(made, given)?;
        self.expect("all_to_all", whole, |index| {
            element(index / count, lap, rank * count + index % count)
        })
    }

    fn broadcast(&self, lap: usize, count: usize) -> Result<()> {
        let root = lap % self.communicator.world_size();
        self.give(lap, count)?;
        let (made, given) = (self.made.slice(..count)?, self.given.slice(..count)?);
        self.stream.broadcast(root, made, given)?;
        self.expect("broadcast", count, |index| element(root, lap, index))
    }

    /// Returns the ranks after and before this one.
    fn neighbors(&self) -> (usize, usize) {
        let (rank, world) = (self.communicator.rank(), self.communicator.world_size());
        ((rank + 1) % world, (rank + world - 1) % world)
    }

    fn pass_on(&self, lap: usize, count: usize) -> Result<()> {
        let (next, previous) = self.neighbors();
        self.give(lap, count)?;
        let (made, given) = (self.made.slice(..count)?, self.given.slice(..count)?);
        self.stream.put_signal(next, made, given, CHANNEL)?;
        self.stream.wait_signal(previous, CHANNEL)?;
        self.expect("put_signal", count, |index| element(previous, lap, index))
    }

    fn count_up(&mut self) -> Result<()> {
        let (next, _) = self.neighbors();
        self.added += 1;
        self.stream.signal_add(next, self.words.slice(..1)?, 1)?;
        self.stream.wait_word(
            self.words.slice(..1)?,
            Condition::GreaterOrEqual,
            self.added,
        )?;
        self.stream.synchronize()
    }

    /// Replays a put with a signal around the ring.
    fn replay(&mut self, lap: usize) -> Result<()> {
        const COUNT: usize = 1000;
        let (next, previous) = self.neighbors();
        self.give(lap, COUNT)?;
        let (made, given) = (self.made.slice(..COUNT)?, self.given.slice(..COUNT)?);
        let graph = match self.graph.take() {
            Some(graph) => graph,
            None => self.stream.capture(|queue| {
                queue.put_signal(next, made, given, CHANNEL)?;
                queue.wait_signal(previous, CHANNEL)
            })?,
        };
        self.stream.launch_graph(&graph)?;
        self.graph = Some(graph);
        self.expect("a replayed put_signal", COUNT, |index| {
            element(previous, lap, index)
        })
    }

    /// Collective calls on the host: a barrier, and a buffer that comes and goes.
    fn meet(&self) -> Result<()> {
        self.communicator.host_barrier()?;
        let buffer = self.communicator.allocate::<u32>(&[1024])?;
        buffer.free()
    }
}
