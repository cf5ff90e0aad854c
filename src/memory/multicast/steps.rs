//! Steps of the setup: a call that may block, and the agreement after it.

use crate::backend::{Backend, CallResult};
use crate::base::abandon::{Abandoned, run_while};
use crate::base::error::Result;
use crate::bootstrap::Contribution;
use crate::rank::agreement::Round;
use crate::rank::driver::Driver;
use rustix::fd::{AsFd, OwnedFd};
use std::cell::Cell;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The outcome of a step on the control plane: what every rank contributed, or the reason why all go without
/// multicast.
pub type Agreed<T> = Result<std::result::Result<T, String>>;

/// Ends a step. Returns every rank's contribution if it worked on all of them, or the reason of the first rank
/// on which it failed, in the same words on all ranks.
pub fn agree(
    round: &mut Round<'_>,
    outcome: &std::result::Result<Vec<u8>, String>,
    descriptor: Option<&OwnedFd>,
) -> Agreed<Vec<Contribution>> {
    let said = match outcome {
        Ok(payload) => Ok(payload.as_slice()),
        Err(why) => Err(why.clone()),
    };
    let answers = round.tell(said, descriptor.map(AsFd::as_fd))?;
    let named = |(rank, answer): (usize, std::result::Result<_, String>)| {
        answer.map_err(|why| format!("rank {rank}: {why}"))
    };
    Ok(answers.into_iter().enumerate().map(named).collect())
}

/// The result of a call. If it arrives after the wait for it has ended, it is undone.
struct Late<T, U: FnOnce(&Backend, T)> {
    backend: Arc<Backend>,
    result: Option<CallResult<T>>,
    undo: Option<U>,
}

impl<T, U: FnOnce(&Backend, T)> Drop for Late<T, U> {
    fn drop(&mut self) {
        if let (Some(Ok(value)), Some(undo)) = (self.result.take(), self.undo.take()) {
            undo(&self.backend, value);
        }
    }
}

/// The reason why a call has no result.
pub enum CallError {
    /// The call was never made.
    Uncalled(String),
    /// The call failed, and left nothing behind.
    Failed(String),
    /// The call has not returned, and may still use its arguments.
    Stuck(String),
}

impl CallError {
    fn of(what: &str, abandoned: &Abandoned) -> Self {
        let why = format!("{what}: {abandoned}");
        match abandoned {
            Abandoned::Late(_) => Self::Stuck(format!(
                "{why}; check the fabric manager, or set SYMMEM_MULTICAST=0 to run without multicast"
            )),
            Abandoned::NoThread(_) => Self::Uncalled(why),
        }
    }

    /// Returns the reason as text.
    pub fn reason(&self) -> &str {
        match self {
            Self::Uncalled(why) | Self::Failed(why) | Self::Stuck(why) => why,
        }
    }

    /// Turns it into the reason as text.
    pub fn into_reason(self) -> String {
        match self {
            Self::Uncalled(why) | Self::Failed(why) | Self::Stuck(why) => why,
        }
    }
}

/// Time that a call has to return once a rank was lost, so that a slow call is not taken for a stuck one. Short
/// enough that survivors learn of the loss within a second.
const GRACE: Duration = Duration::from_millis(400);

/// The purpose of a call, and its deadline.
#[derive(Clone, Copy)]
pub enum Phase {
    /// Setup, with ranks that will take part; pointless once one of them is lost.
    SetUp(Instant),
    /// Release, independent of the other ranks.
    GiveBack(Instant),
}

/// Makes a call that may block until other ranks have come, and waits for it until its phase's deadline.
pub fn bounded<T, U>(
    driver: &Driver,
    what: &'static str,
    phase: Phase,
    call: impl FnOnce(&Backend) -> CallResult<T> + Send + 'static,
    undo: U,
) -> std::result::Result<T, CallError>
where
    T: Send + 'static,
    U: FnOnce(&Backend, T) + Send + 'static,
{
    let (Phase::SetUp(until) | Phase::GiveBack(until)) = phase;
    let left = until.saturating_duration_since(Instant::now());
    // The agreement that follows reports the reason.
    let lost = Cell::new(None);
    let wanted = || match (phase, driver.health.check()) {
        (Phase::GiveBack(_), _) | (_, Ok(())) => true,
        (Phase::SetUp(_), Err(_)) => {
            let since = lost.get().unwrap_or_else(Instant::now);
            lost.set(Some(since));
            since.elapsed() < GRACE
        }
    };
    // Rounded to milliseconds, for the error message.
    let limit = Duration::from_millis(left.as_millis() as u64);
    let backend = Arc::clone(&driver.backend);
    let work = move || {
        let result = Some(call(&backend));
        let undo = Some(undo);
        Late {
            backend,
            result,
            undo,
        }
    };
    // Logged before the call: if it hangs the machine, this line is the last.
    tracing::debug!(rank = driver.rank, "{what}");
    let made = match run_while("symmem-multicast", limit, wanted, work) {
        Ok(mut outcome) => match outcome.result.take() {
            Some(Ok(value)) => Ok(value),
            Some(Err(failure)) => Err(CallError::Failed(failure.to_string())),
            None => Err(CallError::Failed(format!("{what} returned nothing"))),
        },
        Err(abandoned) => Err(CallError::of(what, &abandoned)),
    };
    match &made {
        Ok(_) => tracing::debug!(rank = driver.rank, "{what}: done"),
        Err(unmade) => {
            tracing::debug!(
                rank = driver.rank,
                reason = unmade.reason(),
                "{what}: failed"
            );
        }
    }
    made
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io;

    #[test]
    fn only_a_call_that_was_made_can_be_stuck() {
        let late = CallError::of("binding", &Abandoned::Late(Duration::from_secs(3)));
        assert!(
            matches!(late, CallError::Stuck(why) if why.starts_with("binding: ")
            && why.contains("SYMMEM_MULTICAST=0"))
        );
        let unmade = Abandoned::NoThread(io::Error::from(io::ErrorKind::WouldBlock));
        assert!(matches!(
            CallError::of("binding", &unmade),
            CallError::Uncalled(_)
        ));
    }
}
