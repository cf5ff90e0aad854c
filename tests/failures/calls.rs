//! Every collective, with data whose result is known, eager and replayed.

use symmem::{
    Algorithm, CollectiveOptions, Communicator, Graph, Provider, Queue, ReduceOp, Result, RowNorm,
    Slice, Stream, SymmetricBuffer, backend::abi::CAPABILITY_COPY_ENGINE,
};

/// The collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    Barrier,
    Broadcast,
    AllGather,
    AllGatherV,
    Reduce,
    ReduceScatter,
    AllReduce,
    AllToAll,
    AllToAllV,
    Gather,
    Scatter,
    Exchange,
    SendReceive,
    /// An all-gather by copy engines in two lanes, if the backend has copy engines and the provider is symmem.
    ByCopyEngine,
    /// An all-reduce of rows with a residual and no norm; always by symmem.
    Norm,
}

impl Call {
    pub const ALL: [Self; 15] = [
        Self::Barrier,
        Self::Broadcast,
        Self::AllGather,
        Self::AllGatherV,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllReduce,
        Self::AllToAll,
        Self::AllToAllV,
        Self::Gather,
        Self::Scatter,
        Self::Exchange,
        Self::SendReceive,
        Self::ByCopyEngine,
        Self::Norm,
    ];

    pub fn parse(name: &str) -> Self {
        let found = Self::ALL
            .into_iter()
            .find(|call| format!("{call:?}") == name);
        found.expect("a call's name")
    }
}

/// Buffers of one rank, `part` elements for each rank of the world, and a stream.
pub struct Bench {
    rank: usize,
    world: usize,
    part: usize,
    provider: Provider,
    has_engine: bool,
    pub stream: Stream,
    source: SymmetricBuffer<u32>,
    destination: SymmetricBuffer<u32>,
    /// The source and the residual of [`Call::Norm`], a part each.
    rows: SymmetricBuffer<f32>,
}

/// Returns element `index` of a rank's input.
fn value(rank: usize, index: usize) -> u32 {
    (rank as u32 + 1)
        .wrapping_mul(0x0100_0193)
        .wrapping_add(7 * index as u32)
}

/// Returns the parts of a destination: one for each rank, and at least the two of [`Call::Norm`].
fn parts(world: usize) -> usize {
    world.max(2)
}

/// Returns element `index` of a rank's rows: a small integer, so that sums are exact.
fn row_value(rank: usize, index: usize) -> f32 {
    (value(rank, index) % 1000) as f32
}

/// The residual of every element.
const RESIDUAL: f32 = 0.5;

/// A value that no result has.
const CLEARED: u32 = 0xdead_beef;

impl Bench {
    /// Allocates the buffers. With [`Provider::Nccl`], the NCCL communicator is open already.
    pub fn new(communicator: &Communicator, part: usize, provider: Provider) -> Result<Self> {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let stream = communicator.stream()?;
        let source = communicator.allocate::<u32>(&[world, part])?;
        let destination = communicator.allocate::<u32>(&[parts(world), part])?;
        let values: Vec<u32> = (0..world * part).map(|index| value(rank, index)).collect();
        source.write(&stream, 0, &values)?;
        let rows = communicator.allocate::<f32>(&[2, part])?;
        let values = (0..part).map(|index| row_value(rank, index));
        let values: Vec<f32> = values.chain(std::iter::repeat_n(RESIDUAL, part)).collect();
        rows.write(&stream, 0, &values)?;
        Ok(Self {
            rank,
            world,
            part,
            provider,
            has_engine: communicator.capabilities().flags & CAPABILITY_COPY_ENGINE != 0,
            stream,
            source,
            destination,
            rows,
        })
    }

    pub fn free(self) -> Result<()> {
        self.source.free()?;
        self.rows.free()?;
        self.destination.free()
    }

    fn root(&self) -> usize {
        1 % self.world
    }

    /// Returns the elements of a row: several rows, if there are enough elements.
    fn hidden(&self) -> usize {
        if self.part.is_multiple_of(8) {
            self.part / 8
        } else {
            self.part
        }
    }

    fn left(&self) -> usize {
        (self.rank + self.world - 1) % self.world
    }

    /// Returns how many elements one rank sends another in calls with counts.
    fn count(&self, from: usize, to: usize) -> usize {
        self.part - (from + 2 * to) % 3
    }

    fn source(&self, parts: usize) -> Result<Slice<'_, u32>> {
        self.source.slice(..parts * self.part)
    }

    fn destination(&self, parts: usize) -> Result<Slice<'_, u32>> {
        self.destination.slice(..parts * self.part)
    }

    /// Enqueues `call`.
    pub fn enqueue(&self, call: Call, queue: &Queue) -> Result<()> {
        let options = CollectiveOptions::new().provider(self.provider);
        let collectives = queue.with(&options);
        let (rank, world, root, sum) = (self.rank, self.world, self.root(), ReduceOp::Sum);
        let (one, all) = (self.source(1)?, self.source(world)?);
        let (to_one, to_all) = (self.destination(1)?, self.destination(world)?);
        match call {
            Call::Barrier => queue.barrier(),
            Call::Broadcast => collectives.broadcast(root, to_one, one),
            Call::AllGather => collectives.all_gather(to_all, one),
            Call::ByCopyEngine if self.has_engine && self.provider != Provider::Nccl => {
                let options = options.algorithm(Algorithm::CopyEngine).concurrent(2);
                queue.with(&options).all_gather(to_all, one)
            }
            Call::ByCopyEngine => collectives.all_gather(to_all, one),
            Call::AllGatherV => {
                let counts = self.counts(|peer| self.count(peer, 0));
                let destination = self.destination.slice(..counts.iter().sum::<usize>())?;
                collectives.all_gather_v(destination, one, &counts)
            }
            Call::Reduce => collectives.reduce(root, to_one, one, sum),
            Call::ReduceScatter => collectives.reduce_scatter(to_one, all, sum),
            Call::AllReduce => collectives.all_reduce(to_one, one, sum),
            Call::AllToAll => collectives.all_to_all(to_all, all),
            Call::AllToAllV => {
                let at = self.counts(|peer| peer * self.part);
                let received = self.counts(|peer| self.count(peer, rank));
                let sent = self.counts(|peer| self.count(rank, peer));
                collectives.all_to_all_v(to_all, &received, &at, all, &sent, &at)
            }
            Call::Norm => {
                let (part, hidden) = (self.part, self.hidden());
                // The second part of the destination gets the sum with the residual, which is the result, too.
                let to = self.destination(2)?.cast::<f32>()?;
                let residual = self.rows.slice(part..)?;
                let norm = RowNorm::none().residual(residual, to.slice(part..)?);
                let source = self.rows.slice(..part)?;
                collectives.all_reduce_norm(to.slice(..part)?, source, hidden, &norm)
            }
            Call::Gather => collectives.gather(root, to_all, one),
            Call::Scatter => collectives.scatter(root, to_one, all),
            Call::Exchange => {
                let mut exchange = collectives.exchange();
                exchange.send((rank + 1) % world, one)?;
                exchange.recv(self.left(), to_one)?;
                exchange.enqueue()
            }
            // Along the line of ranks.
            Call::SendReceive => {
                if rank > 0 {
                    collectives.recv(rank - 1, to_one)?;
                }
                if rank + 1 < world {
                    collectives.send(rank + 1, one)?;
                }
                Ok(())
            }
        }
    }

    fn counts(&self, count: impl Fn(usize) -> usize) -> Vec<usize> {
        (0..self.world).map(count).collect()
    }

    fn clear(&self) -> Result<()> {
        let cleared = vec![CLEARED; parts(self.world) * self.part];
        self.destination.write(&self.stream, 0, &cleared)
    }

    /// Returns the expected contents of this rank's destination after `call`.
    fn expected(&self, call: Call) -> Vec<u32> {
        let (rank, world, part, root) = (self.rank, self.world, self.part, self.root());
        let sum =
            |index: usize| (0..world).fold(0u32, |sum, peer| sum.wrapping_add(value(peer, index)));
        let mut result = vec![CLEARED; parts(world) * part];
        let mut put = |at: usize, count: usize, of: &dyn Fn(usize) -> u32| {
            for (index, element) in result[at..at + count].iter_mut().enumerate() {
                *element = of(index);
            }
        };
        match call {
            Call::Barrier => {}
            Call::Broadcast => put(0, part, &|index| value(root, index)),
            Call::Gather if rank != root => {}
            Call::AllGather | Call::ByCopyEngine | Call::Gather => {
                for peer in 0..world {
                    put(peer * part, part, &|index| value(peer, index));
                }
            }
            Call::AllGatherV => {
                let mut at = 0;
                for peer in 0..world {
                    let count = self.count(peer, 0);
                    put(at, count, &|index| value(peer, index));
                    at += count;
                }
            }
            Call::Reduce if rank != root => {}
            Call::Reduce | Call::AllReduce => put(0, part, &sum),
            Call::Norm => {
                let sum = |index| (0..world).map(|peer| row_value(peer, index)).sum::<f32>();
                for at in [0, part] {
                    put(at, part, &|index| (sum(index) + RESIDUAL).to_bits());
                }
            }
            Call::ReduceScatter => put(0, part, &|index| sum(rank * part + index)),
            Call::AllToAll => {
                for peer in 0..world {
                    put(peer * part, part, &|index| value(peer, rank * part + index));
                }
            }
            Call::AllToAllV => {
                for peer in 0..world {
                    let count = self.count(peer, rank);
                    put(peer * part, count, &|index| {
                        value(peer, rank * part + index)
                    });
                }
            }
            Call::Scatter => put(0, part, &|index| value(root, rank * part + index)),
            Call::SendReceive if rank == 0 => {}
            Call::Exchange | Call::SendReceive => {
                put(0, part, &|index| value(self.left(), index));
            }
        }
        result
    }

    fn verify(&self, call: Call) -> Result<()> {
        let mut found = vec![0; parts(self.world) * self.part];
        self.destination.read(&self.stream, 0, &mut found)?;
        let expected = self.expected(call);
        let wrong = found.iter().zip(&expected).position(|(a, b)| a != b);
        assert_eq!(
            wrong.map(|index| (index, found[index], expected[index])),
            None,
            "{call:?} at rank {} of {}: element, found, expected",
            self.rank,
            self.world
        );
        Ok(())
    }

    /// Captures `call` as a graph.
    pub fn capture(&self, communicator: &Communicator, call: Call) -> Result<Graph> {
        let mut stream = communicator.stream()?;
        stream.capture(|queue| self.enqueue(call, queue))
    }

    /// Makes `call` once and checks its result; with a graph, also replays it.
    pub fn once(&self, call: Call, graph: Option<&Graph>) -> Result<()> {
        self.clear()?;
        self.enqueue(call, &self.stream)?;
        self.verify(call)?;
        if let Some(graph) = graph {
            self.clear()?;
            self.stream.launch_graph(graph)?;
            self.verify(call)?;
        }
        Ok(())
    }
}
