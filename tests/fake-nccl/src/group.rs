//! Groups of calls on a thread. A call outside a group forms its own group.

use crate::communicator::{Communicator, find};
use crate::operations::{self, Operation};
use crate::{Code, Result, driver, inject};
use std::cell::RefCell;
use std::ffi::c_void;
use std::sync::Arc;
use std::time::Duration;

struct Call {
    symbol: &'static str,
    operation: Operation,
    communicator: Arc<Communicator>,
    stream: u64,
}

thread_local! {
    static DEPTH: RefCell<u32> = const { RefCell::new(0) };
    static CALLS: RefCell<Vec<Call>> = const { RefCell::new(Vec::new()) };
}

pub fn start() {
    DEPTH.with_borrow_mut(|depth| *depth += 1);
}

pub fn end() -> Result {
    let left = DEPTH.with_borrow_mut(|depth| {
        let left = depth.checked_sub(1);
        *depth = left.unwrap_or(0);
        left
    });
    match left {
        Some(0) => flush(),
        Some(_) => Ok(()),
        None => {
            driver::violation("a group is ended that was not started");
            Err(Code::INVALID_USAGE)
        }
    }
}

pub fn add(symbol: &'static str, operation: Operation, comm: *mut c_void, stream: u64) -> Result {
    let communicator = find(comm)?;
    communicator.check_idle(symbol)?;
    operation.check(symbol, communicator.world)?;
    CALLS.with_borrow_mut(|calls| {
        calls.push(Call {
            symbol,
            operation,
            communicator,
            stream,
        });
    });
    match DEPTH.with_borrow(|depth| *depth) {
        0 => flush(),
        _ => Ok(()),
    }
}

/// Makes the calls of a group, together for each communicator.
fn flush() -> Result {
    let mut calls = CALLS.take();
    let mut in_progress = false;
    while let Some(first) = calls.first() {
        let (communicator, symbol) = (first.communicator.clone(), first.symbol);
        let (own, others): (Vec<_>, Vec<_>) = calls
            .into_iter()
            .partition(|call| Arc::ptr_eq(&call.communicator, &communicator));
        calls = others;
        let (rank, world) = (communicator.rank, communicator.world);
        let peers = own.iter().map(|call| call.operation.peers(rank, world));
        let new = communicator.unconnected(peers.fold(0, |all, peers| all | peers))?;
        let later = inject::hangs(symbol, rank) || inject::fails_later(symbol, rank).is_some();
        if new == 0 && !later {
            submit(own)?;
            continue;
        }
        in_progress = true;
        let begun = communicator.begin(symbol, move |communicator| {
            if new != 0 {
                // NCCL connects here, to those that the calls are with: a rank without a message need not come.
                std::thread::sleep(Duration::from_millis(inject::connect_milliseconds()));
                communicator.connect(new)?;
            }
            submit(own)
        });
        if begun != Err(Code::IN_PROGRESS) {
            return begun;
        }
    }
    match in_progress {
        true => Err(Code::IN_PROGRESS),
        false => Ok(()),
    }
}

/// Puts a communicator's calls on their streams.
fn submit(mut calls: Vec<Call>) -> Result {
    while let Some(first) = calls.first() {
        let (communicator, stream) = (first.communicator.clone(), first.stream);
        let (own, others): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.stream == stream);
        calls = others;
        let together = own.into_iter().map(|call| call.operation).collect();
        operations::submit(&communicator, together, stream)?;
    }
    Ok(())
}
