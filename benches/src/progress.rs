//! Progress of a measurement.

/// Progress of a run.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Number of finished steps.
    pub done: usize,
    /// Number of all steps.
    pub total: usize,
    /// The current measurement.
    pub what: String,
}

/// Counts and reports steps.
pub(super) struct Stepper<'a> {
    done: usize,
    total: usize,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Stepper<'a> {
    /// Starts with none of `total` steps done.
    pub(super) fn new(total: usize, progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self {
            done: 0,
            total,
            progress,
        }
    }

    pub(super) fn expect(&mut self, more: usize) {
        self.total += more;
    }

    /// Begins and reports the next step.
    pub(super) fn next(&mut self, what: String) {
        (self.progress)(Progress {
            done: self.done,
            total: self.total,
            what,
        });
        self.done += 1;
    }
}
