//! Operations, as messages between ranks.

use crate::communicator::Communicator;
use crate::driver::{self, Runner};
use crate::mesh::{CHUNK, MOST, Mesh};
use crate::reduce::{element_bytes, reduce};
use crate::{Code, Result};
use std::collections::{BTreeMap, VecDeque};
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    AllReduce,
    Reduce,
    Broadcast,
    AllGather,
    ReduceScatter,
    AllToAll,
    Send,
    Receive,
}

/// A call, with NCCL's arguments.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub kind: Kind,
    pub source: u64,
    pub destination: u64,
    pub count: usize,
    pub element: c_int,
    pub reduce: c_int,
    /// Root or peer.
    pub peer: c_int,
}

impl Operation {
    /// Refuses what NCCL would.
    pub fn check(&self, symbol: &str, world: usize) -> Result {
        let good_peer = usize::try_from(self.peer).is_ok_and(|peer| peer < world);
        let reduces = matches!(
            self.kind,
            Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter
        );
        let good_reduction = !reduces || (0..=4).contains(&self.reduce);
        let good_element = element_bytes(self.element).is_some();
        match good_peer && good_reduction && good_element {
            true => Ok(()),
            false => {
                driver::violation(&format!("{symbol} does not support {self:?}"));
                Err(Code::INVALID_ARGUMENT)
            }
        }
    }

    /// Returns a bit for each other rank that takes part.
    pub fn peers(&self, rank: usize, world: usize) -> u64 {
        let part = match self.kind {
            Kind::Send | Kind::Receive => 1 << self.peer,
            _ => u64::MAX >> (MOST - world),
        };
        part & !(1 << rank)
    }

    fn bytes(&self) -> usize {
        self.count * element_bytes(self.element).unwrap_or(0)
    }

    /// Returns the bytes that it reads and writes at a rank.
    fn extent(&self, rank: usize, world: usize) -> (usize, usize) {
        let (one, all) = (self.bytes(), self.bytes() * world);
        let is_root = self.peer as usize == rank;
        match self.kind {
            Kind::AllReduce => (one, one),
            Kind::Reduce => (one, if is_root { one } else { 0 }),
            Kind::Broadcast => (if is_root { one } else { 0 }, one),
            Kind::AllGather => (one, all),
            Kind::ReduceScatter => (all, one),
            Kind::AllToAll => (all, all),
            Kind::Send => (one, 0),
            Kind::Receive => (0, one),
        }
    }

    /// Returns the parts of its source that it sends and their destinations, and the ranks it receives from.
    fn messages(&self, rank: usize, world: usize) -> (Vec<(usize, usize)>, Vec<usize>) {
        let peer = self.peer as usize;
        let whole_to = |ranks: std::ops::Range<usize>| ranks.map(|to| (to, 0)).collect();
        let everybody = || (0..world).collect();
        let parts = || (0..world).map(|to| (to, to)).collect();
        match self.kind {
            Kind::AllReduce | Kind::AllGather => (whole_to(0..world), everybody()),
            Kind::ReduceScatter | Kind::AllToAll => (parts(), everybody()),
            Kind::Reduce if rank == peer => (whole_to(peer..peer + 1), everybody()),
            Kind::Reduce | Kind::Send => (whole_to(peer..peer + 1), Vec::new()),
            Kind::Broadcast if rank == peer => (whole_to(0..world), vec![peer]),
            Kind::Broadcast | Kind::Receive => (Vec::new(), vec![peer]),
        }
    }

    /// Returns the result of the data received, in rank order.
    fn result(&self, received: Vec<Vec<u8>>) -> Result<Vec<u8>> {
        match self.kind {
            Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter if !received.is_empty() => {
                reduce(self.element, self.reduce, &received).ok_or(Code::INVALID_ARGUMENT)
            }
            _ => Ok(received.concat()),
        }
    }
}

/// Operations of a communicator that run together, at one point of a stream.
struct Batch {
    communicator: Weak<Communicator>,
    aborted: Arc<AtomicBool>,
    operations: Vec<Operation>,
}

/// Puts operations on a stream.
pub fn submit(communicator: &Arc<Communicator>, operations: Vec<Operation>, stream: u64) -> Result {
    let (rank, world) = (communicator.rank, communicator.world);
    let ranges: Vec<_> = operations
        .iter()
        .flat_map(|operation| {
            let (read, written) = operation.extent(rank, world);
            [
                [operation.source, read as u64],
                [operation.destination, written as u64],
            ]
        })
        .filter(|range| range[1] != 0)
        .collect();
    // Never freed, because a graph may run it at any time.
    let batch = Box::leak(Box::new(Batch {
        communicator: Arc::downgrade(communicator),
        aborted: communicator.aborted.clone(),
        operations,
    }));
    let batch = std::ptr::from_mut(batch).cast_const().cast();
    // SAFETY: `run` takes a `Batch`, and this one is never freed.
    unsafe { driver::submit(stream, run, batch, &ranges) }?;
    Ok(())
}

/// Runs a batch. A failure is the communicator's, not the device's: NCCL's kernels leave early.
unsafe extern "C" fn run(batch: *const c_void, runner: *const c_void) -> c_int {
    // SAFETY: `submit` passes a batch that is never freed.
    let batch = unsafe { &*batch.cast::<Batch>() };
    let Some(communicator) = batch.communicator.upgrade() else {
        if batch.aborted.load(Ordering::Acquire) {
            // This work was queued behind work that the abort ended, and ends as well.
            return 0;
        }
        driver::violation("work of a destroyed communicator runs");
        return 0;
    };
    communicator.running.fetch_add(1, Ordering::AcqRel);
    let done = batch.run(&communicator, Runner(runner));
    communicator.running.fetch_sub(1, Ordering::AcqRel);
    match done {
        Err(Code::CUDA_ERROR) => 999,
        _ => 0,
    }
}

/// A message under way.
struct Message {
    data: Vec<u8>,
    at: usize,
    /// The index of its operation, and its position among the messages that the operation receives.
    place: (usize, usize),
}

impl Message {
    fn next(&self) -> std::ops::Range<usize> {
        self.at..self.data.len().min(self.at + CHUNK)
    }
}

type Queues = BTreeMap<usize, VecDeque<Message>>;

impl Batch {
    fn run(&self, communicator: &Communicator, runner: Runner) -> Result {
        let (rank, world) = (communicator.rank, communicator.world);
        let mesh = communicator.mesh()?;
        let (mut sends, mut receives): (Queues, Queues) = Default::default();
        let mut received: Vec<Vec<Vec<u8>>> = Vec::new();
        for (index, operation) in self.operations.iter().enumerate() {
            let bytes = operation.bytes();
            let source = runner.read(operation.source, operation.extent(rank, world).0)?;
            let (to, from) = operation.messages(rank, world);
            for (peer, part) in to {
                let data = source[part * bytes..(part + 1) * bytes].to_vec();
                let place = (index, 0);
                let message = Message { data, at: 0, place };
                sends.entry(peer).or_default().push_back(message);
            }
            received.push(vec![Vec::new(); from.len()]);
            for (order, peer) in from.into_iter().enumerate() {
                let data = vec![0; bytes];
                let place = (index, order);
                let message = Message { data, at: 0, place };
                receives.entry(peer).or_default().push_back(message);
            }
        }
        while !sends.is_empty() || !receives.is_empty() {
            let mut moved = send(mesh, rank, &mut sends);
            for message in receive(mesh, rank, &mut receives, &mut moved)? {
                received[message.place.0][message.place.1] = message.data;
            }
            if communicator.is_aborted() || runner.is_dead() {
                return Ok(());
            }
            if !moved {
                std::thread::yield_now();
            }
        }
        for (operation, received) in self.operations.iter().zip(received) {
            let mut result = operation.result(received)?;
            runner.write(operation.destination, &mut result)?;
        }
        Ok(())
    }
}

/// Sends a chunk to each rank whose channel has room, and returns whether any was sent.
fn send(mesh: &Mesh, rank: usize, sends: &mut Queues) -> bool {
    let mut moved = false;
    sends.retain(|&peer, queue| {
        if let Some(message) = queue.front_mut() {
            let next = message.next();
            let channel = mesh.channel(rank, peer);
            if channel.put(&message.data[next.clone()], message.data.len()) {
                moved = true;
                message.at = next.end;
                if message.at == message.data.len() {
                    queue.pop_front();
                }
            }
        }
        !queue.is_empty()
    });
    moved
}

/// Receives a chunk from each rank that has sent one, and returns the messages that are complete.
fn receive(
    mesh: &Mesh,
    rank: usize,
    receives: &mut Queues,
    moved: &mut bool,
) -> Result<Vec<Message>> {
    let mut whole = Vec::new();
    for (&peer, queue) in receives.iter_mut() {
        let Some(message) = queue.front_mut() else {
            continue;
        };
        let next = message.next();
        let Some(total) = mesh
            .channel(peer, rank)
            .take(&mut message.data[next.clone()])
        else {
            continue;
        };
        *moved = true;
        if total != message.data.len() {
            driver::violation(&format!(
                "rank {rank} expects {} bytes from rank {peer}, which sends {total}",
                message.data.len()
            ));
            return Err(Code::INVALID_USAGE);
        }
        message.at = next.end;
        if message.at == total {
            whole.extend(queue.pop_front());
        }
    }
    receives.retain(|_, queue| !queue.is_empty());
    Ok(whole)
}
