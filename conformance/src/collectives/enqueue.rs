//! Makes the call of a collective case. Only this part is compiled once per element type.

use super::call::Call;
use super::case::Collective;
use symmem::{Collectives, DeviceSlice, Operand, Reducible, Result, Slice};

/// Enqueues a call with the arguments of its member `rank`. The operands with `true` are memory that only this rank knows.
pub fn enqueue<T: Reducible>(
    calls: Collectives<'_>,
    call: &Call,
    rank: usize,
    (to, own_to): (Slice<'_, T>, bool),
    (from, own_from): (Slice<'_, T>, bool),
) -> Result<()> {
    let (destination, source) = (operand(to, own_to), operand(from, own_from));
    let (root, reduction) = (call.root, call.reduction.into());
    match call.operation {
        Collective::AllReduce => calls.all_reduce(destination, source, reduction),
        Collective::Reduce => calls.reduce(root, destination, source, reduction),
        Collective::ReduceScatter => calls.reduce_scatter(destination, source, reduction),
        Collective::AllGather => calls.all_gather(destination, source),
        Collective::AllGatherV => calls.all_gather_v(destination, source, &call.counts()),
        Collective::Broadcast => calls.broadcast(root, destination, source),
        Collective::AllToAll => calls.all_to_all(destination, source),
        Collective::AllToAllV => {
            let (received, received_at) = split(call.received(rank));
            let (sent, sent_at) = split(call.sent(rank));
            calls.all_to_all_v(
                destination,
                &received,
                &received_at,
                source,
                &sent,
                &sent_at,
            )
        }
        Collective::Gather => calls.gather(root, destination, source),
        Collective::Scatter => calls.scatter(root, destination, source),
        Collective::Ring | Collective::Exchange => {
            let mut exchange = calls.exchange();
            for (peer, (count, at)) in call.sent(rank).into_iter().enumerate() {
                if let Some(count) = count {
                    exchange.send(peer, operand(from.slice(at..at + count)?, own_from))?;
                }
            }
            for (peer, (count, at)) in call.received(rank).into_iter().enumerate() {
                if let Some(count) = count {
                    exchange.recv(peer, operand(to.slice(at..at + count)?, own_to))?;
                }
            }
            exchange.enqueue()
        }
    }
}

fn operand<T: Reducible>(slice: Slice<'_, T>, is_own: bool) -> Operand<'_, T> {
    match is_own {
        true => DeviceSlice::from(slice).into(),
        false => slice.into(),
    }
}

/// Splits messages into counts and offsets; no message counts as 0 elements.
fn split(messages: Vec<(Option<usize>, usize)>) -> (Vec<usize>, Vec<usize>) {
    let count = |(count, at): (Option<usize>, usize)| (count.unwrap_or(0), at);
    messages.into_iter().map(count).unzip()
}
