//! Makes the call of a collective case. Only this part is compiled once per element type.

use super::call::Call;
use super::case::Collective;
use symmem::{Collectives, Reducible, Result, Slice};

/// Enqueues a call with the arguments of its member `rank`.
pub fn enqueue<T: Reducible>(
    calls: Collectives<'_>,
    call: &Call,
    rank: usize,
    to: Slice<'_, T>,
    from: Slice<'_, T>,
) -> Result<()> {
    let (root, reduction) = (call.root, call.reduction.into());
    match call.operation {
        Collective::AllReduce => calls.all_reduce(to, from, reduction),
        Collective::Reduce => calls.reduce(root, to, from, reduction),
        Collective::ReduceScatter => calls.reduce_scatter(to, from, reduction),
        Collective::AllGather => calls.all_gather(to, from),
        Collective::AllGatherV => calls.all_gather_v(to, from, &call.counts()),
        Collective::Broadcast => calls.broadcast(root, to, from),
        Collective::AllToAll => calls.all_to_all(to, from),
        Collective::AllToAllV => {
            let (received, received_at) = split(call.received(rank));
            let (sent, sent_at) = split(call.sent(rank));
            calls.all_to_all_v(to, &received, &received_at, from, &sent, &sent_at)
        }
        Collective::Gather => calls.gather(root, to, from),
        Collective::Scatter => calls.scatter(root, to, from),
        Collective::Ring | Collective::Exchange => {
            let mut exchange = calls.exchange();
            for (peer, (count, at)) in call.sent(rank).into_iter().enumerate() {
                if let Some(count) = count {
                    exchange.send(peer, from.slice(at..at + count)?)?;
                }
            }
            for (peer, (count, at)) in call.received(rank).into_iter().enumerate() {
                if let Some(count) = count {
                    exchange.recv(peer, to.slice(at..at + count)?)?;
                }
            }
            exchange.enqueue()
        }
    }
}

/// Splits messages into counts and offsets; no message counts as 0 elements.
fn split(messages: Vec<(Option<usize>, usize)>) -> (Vec<usize>, Vec<usize>) {
    let count = |(count, at): (Option<usize>, usize)| (count.unwrap_or(0), at);
    messages.into_iter().map(count).unzip()
}
