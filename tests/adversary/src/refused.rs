//! Calls that must be refused, and collective host calls in which ranks disagree.

use crate::buffer::{self, Buffer, with_buffer};
use crate::call::Id;
use crate::program::{Disagreement, Element, Refusal};
use crate::rank::{Failure, Rank};
use std::time::Duration;
use symmem::{
    Algorithm, CollectiveOptions, Communicator, Condition, ErrorKind, ReduceOp, Reducible, Result,
    Stream, SymmetricBuffer,
};

/// Calls, and what came of them.
type Outcomes = Vec<(&'static str, Result<()>)>;

/// Makes calls that must be refused, on a buffer of at least four `u32`; none if the program has not what they take.
pub fn refused(
    refusal: Refusal,
    stream: &Stream,
    buffer: &Buffer,
    other: Option<&Buffer>,
) -> Result<Outcomes> {
    let Buffer::U32(buffer) = buffer else {
        return Ok(Vec::new());
    };
    let whole = buffer.all();
    let (one, two, three) = (whole.slice(0..1)?, whole.slice(1..2)?, whole.slice(0..3)?);
    let sum = ReduceOp::Sum;
    let outcome = match refusal {
        Refusal::Root => stream.broadcast(99, one, two),
        Refusal::Peer => stream.put(99, one, two),
        Refusal::Channel => {
            let options = CollectiveOptions::new().channel(4);
            stream.with(&options).all_reduce(one, two, sum)
        }
        Refusal::BarrierChannel => stream.barrier_within(8, Duration::from_secs(1)),
        Refusal::Range => buffer.slice(1..buffer.len() + 1).map(drop),
        Refusal::Overlap => stream.all_reduce(three, whole.slice(1..4)?, sum),
        Refusal::Lengths => stream.put(0, one, three),
        Refusal::HostLength => stream.write(one, &[1, 2]),
        Refusal::OtherCommunicator => {
            let Some(other) = other else {
                return Ok(Vec::new());
            };
            let mut outcomes = with_buffer!(other, buffer => foreign(stream, buffer)?);
            outcomes.push(("a write to another's buffer", other.write(stream, 0, &[])));
            let read = other.read(stream, 0, 0).map(drop);
            outcomes.push(("a read of another's buffer", read));
            return Ok(outcomes);
        }
        Refusal::EmptyWait => stream.wait_all(one, 0, Condition::Equal, 0),
        Refusal::Algorithm => {
            let options = CollectiveOptions::new().algorithm(Algorithm::Swap);
            stream.with(&options).all_reduce(one, two, sum)
        }
    };
    Ok(vec![("a bad argument", outcome)])
}

/// Passes a buffer of another communicator's to a stream.
fn foreign<T: Reducible>(stream: &Stream, buffer: &SymmetricBuffer<T>) -> Result<Outcomes> {
    let half = buffer.len() / 2;
    let (one, two) = (buffer.slice(..half)?, buffer.slice(half..2 * half)?);
    let mut exchange = stream.exchange();
    Ok(vec![
        ("a put of another's buffer", stream.put(0, one, two)),
        ("a get of another's buffer", stream.get(0, one, two)),
        (
            "a signal with another's buffer",
            stream.put_signal(0, one, two, 0),
        ),
        (
            "an all-reduce of another's buffer",
            stream.all_reduce(one, two, ReduceOp::Sum),
        ),
        (
            "a broadcast of another's buffer",
            stream.broadcast(0, one, two),
        ),
        ("a send of another's buffer", exchange.send(0, one)),
        ("a receive in another's buffer", exchange.recv(0, two)),
    ])
}

/// Makes a collective host call in which `odd` differs from the others.
pub fn disagree(
    rank: &mut Rank<'_>,
    on: usize,
    disagreement: Disagreement,
    odd: usize,
    buffers: Option<(Id, Id)>,
) -> std::result::Result<(), Failure> {
    let is_odd = rank.rank == odd;
    let communicator: &Communicator = rank.held.communicator(on);
    let allocate = |element, length| buffer::allocate(communicator, element, length).map(drop);
    let mut kinds = vec![ErrorKind::Mismatch];
    let outcome = match disagreement {
        Disagreement::Length => allocate(Element::U8, 5 + usize::from(is_odd)),
        Disagreement::Element if is_odd => allocate(Element::F32, 5),
        Disagreement::Element => allocate(Element::U32, 5),
        Disagreement::Call if is_odd => communicator.host_barrier(),
        Disagreement::Call => allocate(Element::U8, 5),
        Disagreement::Overflow => {
            kinds = vec![ErrorKind::InvalidArgument];
            communicator.allocate::<u64>(&[usize::MAX, 2]).map(drop)
        }
        Disagreement::Free => {
            let (one, two) = buffers.expect("a plan has two buffers to free");
            let freed = if is_odd { two } else { one };
            // The odd rank's handle of `one`, and the others' of `two`, stay.
            let freed = rank.held.buffers.remove(&freed);
            freed.expect("a plan frees what there is").free()
        }
        Disagreement::Payload => {
            kinds = vec![if is_odd {
                ErrorKind::InvalidArgument
            } else {
                ErrorKind::PeerFailed
            }];
            let bytes = if is_odd { 64 << 20 } else { 3 };
            communicator.host_all_gather(&vec![0; bytes]).map(drop)
        }
    };
    rank.expect(outcome, &kinds, "a disagreement")
}
