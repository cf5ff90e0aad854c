//! How a call of Python's becomes one of the library's.

use crate::element;
use crate::failure::{Result, invalid};
use crate::memory;
use crate::number::Number;
use crate::operand::Memory;
use crate::rank::{Rank, Where};
use crate::stream::{self, Library};
use pyo3::prelude::*;
use symmem::{CollectiveOptions, Element, Operand, Queue, ReduceOp, Reducible, with_element};

/// A collective.
#[derive(Clone, Copy)]
pub enum Collective {
    AllReduce(ReduceOp),
    Reduce(usize, ReduceOp),
    ReduceScatter(ReduceOp),
    AllGather,
    AllToAll,
    Broadcast(usize),
    Gather(usize),
    Scatter(usize),
}

/// Source, destination and stream of a call, as Python passes them.
pub struct Arguments<'a, 'py> {
    pub destination: &'a Bound<'py, PyAny>,
    /// `None`: in place.
    pub source: Option<&'a Bound<'py, PyAny>>,
    pub stream: Option<&'a Bound<'py, PyAny>>,
}

/// Finds the operands of a collective, and enqueues it.
///
/// # Errors
/// What is wrong with the arguments, or failed.
pub fn collective(rank: &Rank, call: Collective, arguments: &Arguments<'_, '_>) -> Result<()> {
    let python = arguments.destination.py();
    let (destination, library) =
        memory::find(rank, arguments.destination, "the destination", true)?;
    let found = arguments
        .source
        .map(|source| memory::find(rank, source, "the source", false));
    let (source, library) = match found.transpose()? {
        Some((source, Library::Other(_))) => (Some(source), library),
        Some((source, library)) => (Some(source), library),
        None => (None, library),
    };
    let source = source.as_ref().unwrap_or(&destination);
    let operands = [Some(arguments.destination), arguments.source];
    let operands: Vec<_> = operands.into_iter().flatten().collect();
    let place = stream::place(rank, arguments.stream, library, &operands)?;
    python.detach(|| {
        // SAFETY: the array libraries keep memory and streams until their streams have passed the work, as they do for their
        // own kernels; for `At`, its documentation asks the program to.
        unsafe { enqueue(rank, call, (&destination, source), place) }
    })
}

/// Enqueues a collective.
///
/// # Errors
/// What is wrong with the arguments, or failed.
///
/// # Safety
/// The memory is on the rank's device, until the stream has passed the work; the stream is one of the device.
pub unsafe fn enqueue(
    rank: &Rank,
    call: Collective,
    (destination, source): (&Memory, &Memory),
    place: Where,
) -> Result<()> {
    if destination.element != source.element {
        return Err(invalid(format!(
            "the destination has elements of {}, the source of {}",
            element::name_of(destination.element),
            element::name_of(source.element)
        )));
    }
    // SAFETY: guaranteed by the caller.
    unsafe {
        match call {
            Collective::AllReduce(_) | Collective::Reduce(..) | Collective::ReduceScatter(_) => {
                with_element!(source.element, T => {
                    let to = destination.operand::<T>(rank)?;
                    let from = source.operand::<T>(rank)?;
                    rank.enqueue(place, |queue| reduce(queue, call, to, from))
                })
            }
            // Errors count elements.
            _ => match element::bytes_of(source.element) {
                1 => moves::<u8>(rank, call, (destination, source), place),
                2 => moves::<u16>(rank, call, (destination, source), place),
                4 => moves::<u32>(rank, call, (destination, source), place),
                _ => moves::<u64>(rank, call, (destination, source), place),
            },
        }
    }
}

fn reduce<T: Reducible>(
    queue: &Queue,
    call: Collective,
    to: Operand<'_, T>,
    from: Operand<'_, T>,
) -> symmem::Result<()> {
    match call {
        Collective::Reduce(root, operator) => queue.reduce(root, to, from, operator),
        Collective::ReduceScatter(operator) => queue.reduce_scatter(to, from, operator),
        Collective::AllReduce(operator) => queue.all_reduce(to, from, operator),
        _ => move_elements(queue, call, to, from),
    }
}

/// Enqueues a collective that moves elements of `T`'s size.
///
/// # Safety
/// As [`enqueue`].
unsafe fn moves<T: Element>(
    rank: &Rank,
    call: Collective,
    (destination, source): (&Memory, &Memory),
    place: Where,
) -> Result<()> {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let to = destination.operand::<T>(rank)?;
        let from = source.operand::<T>(rank)?;
        rank.enqueue(place, |queue| move_elements(queue, call, to, from))
    }
}

fn move_elements<T: Element>(
    queue: &Queue,
    call: Collective,
    to: Operand<'_, T>,
    from: Operand<'_, T>,
) -> symmem::Result<()> {
    match call {
        Collective::AllToAll => queue.all_to_all(to, from),
        Collective::Broadcast(root) => queue.broadcast(root, to, from),
        Collective::Gather(root) => queue.gather(root, to, from),
        Collective::Scatter(root) => queue.scatter(root, to, from),
        _ => queue.all_gather(to, from),
    }
}

/// Tensors, each with the rank that it goes to or comes from.
type Parts<'py> = [(Number, Bound<'py, PyAny>)];

/// Finds tensors to send and to receive, and enqueues them as one call.
///
/// # Errors
/// What is wrong with the arguments, or failed.
pub fn exchange<'py>(
    python: Python<'py>,
    rank: &Rank,
    (sends, recvs): (&Parts<'py>, &Parts<'py>),
    stream: Option<&Bound<'py, PyAny>>,
) -> Result<()> {
    let mut is_torch = false;
    let mut find = |parts: &Parts<'py>, name, is_written| {
        let mut found = Vec::with_capacity(parts.len());
        for (peer, object) in parts {
            let (memory, library) = memory::find(rank, object, name, is_written)?;
            is_torch |= matches!(library, Library::Torch(_));
            found.push((peer.0, memory));
        }
        Result::Ok(found)
    };
    let (from, to) = (
        find(sends, "a source", false)?,
        find(recvs, "a destination", true)?,
    );
    let library = match is_torch {
        true => Library::Torch(python),
        false => Library::Other(python),
    };
    let operands: Vec<_> = sends
        .iter()
        .chain(recvs)
        .map(|(_, object)| object)
        .collect();
    let place = stream::place(rank, stream, library, &operands)?;
    python.detach(|| {
        let options = CollectiveOptions::new();
        // SAFETY: as in `collective`.
        unsafe {
            let (from, to) = (operands_of(rank, &from)?, operands_of(rank, &to)?);
            rank.enqueue(place, |queue| {
                let on = queue.with(&options);
                let mut exchange = on.exchange();
                for (peer, part) in from {
                    exchange.send(peer, part)?;
                }
                for (peer, part) in to {
                    exchange.recv(peer, part)?;
                }
                exchange.enqueue()
            })
        }
    })
}

/// Returns memory as operands of bytes, each with its rank.
///
/// # Safety
/// As [`Memory::operand`].
unsafe fn operands_of<'a>(
    rank: &'a Rank,
    parts: &'a [(usize, Memory)],
) -> Result<Vec<(usize, Operand<'a, u8>)>> {
    let operand = |(peer, memory): &'a (usize, Memory)| {
        // SAFETY: guaranteed by the caller.
        Ok((*peer, unsafe { memory.operand::<u8>(rank) }?))
    };
    parts.iter().map(operand).collect()
}
