//! Steps of the set-up: a call that may block, and the agreement after it.

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

/// The answer to a step on the control plane: what every rank gave, or why all go without.
pub type Agreed<T> = Result<std::result::Result<T, String>>;

/// Ends a step: what all ranks gave if it worked on all of them, or the reason of the first on which it did
/// not, in the same words everywhere.
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

/// The result of a call that may come when nobody waits for it any more: it is undone then.
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

/// Why a call has no result.
pub enum Unmade {
    /// It was never made.
    Uncalled(String),
    /// It failed, and left nothing.
    Failed(String),
    /// It goes on, and may yet use what it was given.
    Stuck(String),
}

impl Unmade {
    fn of(what: &str, abandoned: &Abandoned) -> Self {
        let why = format!("{what}: {abandoned}");
        match abandoned {
            Abandoned::Late(_) => Self::Stuck(format!(
                "{why}. See whether the fabric manager is well; SYMMEM_MULTICAST=0 does not try again"
            )),
            Abandoned::NoThread(_) => Self::Uncalled(why),
        }
    }

    /// In words.
    pub fn reason(&self) -> &str {
        match self {
            Self::Uncalled(why) | Self::Failed(why) | Self::Stuck(why) => why,
        }
    }

    /// Only the words.
    pub fn into_reason(self) -> String {
        match self {
            Self::Uncalled(why) | Self::Failed(why) | Self::Stuck(why) => why,
        }
    }
}

/// What a call has to return in once a rank was lost, lest one that is only slow is taken for one that is stuck.
/// So survivors hear of it within a second all the same.
const GRACE: Duration = Duration::from_millis(400);

/// What a call is for, and until when it is waited for.
#[derive(Clone, Copy)]
pub enum Phase {
    /// To set something up, with ranks that will be there too: pointless once one of them is lost.
    SetUp(Instant),
    /// To give something back, whatever became of the others.
    GiveBack(Instant),
}

/// Makes a call that may block until other ranks have come, and waits for it as long as its phase says.
pub fn bounded<T, U>(
    driver: &Driver,
    what: &'static str,
    phase: Phase,
    call: impl FnOnce(&Backend) -> CallResult<T> + Send + 'static,
    undo: U,
) -> std::result::Result<T, Unmade>
where
    T: Send + 'static,
    U: FnOnce(&Backend, T) + Send + 'static,
{
    let (Phase::SetUp(until) | Phase::GiveBack(until)) = phase;
    let left = until.saturating_duration_since(Instant::now());
    // The agreement after it fails with the reason.
    let lost = Cell::new(None);
    let wanted = || match (phase, driver.health.check()) {
        (Phase::GiveBack(_), _) | (_, Ok(())) => true,
        (Phase::SetUp(_), Err(_)) => {
            let since = lost.get().unwrap_or_else(Instant::now);
            lost.set(Some(since));
            since.elapsed() < GRACE
        }
    };
    // To be read: no more digits than that.
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
    // Before the call, too: on a machine that it hangs, this is the last that is heard.
    tracing::debug!(rank = driver.rank, "{what}");
    let made = match run_while("symmem-multicast", limit, wanted, work) {
        Ok(mut outcome) => match outcome.result.take() {
            Some(Ok(value)) => Ok(value),
            Some(Err(failure)) => Err(Unmade::Failed(failure.to_string())),
            None => Err(Unmade::Failed(format!("{what} gave nothing"))),
        },
        Err(abandoned) => Err(Unmade::of(what, &abandoned)),
    };
    match &made {
        Ok(_) => tracing::debug!(rank = driver.rank, "{what}: done"),
        Err(unmade) => {
            tracing::debug!(
                rank = driver.rank,
                reason = unmade.reason(),
                "{what}: not done"
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
        let late = Unmade::of("binding", &Abandoned::Late(Duration::from_secs(3)));
        assert!(
            matches!(late, Unmade::Stuck(why) if why.starts_with("binding: ")
            && why.contains("SYMMEM_MULTICAST=0"))
        );
        let unmade = Abandoned::NoThread(io::Error::from(io::ErrorKind::WouldBlock));
        assert!(matches!(
            Unmade::of("binding", &unmade),
            Unmade::Uncalled(_)
        ));
    }
}
