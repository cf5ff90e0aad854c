//! Calls of the library that enqueue work.

use crate::buffer::{Buffer, with_buffers};
use crate::call::{Call, Id};
use crate::program::{Atomic, Kind, Reduce};
use crate::rank::Held;
use std::ops;
use std::time::Duration;
use symmem::{
    CollectiveOptions, Collectives, Condition, DeviceSlice, Method, Operand, Queue, ReduceOp,
    Reducible, Result, Slice, SymmetricBuffer, TransferOptions, Word,
};

impl From<Reduce> for ReduceOp {
    fn from(how: Reduce) -> Self {
        match how {
            Reduce::Sum => Self::Sum,
            Reduce::Average => Self::Average,
            Reduce::Minimum => Self::Minimum,
            Reduce::Maximum => Self::Maximum,
            Reduce::Product => Self::Product,
        }
    }
}

/// Enqueues a call as one rank; nothing if the rank is in none of its groups.
pub fn enqueue(
    call: &Call,
    rank: usize,
    queue: &Queue,
    held: &Held,
    deadline: Duration,
) -> Result<()> {
    let Some((members, number)) = call.membership(rank) else {
        return Ok(());
    };
    if let Some(graph) = call.graph {
        return queue.launch_graph(&held.graphs[&graph]);
    }
    let one = Enqueued {
        call,
        queue,
        deadline,
        engine: held.copy_engine,
        number,
        many: members.len(),
    };
    match call.kind {
        Kind::Barrier => queue.barrier_within(call.channel % 8, deadline),
        Kind::Put | Kind::Get | Kind::PutSignal | Kind::Local => {
            with_buffers!(
                held.buffer(call.from.buffer),
                held.buffer(call.to.buffer),
                |from, to| { one.transfer(to, from) }
            )
        }
        Kind::Atomic(atomic) => {
            match (held.buffer(call.from.buffer), held.buffer(call.to.buffer)) {
                (Buffer::U32(from), Buffer::U32(to)) => {
                    one.atomic(atomic, to, from, |value| value as u32)
                }
                (Buffer::U64(from), Buffer::U64(to)) => one.atomic(atomic, to, from, |value| value),
                _ => unreachable!("a plan's words are of 32 or 64 bits"),
            }
        }
        _ => {
            let group: Option<Id> = call.group;
            let options = CollectiveOptions::new()
                .algorithm(call.algorithm.filter(|&named| held.can(named)))
                .channel(call.channel % 4)
                .deadline(deadline)
                .group(group.and_then(|group| held.groups[&group].as_ref()));
            let collectives = queue.with(&options);
            if call.kind == Kind::GroupBarrier {
                return collectives.barrier();
            }
            with_buffers!(
                held.buffer(call.from.buffer),
                held.buffer(call.to.buffer),
                |from, to| { one.collective(collectives, to, from) }
            )
        }
    }
}

struct Enqueued<'a> {
    call: &'a Call,
    queue: &'a Queue,
    deadline: Duration,
    /// Whether the device has a copy engine.
    engine: bool,
    number: usize,
    many: usize,
}

impl Enqueued<'_> {
    fn root(&self) -> usize {
        self.call.number % self.many
    }

    /// Returns the rank so many after this one.
    fn next(&self) -> usize {
        (self.number + self.root()) % self.many
    }

    fn previous(&self) -> usize {
        (self.number + self.many - self.root()) % self.many
    }

    fn barrier(&self) -> Result<()> {
        self.queue
            .barrier_within(self.call.channel % 8, self.deadline)
    }

    fn ranges(&self, read: usize, written: usize) -> (ops::Range<usize>, ops::Range<usize>) {
        let (from, to) = (
            self.call.read_at(self.number),
            self.call.write_at(self.number),
        );
        (from..from + read, to..to + written)
    }

    fn transfer<T: symmem::Element>(
        &self,
        to: &SymmetricBuffer<T>,
        from: &SymmetricBuffer<T>,
    ) -> Result<()> {
        let (read, written) = self.ranges(self.call.count, self.call.count);
        let (from, to) = (from.slice(read)?, to.slice(written)?);
        let engine = self.engine.then_some(Method::CopyEngine);
        let methods = [None, engine, Some(Method::Vector)];
        let options = TransferOptions::new().method(methods[self.call.channel as usize % 3]);
        let transfers = self.queue.with(&options);
        match self.call.kind {
            Kind::Local if self.call.number.is_multiple_of(2) => {
                transfers.put(self.number, to, from)
            }
            Kind::Local => transfers.get(self.number, to, from),
            Kind::PutSignal => {
                self.barrier()?;
                transfers.put_signal(self.next(), to, from, self.call.channel)?;
                let deadline = self.deadline;
                self.queue
                    .wait_signal_within(self.previous(), self.call.channel, deadline)
            }
            kind => {
                self.barrier()?;
                match kind {
                    Kind::Get => transfers.get(self.next(), to, from)?,
                    _ => transfers.put(self.next(), to, from)?,
                }
                self.barrier()
            }
        }
    }

    fn atomic<W: Word>(
        &self,
        atomic: Atomic,
        to: &SymmetricBuffer<W>,
        from: &SymmetricBuffer<W>,
        of: impl Fn(u64) -> W,
    ) -> Result<()> {
        let (read, written) = self.ranges(1, 1);
        let (word, result) = (to.slice(written)?, from.slice(read)?);
        let value = of(self.call.value(self.number));
        let (queue, peer) = (self.queue, self.next());
        self.barrier()?;
        match atomic {
            Atomic::FetchAdd => queue.atomic_fetch_add(peer, word, value, Some(result))?,
            Atomic::Swap => queue.atomic_swap(peer, word, value, Some(result))?,
            Atomic::CompareSwap => {
                let compared = of(self.call.compared());
                queue.atomic_compare_swap(peer, word, compared, value, Some(result))?;
            }
            Atomic::SignalAdd => queue.signal_add(peer, word, value)?,
            Atomic::SetAndWait => {
                queue.signal_set(peer, word, value)?;
                queue.wait_word_within(word, Condition::Equal, value, self.deadline)?;
            }
        }
        self.barrier()
    }

    /// Returns whether destination and source of a collective are memory that only this rank knows: in a third of the calls
    /// that name no algorithm, at every rank another of them.
    fn own_memory(&self) -> (bool, bool) {
        let call = self.call;
        if call.algorithm.is_some() || !(call.count + call.number).is_multiple_of(3) {
            return (false, false);
        }
        [(true, true), (false, true), (true, false)][self.number % 3]
    }

    fn collective<T: Reducible>(
        &self,
        collectives: Collectives<'_>,
        to: &SymmetricBuffer<T>,
        from: &SymmetricBuffer<T>,
    ) -> Result<()> {
        let (call, root, many) = (self.call, self.root(), self.many);
        let (read, written) = call.kind.parts(many);
        let written = match call.kind {
            Kind::AllGatherV => call.counts(many).iter().sum(),
            _ => written * call.count,
        };
        let (read, written) = self.ranges(read * call.count, written);
        let (from, to) = (from.slice(read)?, to.slice(written)?);
        let (to_own, from_own) = self.own_memory();
        let whole_to = to;
        let to = operand(to, to_own);
        let source = operand(from, from_own);
        match call.kind {
            Kind::AllReduce(how) => collectives.all_reduce(to, source, how.into()),
            Kind::Reduce(how) => collectives.reduce(root, to, source, how.into()),
            Kind::ReduceScatter(how) => collectives.reduce_scatter(to, source, how.into()),
            Kind::AllGather => collectives.all_gather(to, source),
            Kind::AllGatherV => collectives.all_gather_v(to, source, &call.counts(many)),
            Kind::Broadcast => collectives.broadcast(root, to, source),
            Kind::AllToAll => collectives.all_to_all(to, source),
            Kind::AllToAllV => {
                let own = self.number;
                let list = |part: &dyn Fn(usize) -> usize| (0..many).map(part).collect::<Vec<_>>();
                collectives.all_to_all_v(
                    to,
                    &list(&|peer| call.sent(peer, own)),
                    &list(&|peer| call.received_at(peer, own)),
                    from,
                    &list(&|peer| call.sent(own, peer)),
                    &list(&|peer| call.sent_at(own, peer)),
                )
            }
            Kind::Gather => collectives.gather(root, to, source),
            Kind::Scatter => collectives.scatter(root, to, source),
            Kind::Exchange(messages) => {
                let mut exchange = collectives.exchange();
                for message in 0..messages {
                    let part = message * call.count..(message + 1) * call.count;
                    exchange.send(self.next(), from.slice(part.clone())?)?;
                    exchange.recv(self.previous(), operand(whole_to.slice(part)?, to_own))?;
                }
                exchange.enqueue()
            }
            // A rank that receives its own message does both in one exchange.
            Kind::SendRecv if many == 1 => {
                let mut exchange = collectives.exchange();
                exchange.send(0, from)?;
                exchange.recv(0, to)?;
                exchange.enqueue()
            }
            Kind::SendRecv if self.number == root => collectives.send((root + 1) % many, from),
            Kind::SendRecv if self.number == (root + 1) % many => collectives.recv(root, to),
            _ => Ok(()),
        }
    }
}

fn operand<T: Reducible>(slice: Slice<'_, T>, is_own: bool) -> Operand<'_, T> {
    match is_own {
        true => DeviceSlice::from(slice).into(),
        false => slice.into(),
    }
}
