//! The events that the supervisor handles while ranks run.

use crate::output::OutputError;
use rustix::process::{Signal, WaitIdStatus};
use signal_hook::low_level::signal_name;
use std::fmt;
use std::time::Instant;

pub(super) enum Event {
    Ended {
        rank: usize,
        how: Ended,
        at: Instant,
    },
    Signal(Signal),
    /// A rank's output could not be written.
    OutputLost(OutputError),
    /// A child has ended: a rank, or a process that a rank has left.
    ChildEnded,
    /// The launcher has died.
    LauncherGone,
}

/// How a rank ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    Code(i32),
    Signal(i32),
}

impl Ended {
    pub(super) fn of(status: &WaitIdStatus) -> Self {
        match (status.exit_status(), status.terminating_signal()) {
            (Some(code), _) => Self::Code(code),
            (None, Some(signal)) => Self::Signal(signal),
            // Unreachable: waitid with only WEXITED reports an exit or a signal.
            (None, None) => Self::Code(1),
        }
    }

    /// Returns the exit code that a shell would report.
    pub(super) fn code(self) -> u8 {
        match self {
            Self::Code(code) => (code & 0xff) as u8,
            Self::Signal(signal) => (128 + signal) as u8,
        }
    }
}

impl Ended {
    /// Returns whether a signal killed the rank, so that it could not print a reason.
    pub(super) fn is_signal(self) -> bool {
        matches!(self, Self::Signal(_))
    }

    /// Returns the signal that killed the rank or, as a shell reports it by its code, the process behind it.
    pub(super) fn signal(self) -> Option<i32> {
        match self {
            Self::Signal(signal) => Some(signal),
            Self::Code(code) => Some(code - 128).filter(|&signal| signal_name(signal).is_some()),
        }
    }

    /// Returns whether SIGPIPE killed the rank: it wrote to a closed pipe.
    pub(super) fn is_broken_pipe(self) -> bool {
        self == Self::Signal(Signal::PIPE.as_raw())
    }
}

impl fmt::Display for Ended {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Code(code) => {
                write!(formatter, "exited with code {code}")?;
                match self.signal().and_then(signal_name) {
                    Some(name) => write!(formatter, " ({name})"),
                    None => Ok(()),
                }
            }
            Self::Signal(signal) => match signal_name(*signal) {
                Some(name) => write!(formatter, "was killed ({name})"),
                None => write!(formatter, "was killed (signal {signal})"),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signals_have_the_names_that_kill_and_shells_know() {
        for (signal, name) in [
            (Signal::KILL, "SIGKILL"),
            (Signal::TERM, "SIGTERM"),
            (Signal::SEGV, "SIGSEGV"),
            (Signal::ABORT, "SIGABRT"),
            (Signal::BUS, "SIGBUS"),
            (Signal::PIPE, "SIGPIPE"),
        ] {
            let said = Ended::Signal(signal.as_raw()).to_string();
            assert_eq!(said, format!("was killed ({name})"));
        }
        let said = Ended::Signal(40).to_string();
        assert_eq!(said, "was killed (signal 40)");
    }

    #[test]
    fn a_code_above_128_has_the_signal_that_a_shell_means() {
        assert_eq!(
            Ended::Code(137).to_string(),
            "exited with code 137 (SIGKILL)"
        );
        assert_eq!(Ended::Code(139).signal(), Some(Signal::SEGV.as_raw()));
        for code in [0, 1, 9, 128, 250, 255] {
            assert_eq!(Ended::Code(code).signal(), None);
            assert_eq!(
                Ended::Code(code).to_string(),
                format!("exited with code {code}")
            );
        }
    }

    #[test]
    fn codes_are_those_of_a_shell() {
        assert_eq!(Ended::Code(0).code(), 0);
        assert_eq!(Ended::Code(255).code(), 255);
        assert_eq!(Ended::Signal(9).code(), 137);
        assert_eq!(Ended::Signal(15).code(), 143);
    }
}
