//! How far a measurement is.

/// How far a run is.
#[derive(Clone, Debug)]
pub struct Progress {
    /// Steps done.
    pub done: usize,
    /// Steps in all.
    pub total: usize,
    /// What is measured now.
    pub what: String,
}

/// Counts steps and tells of them.
pub(super) struct Stepper<'a> {
    done: usize,
    total: usize,
    progress: &'a mut dyn FnMut(Progress),
}

impl<'a> Stepper<'a> {
    /// None of `total` steps is done.
    pub(super) fn new(total: usize, progress: &'a mut dyn FnMut(Progress)) -> Self {
        Self {
            done: 0,
            total,
            progress,
        }
    }

    /// More steps than were known of.
    pub(super) fn expect(&mut self, more: usize) {
        self.total += more;
    }

    /// Begins the next step.
    pub(super) fn next(&mut self, what: String) {
        (self.progress)(Progress {
            done: self.done,
            total: self.total,
            what,
        });
        self.done += 1;
    }
}
