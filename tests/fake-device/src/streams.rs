//! Streams: ordered work, each stream on its own thread.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::call::{lock, put};
use crate::capture::{self, Membership};
use crate::driver::{Driver, Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::work::{Condition, Runner, Work};
use crate::{call, contexts};

/// The completion of a piece of work, which others may wait for.
#[derive(Default)]
pub(crate) struct Completion {
    at: Mutex<Option<Instant>>,
    wake: Condvar,
}

impl Completion {
    /// Marks the work as done.
    pub fn finish(&self) {
        *lock(&self.at) = Some(Instant::now());
        self.wake.notify_all();
    }

    /// Returns when the work was done, if it is.
    pub fn at(&self) -> Option<Instant> {
        *lock(&self.at)
    }

    /// Waits until the work is done.
    pub fn wait(&self) {
        let mut at = lock(&self.at);
        while at.is_none() {
            at = self.wake.wait(at).unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_unless(&self, dead: &AtomicBool) {
        let mut at = lock(&self.at);
        while at.is_none() && !dead.load(Ordering::Acquire) {
            let waited = self.wake.wait_timeout(at, Duration::from_millis(5));
            at = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[derive(Clone)]
struct Item {
    after: Vec<Arc<Completion>>,
    work: Work,
    done: Arc<Completion>,
}

#[derive(Default)]
struct Items {
    /// Unfinished items; the front one runs first.
    unfinished: VecDeque<Item>,
    last: Option<Arc<Completion>>,
    closed: bool,
}

/// A stream's work and its state.
struct Queue {
    items: Mutex<Items>,
    wake: Condvar,
    runner: Runner,
}

impl Queue {
    fn push(&self, after: Vec<Arc<Completion>>, work: Work) -> Arc<Completion> {
        let done = Arc::new(Completion::default());
        let mut items = lock(&self.items);
        items.unfinished.push_back(Item {
            after,
            work,
            done: done.clone(),
        });
        items.last = Some(done.clone());
        self.wake.notify_all();
        done
    }

    fn last(&self) -> Option<Arc<Completion>> {
        lock(&self.items)
            .last
            .clone()
            .filter(|last| last.at().is_none())
    }

    /// The thread's main function: runs items in order until the stream is closed and empty.
    fn run(&self) {
        loop {
            let mut items = lock(&self.items);
            let item = loop {
                if let Some(item) = items.unfinished.front() {
                    break item.clone();
                }
                if items.closed {
                    return;
                }
                items = self
                    .wake
                    .wait(items)
                    .unwrap_or_else(PoisonError::into_inner);
            };
            drop(items);
            let dead = &self.runner.dead;
            item.after.iter().for_each(|other| other.wait_unless(dead));
            if !dead.load(Ordering::Acquire)
                && let Err(code) = item.work.run(&self.runner)
                && !dead.load(Ordering::Acquire)
            {
                // A kernel that fails loses its context.
                contexts::lose(self.runner.context, code);
            }
            lock(&self.items).unfinished.pop_front();
            item.done.finish();
        }
    }
}

/// A stream.
pub(crate) struct Stream {
    queue: Arc<Queue>,
    non_blocking: bool,
    default: bool,
    pub capture: Option<Membership>,
}

impl Stream {
    pub fn context(&self) -> u64 {
        self.queue.runner.context
    }

    pub fn is_default(&self) -> bool {
        self.default
    }

    /// Whether this stream and the legacy stream wait for each other.
    pub fn is_blocking(&self) -> bool {
        !self.non_blocking && !self.default
    }

    /// Lets the thread end once its work is done.
    pub fn close(&self) {
        lock(&self.queue.items).closed = true;
        self.queue.wake.notify_all();
    }

    fn create(
        handle: u64,
        context: u64,
        dead: Arc<AtomicBool>,
        non_blocking: bool,
        default: bool,
    ) -> Result<Self> {
        let runner = Runner {
            context,
            stream: handle,
            branch: 0,
            dead,
        };
        let queue = Arc::new(Queue {
            items: Mutex::default(),
            wake: Condvar::new(),
            runner,
        });
        let worker = queue.clone();
        std::thread::Builder::new()
            .name("fake-stream".into())
            .spawn(move || {
                call::set_place(format!("stream {handle:#x}"));
                worker.run();
            })
            .map_err(|_| Code::OUT_OF_MEMORY)?;
        Ok(Self {
            queue,
            non_blocking,
            default,
            capture: None,
        })
    }
}

/// Creates the legacy stream of a context that is being made.
pub(crate) fn create_default(
    driver: &mut Driver,
    context: u64,
    dead: Arc<AtomicBool>,
) -> Result<u64> {
    let handle = new_handle(Kind::Stream);
    driver
        .streams
        .insert(handle, Stream::create(handle, context, dead, false, true)?);
    Ok(handle)
}

/// Returns the stream of a handle. 0 and 1 are the current context's legacy stream.
pub(crate) fn key(driver: &Driver, handle: u64) -> Result<u64> {
    match handle {
        0 | 1 => Ok(driver.healthy(driver.current()?)?.default_stream),
        // The driver has the per-thread stream; symmem must not use it by accident.
        2 => Err(Code::NOT_SUPPORTED),
        handle if driver.streams.contains_key(&handle) => Ok(handle),
        handle => Err(dangling(Kind::Stream, handle)),
    }
}

/// Returns the stream of a handle, if it can take work.
pub(crate) fn usable(driver: &Driver, handle: u64) -> Result<&Stream> {
    let stream = &driver.streams[&key(driver, handle)?];
    driver.healthy(stream.context())?;
    Ok(stream)
}

/// Puts work on a stream, or adds it to the graph that the stream captures. Returns `None` during a capture.
pub(crate) fn submit(
    driver: &mut Driver,
    handle: u64,
    work: Work,
) -> Result<Option<Arc<Completion>>> {
    submit_after(driver, handle, work, Vec::new())
}

/// Like [`submit`], once `after` is done.
pub(crate) fn submit_after(
    driver: &mut Driver,
    handle: u64,
    work: Work,
    mut after: Vec<Arc<Completion>>,
) -> Result<Option<Arc<Completion>>> {
    driver.current()?;
    let key = key(driver, handle)?;
    let context = usable(driver, handle)?.context();
    if driver.streams[&key].capture.is_some() {
        capture::add(driver, key, work)?;
        return Ok(None);
    }
    let default = driver.healthy(context)?.default_stream;
    if key == default {
        capture::forbid_in_context(driver, context, Code::STREAM_CAPTURE_IMPLICIT)?;
        let blocking = driver
            .streams
            .values()
            .filter(|s| s.is_blocking() && s.context() == context);
        after.extend(blocking.filter_map(|stream| stream.queue.last()));
    } else if driver.streams[&key].is_blocking() {
        after.extend(driver.streams[&default].queue.last());
    }
    Ok(Some(driver.streams[&key].queue.push(after, work)))
}

/// Returns the last work of each stream of a context.
pub(crate) fn pending(driver: &Driver, context: u64) -> Vec<Arc<Completion>> {
    let streams = driver
        .streams
        .values()
        .filter(|stream| stream.context() == context);
    streams.filter_map(|stream| stream.queue.last()).collect()
}

/// Returns a stream that has unfinished work for which `which` holds.
fn unfinished(driver: &Driver, which: impl Fn(&Stream, &Work) -> bool) -> Option<u64> {
    let busy = |stream: &Stream| {
        lock(&stream.queue.items)
            .unfinished
            .iter()
            .any(|item| which(stream, &item.work))
    };
    driver
        .streams
        .iter()
        .find(|(_, stream)| busy(stream))
        .map(|(handle, _)| *handle)
}

/// Reports unfinished work that uses memory that is being taken away.
pub(crate) fn report_use(driver: &Driver, base: u64, bytes: u64, verb: &str) {
    let touches = |&(at, length): &(u64, u64)| at < base + bytes && base < at + length;
    if let Some(stream) = unfinished(driver, |_, work| work.ranges().iter().any(touches)) {
        violation(format!(
            "{base:#x} is {verb} while work on stream {stream:#x} uses it"
        ));
    }
}

/// Reports a call that waits for the context's work while some of that work can wait for a peer.
pub(crate) fn report_waits(driver: &Driver, context: u64) {
    if let Some(stream) = waiting(driver, context) {
        violation(format!(
            "this call waits for stream {stream:#x}, which can wait for a peer"
        ));
    }
}

/// Returns a stream of the context with unfinished work that can wait for a peer.
pub(crate) fn waiting(driver: &Driver, context: u64) -> Option<u64> {
    unfinished(driver, |stream, work| {
        stream.context() == context && work.can_wait()
    })
}

/// Reports unfinished work that runs kernels of a module that is being unloaded.
pub(crate) fn report_module_use(driver: &Driver, module: u64) {
    if let Some(stream) = unfinished(driver, |_, work| work.uses_module(module)) {
        violation(format!(
            "the module is unloaded while stream {stream:#x} runs a kernel of it"
        ));
    }
}

/// Creates a stream. Flag 1 makes it independent of the legacy stream.
pub fn create(out: Option<&mut u64>, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    if flags > 1 || out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let handle = new_handle(Kind::Stream);
    let dead = driver.healthy(context)?.dead.clone();
    driver.streams.insert(
        handle,
        Stream::create(handle, context, dead, flags == 1, false)?,
    );
    put(out, handle)
}

fn condition(flags: u32) -> Result<Condition> {
    // Bit 30 requests a flush of remote writes first, which has no meaning here.
    Ok(match flags & !(1 << 30) {
        0 => Condition::Reached,
        1 => Condition::Equal,
        2 => Condition::And,
        3 => Condition::Nor,
        _ => return Err(Code::INVALID_VALUE),
    })
}

fn value_operation(stream: u64, address: u64, work: Work) -> Result {
    let mut driver = driver()?;
    let context = usable(&driver, stream)?.context();
    if !address.is_multiple_of(4) {
        violation(format!(
            "the word at {address:#x} is not aligned to 4 bytes"
        ));
        return Err(Code::INVALID_VALUE);
    }
    if let Err(why) = driver.resolve(address, 4, context, Engine::Kernel) {
        violation(why);
        return Err(Code::INVALID_VALUE);
    }
    submit(&mut driver, stream, work).map(drop)
}

/// Destroys a stream.
pub fn destroy(handle: u64) -> Result {
    let mut driver = driver()?;
    let stream = driver.streams.get(&handle).filter(|stream| !stream.default);
    let stream = stream.ok_or_else(|| dangling(Kind::Stream, handle))?;
    if stream.capture.is_some() {
        violation("a capturing stream is destroyed".into());
        return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
    }
    let context = stream.context();
    if stream.queue.last().is_some() && driver.healthy(context).is_ok() {
        violation(format!(
            "stream {handle:#x} is destroyed with unfinished work"
        ));
    }
    stream.close();
    driver.streams.remove(&handle);
    driver.healthy(context).map(drop)
}

/// Returns the context of a stream.
pub fn context(handle: u64, out: Option<&mut u64>) -> Result {
    put(out, usable(&*driver()?, handle)?.context())
}

/// Returns whether a stream's work is done.
pub fn query(handle: u64) -> Result {
    let mut driver = driver()?;
    let key = key(&driver, handle)?;
    usable(&driver, handle)?;
    capture::forbid_on(&mut driver, key)?;
    capture::forbid(&mut driver)?;
    if driver.streams[&key].queue.last().is_some() {
        Err(Code::NOT_READY)
    } else {
        Ok(())
    }
}

/// Waits for a stream's work.
pub fn synchronize(handle: u64) -> Result {
    let mut locked = driver()?;
    let key = key(&locked, handle)?;
    let context = usable(&locked, handle)?.context();
    capture::forbid_on(&mut locked, key)?;
    capture::forbid(&mut locked)?;
    let last = locked.streams[&key].queue.last();
    drop(locked);
    last.iter().for_each(|work| work.wait());
    driver()?.healthy(context).map(drop)
}

/// Makes a stream write a word.
pub fn write_value(stream: u64, address: u64, value: u32, flags: u32) -> Result {
    if flags > 1 {
        return Err(Code::INVALID_VALUE);
    }
    value_operation(stream, address, Work::WriteValue { address, value })
}

/// Makes a stream wait for a word.
pub fn wait_value(stream: u64, address: u64, value: u32, flags: u32) -> Result {
    let condition = condition(flags)?;
    value_operation(
        stream,
        address,
        Work::WaitValue {
            address,
            value,
            condition,
        },
    )
}
