//! Events: points in the work of streams.

use std::sync::Arc;

use crate::call::put;
use crate::capture::{self, Membership};
use crate::driver::{Driver, Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::streams::{self, Completion, usable};
use crate::work::Work;

/// An event.
pub(crate) struct Event {
    pub context: u64,
    timing: bool,
    state: State,
}

enum State {
    New,
    Recorded(Arc<Completion>),
    /// Recorded in a capture, after these nodes.
    Captured(Membership),
}

fn event(driver: &Driver, handle: u64) -> Result<&Event> {
    let event = driver
        .events
        .get(&handle)
        .ok_or_else(|| dangling(Kind::Event, handle))?;
    driver.healthy(event.context)?;
    Ok(event)
}

/// Returns what is recorded. Invalidates the capture if the event was recorded in one.
fn recorded(driver: &mut Driver, handle: u64) -> Result<Option<Arc<Completion>>> {
    match &event(driver, handle)?.state {
        State::Captured(membership) => {
            let capture = membership.capture;
            capture::invalidate(driver, capture);
            Err(Code::CAPTURED_EVENT)
        }
        State::New => Ok(None),
        State::Recorded(completion) => {
            let completion = completion.clone();
            capture::forbid(driver)?;
            Ok(Some(completion))
        }
    }
}

/// Returns the milliseconds between two events.
pub fn elapsed(out: Option<&mut f32>, start: u64, end: u64) -> Result {
    let driver = driver()?;
    let time = |handle: u64| {
        let event = event(&driver, handle)?;
        match &event.state {
            State::Recorded(completion) if event.timing => completion.at().ok_or(Code::NOT_READY),
            _ => Err(Code::INVALID_HANDLE),
        }
    };
    let (start, end) = (time(start)?, time(end)?);
    let later = end.saturating_duration_since(start).as_secs_f32();
    let earlier = start.saturating_duration_since(end).as_secs_f32();
    put(out, (later - earlier) * 1e3)
}

/// Creates an event.
pub fn create(out: Option<&mut u64>, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    if flags & !7 != 0 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = new_handle(Kind::Event);
    driver.events.insert(
        handle,
        Event {
            context,
            timing: flags & 2 == 0,
            state: State::New,
        },
    );
    put(out, handle)
}

/// Destroys an event.
pub fn destroy(handle: u64) -> Result {
    let mut driver = driver()?;
    let event = driver
        .events
        .remove(&handle)
        .ok_or_else(|| dangling(Kind::Event, handle))?;
    driver.healthy(event.context).map(drop)
}

/// Records the work that a stream has so far.
pub fn record(handle: u64, stream: u64) -> Result {
    let mut driver = driver()?;
    let context = event(&driver, handle)?.context;
    let key = streams::key(&driver, stream)?;
    if usable(&driver, stream)?.context() != context {
        return Err(Code::INVALID_HANDLE);
    }
    let state = match driver.streams[&key].capture.clone() {
        Some(membership) => {
            capture::valid(&driver, &membership)?;
            State::Captured(membership)
        }
        None => match streams::submit(&mut driver, stream, Work::Nothing)? {
            Some(completion) => State::Recorded(completion),
            None => State::New,
        },
    };
    if let Some(event) = driver.events.get_mut(&handle) {
        event.state = state;
    }
    Ok(())
}

/// Whether the recorded work is done.
pub fn query(handle: u64) -> Result {
    match recorded(&mut *driver()?, handle)? {
        Some(completion) if completion.at().is_none() => Err(Code::NOT_READY),
        _ => Ok(()),
    }
}

/// Waits for the recorded work.
pub fn synchronize(handle: u64) -> Result {
    let mut locked = driver()?;
    let completion = recorded(&mut locked, handle)?;
    let context = event(&locked, handle)?.context;
    drop(locked);
    completion.iter().for_each(|completion| completion.wait());
    driver()?.healthy(context).map(drop)
}

/// Makes a stream wait for the recorded work.
pub fn wait(stream: u64, handle: u64, flags: u32) -> Result {
    let mut driver = driver()?;
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    usable(&driver, stream)?;
    let key = streams::key(&driver, stream)?;
    match &event(&driver, handle)?.state {
        State::Captured(membership) => {
            let membership = membership.clone();
            capture::join(&mut driver, key, membership)
        }
        State::Recorded(completion) => {
            let completion = completion.clone();
            if driver.streams[&key].capture.is_some() {
                return capture::isolation(&mut driver, key);
            }
            streams::submit_after(&mut driver, stream, Work::Nothing, vec![completion]).map(drop)
        }
        State::New => Ok(()),
    }
}
