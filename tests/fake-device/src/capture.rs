//! Stream capture: work becomes nodes of a graph, and calls that the driver forbids meanwhile fail.

use std::collections::BTreeSet;
use std::ffi::c_int;
use std::thread::ThreadId;

use crate::call::{put, put_optional};
use crate::driver::{Driver, Kind, driver, new_handle};
use crate::error::{Code, Result};
use crate::graphs::{Graph, Node};
use crate::report::violation;
use crate::streams::{key, usable};
use crate::work::Work;

const GLOBAL: u32 = 0;
const THREAD_LOCAL: u32 = 1;
const RELAXED: u32 = 2;

/// A capture under way.
pub(crate) struct Capture {
    origin: u64,
    mode: u32,
    thread: ThreadId,
    nodes: Vec<Node>,
    invalid: bool,
}

/// The position of a stream or an event in a capture: the nodes that the next node comes after.
#[derive(Clone)]
pub(crate) struct Membership {
    pub capture: u64,
    after: Vec<usize>,
}

/// Invalidates a capture: its streams fail with `STREAM_CAPTURE_INVALIDATED` until it is ended.
pub(crate) fn invalidate(driver: &mut Driver, capture: u64) {
    if let Some(capture) = driver.captures.get_mut(&capture) {
        violation(format!(
            "the capture on stream {:#x} is invalidated by this call",
            capture.origin
        ));
        capture.invalid = true;
    }
}

/// Fails unless the capture of a stream or an event is still valid.
pub(crate) fn valid(driver: &Driver, membership: &Membership) -> Result {
    match driver.captures.get(&membership.capture) {
        Some(capture) if !capture.invalid => Ok(()),
        _ => Err(Code::STREAM_CAPTURE_INVALIDATED),
    }
}

/// Refuses a call that is unsafe under capture and invalidates the captures it affects: global captures of every
/// thread, thread-local captures of this thread.
pub(crate) fn forbid(driver: &mut Driver) -> Result {
    let here = std::thread::current().id();
    let hit = |c: &Capture| c.mode == GLOBAL || c.mode == THREAD_LOCAL && c.thread == here;
    let spoilt: Vec<u64> = driver
        .captures
        .iter()
        .filter(|(_, c)| hit(c))
        .map(|(id, _)| *id)
        .collect();
    spoilt
        .iter()
        .for_each(|capture| invalidate(driver, *capture));
    if spoilt.is_empty() {
        Ok(())
    } else {
        Err(Code::STREAM_CAPTURE_UNSUPPORTED)
    }
}

/// Refuses a call on a stream that captures.
pub(crate) fn forbid_on(driver: &mut Driver, stream: u64) -> Result {
    let Some(membership) = driver.streams[&stream].capture.clone() else {
        return Ok(());
    };
    valid(driver, &membership)?;
    invalidate(driver, membership.capture);
    Err(Code::STREAM_CAPTURE_UNSUPPORTED)
}

/// Refuses, with `code`, a call that would wait for a capturing blocking stream of `context`.
pub(crate) fn forbid_in_context(driver: &mut Driver, context: u64, code: Code) -> Result {
    let all = code == Code::STREAM_CAPTURE_UNSUPPORTED;
    let streams = driver
        .streams
        .values()
        .filter(|s| s.context() == context && (all || s.is_blocking()));
    let spoilt: BTreeSet<u64> = streams
        .filter_map(|s| s.capture.as_ref())
        .map(|m| m.capture)
        .collect();
    spoilt
        .iter()
        .for_each(|capture| invalidate(driver, *capture));
    if spoilt.is_empty() { Ok(()) } else { Err(code) }
}

/// Makes a stream wait for a captured event: the stream joins the capture, or its next node gets one more edge.
pub(crate) fn join(driver: &mut Driver, stream: u64, event: Membership) -> Result {
    valid(driver, &event).map_err(|_| Code::CAPTURED_EVENT)?;
    let Some(target) = driver.streams.get_mut(&stream) else {
        return Err(Code::INVALID_HANDLE);
    };
    let default = target.is_default();
    match &mut target.capture {
        Some(own) if own.capture == event.capture => {
            own.after.extend(event.after);
            own.after.sort_unstable();
            own.after.dedup();
            Ok(())
        }
        Some(own) => {
            let own = own.capture;
            invalidate(driver, own);
            invalidate(driver, event.capture);
            Err(Code::STREAM_CAPTURE_MERGE)
        }
        None if default => {
            invalidate(driver, event.capture);
            Err(Code::STREAM_CAPTURE_IMPLICIT)
        }
        none => {
            *none = Some(event);
            Ok(())
        }
    }
}

/// Invalidates the capture of a stream that was asked to wait for work outside of it.
pub(crate) fn isolation(driver: &mut Driver, stream: u64) -> Result {
    if let Some(membership) = driver.streams[&stream].capture.clone() {
        valid(driver, &membership)?;
        invalidate(driver, membership.capture);
    }
    Err(Code::STREAM_CAPTURE_ISOLATION)
}

/// Adds a node behind the nodes that the stream has captured.
pub(crate) fn add(driver: &mut Driver, stream: u64, work: Work) -> Result {
    let Some(target) = driver.streams.get_mut(&stream) else {
        return Err(Code::INVALID_HANDLE);
    };
    let Some(membership) = &mut target.capture else {
        return Err(Code::ILLEGAL_STATE);
    };
    let capture = driver
        .captures
        .get_mut(&membership.capture)
        .filter(|capture| !capture.invalid);
    let capture = capture.ok_or(Code::STREAM_CAPTURE_INVALIDATED)?;
    let after = std::mem::replace(&mut membership.after, vec![capture.nodes.len()]);
    capture.nodes.push(Node { work, after });
    Ok(())
}

fn end(driver: &mut Driver, stream: u64) -> Result<Vec<Node>> {
    let membership = driver.streams[&stream]
        .capture
        .clone()
        .ok_or(Code::ILLEGAL_STATE)?;
    let id = membership.capture;
    let capture = driver.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?;
    if capture.origin != stream {
        violation(format!(
            "the capture was begun on stream {:#x}",
            capture.origin
        ));
        return Err(Code::STREAM_CAPTURE_UNMATCHED);
    }
    if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
        violation("the capture was begun by another thread".into());
        return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
    }
    for stream in driver.streams.values_mut() {
        if stream.capture.as_ref().is_some_and(|m| m.capture == id) {
            stream.capture = None;
        }
    }
    let capture = driver.captures.remove(&id).ok_or(Code::ILLEGAL_STATE)?;
    if capture.invalid {
        return Err(Code::STREAM_CAPTURE_INVALIDATED);
    }
    // Every node must come before the end of the origin stream: walk back from there.
    let mut reached = BTreeSet::new();
    let mut open = membership.after;
    while let Some(node) = open.pop() {
        if reached.insert(node) {
            open.extend(&capture.nodes[node].after);
        }
    }
    if reached.len() < capture.nodes.len() {
        violation("a stream that joined the capture was not joined back".into());
        return Err(Code::STREAM_CAPTURE_UNJOINED);
    }
    Ok(capture.nodes)
}

/// Begins a capture on a stream.
pub fn begin(handle: u64, mode: u32) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    let key = key(&driver, handle)?;
    if mode > RELAXED {
        return Err(Code::INVALID_VALUE);
    }
    let stream = usable(&driver, handle)?;
    if stream.is_default() {
        violation("the legacy stream cannot be captured".into());
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    if stream.capture.is_some() {
        violation("the stream captures already".into());
        return Err(Code::ILLEGAL_STATE);
    }
    let id = new_handle(Kind::Graph);
    let thread = std::thread::current().id();
    driver.captures.insert(
        id,
        Capture {
            origin: key,
            mode,
            thread,
            nodes: Vec::new(),
            invalid: false,
        },
    );
    if let Some(stream) = driver.streams.get_mut(&key) {
        stream.capture = Some(Membership {
            capture: id,
            after: Vec::new(),
        });
    }
    Ok(())
}

/// Ends a capture and returns its graph.
pub fn end_capture(handle: u64, out: Option<&mut u64>) -> Result {
    let mut driver = driver()?;
    let key = key(&driver, handle)?;
    let out = out.ok_or(Code::INVALID_VALUE)?;
    *out = 0;
    let nodes = end(&mut driver, key)?;
    let graph = new_handle(Kind::Graph);
    driver.graphs.insert(graph, Graph { nodes });
    *out = graph;
    Ok(())
}

/// Returns a stream's capture status: 0 none, 1 active, 2 invalidated.
pub fn is_capturing(handle: u64, out: Option<&mut c_int>) -> Result {
    let mut driver = driver()?;
    let key = key(&driver, handle)?;
    let context = usable(&driver, handle)?.context();
    if driver.streams[&key].is_default() {
        forbid_in_context(&mut driver, context, Code::STREAM_CAPTURE_IMPLICIT)?;
    }
    put(
        out,
        match &driver.streams[&key].capture {
            None => 0,
            Some(membership) => {
                if valid(&driver, membership).is_ok() {
                    1
                } else {
                    2
                }
            }
        },
    )
}

/// Like [`is_capturing`], and also returns a number that identifies the capture.
pub fn info(handle: u64, status: Option<&mut c_int>, id: Option<&mut u64>) -> Result {
    let driver = driver()?;
    let key = key(&driver, handle)?;
    let membership = driver.streams[&key].capture.as_ref();
    put_optional(
        id,
        membership.map_or(0, |membership| membership.capture & 0xffff_ffff_ffff),
    );
    put(
        status,
        match membership {
            None => 0,
            Some(membership) => {
                if valid(&driver, membership).is_ok() {
                    1
                } else {
                    2
                }
            }
        },
    )
}
