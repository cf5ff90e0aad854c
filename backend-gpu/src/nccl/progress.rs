//! Waits for calls that a thread of the library works on.

use super::communicators::{ASYNC_ERROR, NAP, Use, ended};
use super::table::{Code, Comm, IN_PROGRESS, SUCCESS};
use super::{NcclApi, PATIENCE};
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

/// Polls before the first sleep, for calls that finish within microseconds.
const SPINS: u32 = 2000;

impl NcclApi {
    /// Accepts a call that is done or in progress.
    pub(super) fn begun(&self, call: &str, code: Code, comm: Comm) -> CallResult<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            _ => Err(self.failure(call, code, comm)),
        }
    }

    /// Waits until a call is done, and returns its result.
    ///
    /// Polls even if the call returned success: `ncclCommWindowRegister` of 2.28 returns success when its
    /// thread has only begun, and only the communicator's state tells when it is done.
    pub(super) fn finish(&self, begun: &Use, call: &str, code: Code) -> CallResult<()> {
        self.begun(call, code, begun.raw())?;
        self.settle(begun, call)
    }

    /// Waits until the library's thread has finished `call`, or somebody ends the communicator.
    pub(super) fn settle(&self, begun: &Use, call: &str) -> CallResult<()> {
        if self.wait(begun.raw(), PATIENCE, || begun.has_ended())? {
            return Ok(());
        }
        if begun.has_ended() {
            return Err(ended(call));
        }
        Err(Failure::new(
            Status::CALL_FAILED,
            call,
            format!(
                "rank {} of {}: not done after {} s; check that every rank made the call, and run with \
                 NCCL_DEBUG=INFO to see how far this rank came",
                begun.communicator.rank,
                begun.communicator.world,
                PATIENCE.as_secs()
            ),
        ))
    }

    /// Polls until the communicator is done; returns false after `patience`, or once `given_up` returns true.
    pub(super) fn wait(
        &self,
        comm: Comm,
        patience: Duration,
        given_up: impl Fn() -> bool,
    ) -> CallResult<bool> {
        let (start, mut polls) = (Instant::now(), 0_u32);
        while self.state(comm)? == IN_PROGRESS {
            if given_up() || start.elapsed() > patience {
                return Ok(false);
            }
            polls = polls.saturating_add(1);
            match polls {
                ..SPINS => std::hint::spin_loop(),
                _ => std::thread::sleep(NAP),
            }
        }
        Ok(true)
    }

    /// Returns [`SUCCESS`] or [`IN_PROGRESS`], the state of the last call. `comm` is in use.
    pub(super) fn state(&self, comm: Comm) -> CallResult<Code> {
        let mut state = SUCCESS;
        // SAFETY: the out-pointer is writable, and the communicator is live while it is in use.
        let code = unsafe { (self.table.ncclCommGetAsyncError)(comm, &raw mut state) };
        match (code, state) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => Ok(state),
            (SUCCESS, failed) | (failed, _) => Err(self.failure(ASYNC_ERROR, failed, comm)),
        }
    }

    /// Aborts a communicator that `Communicator::end` returned.
    pub(super) fn abort(&self, comm: Comm) -> CallResult<()> {
        // SAFETY: the communicator is live, and `Communicator::end` returns it only once, so it is aborted only once.
        let code = unsafe { (self.table.ncclCommAbort)(comm) };
        self.begun("ncclCommAbort", code, null_mut())
    }
}
