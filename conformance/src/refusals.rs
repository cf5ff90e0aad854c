//! Calls that must fail with a given error, and must leave the communicator working; and calls with no elements,
//! which must succeed.

use super::buffers::{Buffers, Memory};
use super::context::Context;
use super::dtype::with_element;
use super::engine::{Engine, MethodName};
use super::findings::{Fault, Findings};
use super::transfer_case::{Operation, TransferCase};
use symmem::backend::abi::DeviceAddress;
use symmem::{
    BARRIER_CHANNELS, CHANNELS, Element, Error, Method, Reducible, Result, TransferOptions,
};

/// Makes calls with no elements, which must succeed; a put of no elements with a signal must still signal.
fn nothing<T: Element>(context: &Context<'_>) -> Result<()> {
    const CHANNEL: u32 = 0;
    let communicator = context.communicator;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
    let stream = &context.streams[0];
    let empty = communicator.allocate::<T>(&[0, 3])?;
    empty.write(stream, 0, &[])?;
    empty.read(stream, 0, &mut [])?;
    stream.put(next, &empty, &empty)?;
    stream.get(next, &empty, &empty)?;
    if !context.planted(Fault::MissingSignal) {
        stream.put_signal(next, &empty, &empty, CHANNEL)?;
    }
    stream.wait_signal_within(previous, CHANNEL, context.deadline)?;
    stream.synchronize_within(context.deadline)?;
    empty.free()
}

/// Makes each call and checks its error; then moves data to show that the communicator still works.
pub fn check(context: &Context<'_>, memory: &dyn Memory) -> Result<Findings> {
    let mut findings = with_element!(context.case.dtype, T => {
        let findings = refused::<T>(context, memory.of())?;
        nothing::<T>(context)?;
        findings
    });
    // The failed calls must not have counted a signal, blocked a stream or allocated on some ranks only.
    let case = TransferCase {
        operation: Operation::PutSignal,
        ..context.case.clone()
    };
    let context = Context {
        case: &case,
        ..*context
    };
    findings.extend(super::transfers::check(&context, memory)?);
    Ok(findings)
}

/// Makes each call and checks its error.
fn refused<T: Reducible>(context: &Context<'_>, buffers: &Buffers<T>) -> Result<Findings> {
    let communicator = context.communicator;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let stream = &context.streams[0];
    let Buffers {
        destination,
        source,
        ..
    } = buffers;
    let mut findings = Findings::new();
    let mut refused = |call: &str, outcome: Result<()>, right: fn(&Error) -> bool| match outcome {
        Ok(()) => findings.push(format!("{call} was not refused")),
        Err(error) if right(&error) => {}
        Err(error) => findings.push(format!("{call} was refused for another reason: {error}")),
    };
    let out_of_range: fn(&Error) -> bool = |error| matches!(error, Error::OutOfRange { .. });
    let invalid: fn(&Error) -> bool = |error| matches!(error, Error::InvalidArgument { .. });
    let length = destination.len();

    refused(
        "a range past the end",
        destination.slice(length..length + 1).map(drop),
        out_of_range,
    );
    refused(
        "a range that overflows",
        destination.slice(..=usize::MAX).map(drop),
        out_of_range,
    );
    let mut last = [T::new_zeroed(); 2];
    refused(
        "a write past the end",
        destination.write(stream, length - 1, &last),
        out_of_range,
    );
    refused(
        "a read past the end",
        destination.read(stream, length - 1, &mut last),
        out_of_range,
    );
    let (one, two) = (destination.slice(..1)?, source.slice(..2)?);
    refused(
        "a put of unequal lengths",
        stream.put(rank, one, two),
        invalid,
    );
    refused(
        "a get of unequal lengths",
        stream.get(rank, one, two),
        invalid,
    );
    let (low, high) = (destination.slice(..2)?, destination.slice(1..3)?);
    refused("a put onto itself", stream.put(rank, low, high), invalid);
    let from = source.slice(..1)?;
    refused(
        "a put to an invalid rank",
        stream.put(world, one, from),
        invalid,
    );
    refused(
        "a get from an invalid rank",
        stream.get(world, one, from),
        invalid,
    );
    refused(
        "a view of an invalid rank",
        destination.peer(world).map(drop),
        invalid,
    );
    refused(
        "a wait for an invalid rank",
        stream.wait_signal(world, 0),
        invalid,
    );
    refused(
        "a wait on an invalid channel",
        stream.wait_signal(rank, CHANNELS),
        invalid,
    );
    refused(
        "a signal on an invalid channel",
        stream.put_signal(rank, one, from, CHANNELS),
        invalid,
    );
    refused(
        "a barrier on an invalid channel",
        stream.barrier_within(BARRIER_CHANNELS, context.deadline),
        invalid,
    );
    let lanes = TransferOptions::new()
        .method(Method::Vector)
        .geometry(1, 33);
    refused(
        "a block of 33 threads",
        stream.with(&lanes).put(rank, one, from),
        invalid,
    );
    let bulk = Engine {
        method: MethodName::Bulk,
        ..Engine::AUTOMATIC
    };
    if bulk.missing(communicator.capabilities()).is_some() {
        refused(
            "an engine that is missing",
            stream.with(&bulk.options()).put(rank, one, from),
            invalid,
        );
    } else {
        // Aligned addresses, since the planner chooses another method for the others.
        let aligned = (destination.slice(..64)?, source.slice(..64)?);
        let odd = TransferOptions::new().method(Method::Bulk).in_flight(2, 17);
        refused(
            "bulk copies of 17 bytes",
            stream.with(&odd).put(rank, aligned.0, aligned.1),
            invalid,
        );
    }
    refused(
        "a buffer whose size overflows",
        communicator.allocate::<T>(&[usize::MAX, 2]).map(drop),
        invalid,
    );
    if world > 1 {
        refused(
            "unequal shapes",
            communicator.allocate::<T>(&[rank + 1]).map(drop),
            |error| matches!(error, Error::Mismatch { .. }),
        );
    }
    if align_of::<T>() > 1 {
        // SAFETY: `register` refuses the address for its alignment and never dereferences it.
        let misaligned = unsafe { communicator.register::<T>(DeviceAddress(0x1001), &[1]) };
        refused("misaligned memory", misaligned.map(drop), invalid);
    }
    Ok(findings)
}
