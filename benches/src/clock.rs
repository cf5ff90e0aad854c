//! Starts ranks together and times the work they enqueue.

use super::Result;
use super::by_caller::is_by_caller;
use super::timer::Timer;
use std::time::Instant;
use symmem::{Communicator, Stream};

/// One rank's timers.
pub(super) struct Clock<'a> {
    timers: Vec<Timer<'a>>,
    /// The calling thread does the work, so the host's clock is used.
    by_caller: bool,
}

impl<'a> Clock<'a> {
    /// Creates a clock for up to `most` timings at once.
    pub(super) fn new(communicator: &'a Communicator, most: u32) -> Result<Self> {
        let timers = (0..most).map(|_| Timer::new(communicator));
        Ok(Self {
            timers: timers.collect::<Result<_>>()?,
            by_caller: is_by_caller(communicator),
        })
    }

    /// Lets the ranks start together: no stream continues before all have reached this point. Collective.
    pub(super) fn start_together(&self, stream: &Stream) -> Result<()> {
        stream.barrier()?;
        if self.by_caller {
            // Without this, work after a waiting barrier would run on the stream's thread, and work that the
            // caller does itself would not wait at all.
            stream.synchronize()?;
        }
        Ok(())
    }

    /// Runs `work`, which enqueues calls, after a barrier, and returns its device time in nanoseconds, or host
    /// time if the caller does the work. Blocks.
    pub(super) fn timed(&self, stream: &Stream, work: &dyn Fn() -> Result<()>) -> Result<f64> {
        let times = self.each(stream, 1, true, work)?;
        Ok(times.into_iter().sum())
    }

    /// Runs `work` `times` times, but at most once per timer, each time after a barrier if `together`, and
    /// returns the nanoseconds of each run. On a device, enqueues all runs before it waits. Blocks.
    pub(super) fn each(
        &self,
        stream: &Stream,
        times: u32,
        together: bool,
        work: &dyn Fn() -> Result<()>,
    ) -> Result<Vec<f64>> {
        let timers = &self.timers[..self.timers.len().min(times as usize)];
        let mut nanoseconds = Vec::with_capacity(timers.len());
        for timer in timers {
            if together {
                self.start_together(stream)?;
            }
            if self.by_caller {
                let start = Instant::now();
                work()?;
                stream.synchronize()?;
                nanoseconds.push(start.elapsed().as_nanos() as f64);
                continue;
            }
            timer.begin(stream)?;
            work()?;
            timer.end(stream)?;
        }
        stream.synchronize()?;
        if !self.by_caller {
            for timer in timers {
                nanoseconds.push(timer.nanoseconds()?);
            }
        }
        Ok(nanoseconds)
    }
}
