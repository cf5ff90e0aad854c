//! What becomes of calls that the library works on beside its caller.

use super::communicators::{ASYNC_ERROR, NAP, Use, ended};
use super::table::{Code, Comm, IN_PROGRESS, SUCCESS};
use super::{PATIENCE, VendorLibrary};
use std::ptr::null_mut;
use std::time::{Duration, Instant};
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

/// Polls before the first sleep, for calls that are done within microseconds.
const SPINS: u32 = 2000;

impl VendorLibrary {
    /// A call's result, where having begun is good enough.
    pub(super) fn begun(&self, call: &str, code: Code, comm: Comm) -> CallResult<()> {
        match code {
            SUCCESS | IN_PROGRESS => Ok(()),
            _ => Err(self.failure(call, code, comm)),
        }
    }

    /// A call's result, once it is done.
    ///
    /// Also where it says that it is: `ncclCommWindowRegister` returns success when a thread of
    /// its own has only begun (2.28), and the communicator's state alone tells.
    pub(super) fn finish(&self, begun: &Use, call: &str, code: Code) -> CallResult<()> {
        self.begun(call, code, begun.raw())?;
        self.settle(begun, call)
    }

    /// Waits until what `call` began on a thread of the library is done, or somebody ends the
    /// communicator.
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
                "rank {} of {}: not done after {} s; another rank may not have made the call, and \
                 NCCL_DEBUG=INFO tells how far this one came",
                begun.communicator.rank,
                begun.communicator.world,
                PATIENCE.as_secs()
            ),
        ))
    }

    /// Whether what was begun was done within the time and before `given_up`.
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

    /// [`SUCCESS`] or [`IN_PROGRESS`]: what becomes of what was begun. `comm` is in use.
    pub(super) fn state(&self, comm: Comm) -> CallResult<Code> {
        let mut state = SUCCESS;
        // SAFETY: the place is writable; the communicator is live while it is in use.
        let code = unsafe { (self.table.ncclCommGetAsyncError)(comm, &raw mut state) };
        match (code, state) {
            (SUCCESS, SUCCESS | IN_PROGRESS) => Ok(state),
            (SUCCESS, failed) | (failed, _) => Err(self.failure(ASYNC_ERROR, failed, comm)),
        }
    }

    /// Aborts a communicator that has been ended here.
    pub(super) fn abort(&self, comm: Comm) -> CallResult<()> {
        // SAFETY: live, ended by `Communicator::end` and so given here once.
        let code = unsafe { (self.table.ncclCommAbort)(comm) };
        self.begun("ncclCommAbort", code, null_mut())
    }
}
