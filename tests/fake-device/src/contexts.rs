//! Primary contexts: references, each thread's current context, peers, and lost contexts.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::call::{put, put_optional};
use crate::devices::{device, reaches};
use crate::driver::{Driver, Kind, dangling, driver, initialized, new_handle, state, take};
use crate::error::{Code, Result};
use crate::report::violation;
use crate::{capture, memory, streams};

/// A device's primary context.
pub(crate) struct Context {
    pub device: usize,
    references: u32,
    /// Whether it was created implicitly by the first use of its device and is never released.
    pub implicit: bool,
    /// The error that lost this context.
    pub lost: Option<Code>,
    /// Ordinals of the devices whose allocations this context may access.
    pub peers: BTreeSet<usize>,
    /// The legacy stream.
    pub default_stream: u64,
    /// Set once the context is lost or released: work still running on its streams gives up.
    pub dead: Arc<AtomicBool>,
}

thread_local! {
    static STACK: RefCell<Vec<u64>> = const { RefCell::new(Vec::new()) };
}

/// Returns this thread's context in whatever state; 0 if it has none.
pub(crate) fn top() -> u64 {
    STACK.with(|stack| stack.borrow().last().copied().unwrap_or(0))
}

impl Driver {
    /// Returns this thread's context, which is retained and not lost.
    pub fn current(&self) -> Result<u64> {
        match top() {
            0 => Err(Code::INVALID_CONTEXT),
            context => self.healthy(context).map(|_| context),
        }
    }

    /// Returns a context that is retained and not lost.
    pub fn healthy(&self, context: u64) -> Result<&Context> {
        let found = self
            .contexts
            .get(&context)
            .ok_or_else(|| dangling(Kind::Context, context))?;
        found.lost.map_or(Ok(found), Err)
    }
}

/// Marks `context` as lost: every later call in it fails with `code`.
pub(crate) fn lose(context: u64, code: Code) {
    if let Some(context) = state().contexts.get_mut(&context) {
        context.lost.get_or_insert(code);
        context.dead.store(true, Ordering::Release);
    }
}

/// Marks this thread's context as lost, if it has one.
pub(crate) fn lose_current(code: Code) {
    lose(top(), code);
}

/// Makes a context this thread's current one.
pub fn set_current(context: u64) -> Result {
    let driver = driver()?;
    if context != 0 && !driver.contexts.contains_key(&context) {
        return Err(dangling(Kind::Context, context));
    }
    STACK.with(|stack| {
        let mut stack = stack.borrow_mut();
        stack.pop();
        if context != 0 {
            stack.push(context);
        }
    });
    Ok(())
}

/// Destroys what is in a primary context, however many references there are. Pinned host memory is not mapped any more.
pub fn reset(ordinal: c_int) -> Result {
    let device = device(ordinal)?;
    let mut driver = driver()?;
    if let Some(&handle) = driver.primary.get(&device) {
        if let Some(context) = driver.contexts.get_mut(&handle) {
            context.lost.get_or_insert(Code::CONTEXT_IS_DESTROYED);
            context.dead.store(true, Ordering::Release);
        }
        memory::drop_host_allocations(&mut driver, handle);
    }
    Ok(())
}

/// Releases a reference to a primary context. Releasing the last one frees everything in the context.
pub fn release(ordinal: c_int) -> Result {
    let device = device(ordinal)?;
    let mut driver = driver()?;
    let Some(&handle) = driver.primary.get(&device) else {
        violation(format!(
            "the primary context of device {device} was not retained"
        ));
        return Err(Code::INVALID_CONTEXT);
    };
    let context = driver
        .contexts
        .get_mut(&handle)
        .ok_or(Code::INVALID_CONTEXT)?;
    context.references -= 1;
    if context.references > 0 {
        return Ok(());
    }
    // The last reference: everything that belongs to the context goes with it. A program that still has something in it
    // has lost count.
    driver.primary.remove(&device);
    let lost = driver.contexts.remove(&handle).is_some_and(|context| {
        context.dead.store(true, Ordering::Release);
        context.lost.is_some()
    });
    let mut dropped = Vec::new();
    let mut count = |kind: Kind, count: usize| {
        if count > 0 {
            dropped.push(format!("{count} {}", kind.name()));
        }
    };
    let gone = take(&mut driver.streams, |stream| stream.context() == handle);
    count(
        Kind::Stream,
        gone.iter().filter(|stream| !stream.is_default()).count(),
    );
    count(
        Kind::Event,
        take(&mut driver.events, |event| event.context == handle).len(),
    );
    count(
        Kind::Module,
        take(&mut driver.modules, |module| module.context == handle).len(),
    );
    driver
        .functions
        .retain(|_, function| function.context != handle);
    for (kind, number) in memory::drop_context(&mut driver, handle) {
        count(kind, number);
    }
    // After an error that lost the context, a program cannot free its objects one by one.
    if !dropped.is_empty() && !lost {
        violation(format!(
            "the last reference to the context went with {} in it",
            dropped.join(", ")
        ));
    }
    drop(driver);
    gone.iter().for_each(|stream| stream.close());
    Ok(())
}

/// Returns a device's implicit context, which the first use of the device creates and nobody releases.
pub fn implicit(ordinal: c_int) -> Result<u64> {
    let device = device(ordinal)?;
    let mut driver = driver()?;
    if let Some(&handle) = driver.primary.get(&device) {
        return Ok(handle);
    }
    create(&mut driver, device, true)
}

fn create(driver: &mut Driver, device: usize, implicit: bool) -> Result<u64> {
    let handle = new_handle(Kind::Context);
    let dead = Arc::new(AtomicBool::new(false));
    let default_stream = streams::create_default(driver, handle, dead.clone())?;
    let context = Context {
        device,
        references: 1,
        implicit,
        lost: None,
        peers: BTreeSet::new(),
        default_stream,
        dead,
    };
    driver.contexts.insert(handle, context);
    driver.primary.insert(device, handle);
    Ok(handle)
}

/// Whether this thread has a context.
pub fn has_current() -> bool {
    top() != 0
}

/// Retains a device's primary context.
pub fn retain(out: Option<&mut u64>, ordinal: c_int) -> Result {
    let device = device(ordinal)?;
    let mut driver = driver()?;
    let handle = match driver.primary.get(&device) {
        Some(&handle) => {
            let context = driver
                .contexts
                .get_mut(&handle)
                .ok_or(Code::INVALID_CONTEXT)?;
            if let Some(code) = context.lost {
                return Err(code);
            }
            context.references += 1;
            handle
        }
        None => create(&mut driver, device, false)?,
    };
    put(out, handle)
}

/// Whether a primary context is retained.
pub fn is_retained(ordinal: c_int, flags: Option<&mut u32>, active: Option<&mut c_int>) -> Result {
    let device = device(ordinal)?;
    put_optional(flags, 0);
    put(active, c_int::from(driver()?.primary.contains_key(&device)))
}

/// Returns this thread's context, or 0.
pub fn current(out: Option<&mut u64>) -> Result {
    initialized()?;
    put(out, top())
}

/// Makes a context this thread's current one until it is popped.
pub fn push(context: u64) -> Result {
    if !driver()?.contexts.contains_key(&context) {
        return Err(dangling(Kind::Context, context));
    }
    STACK.with(|stack| stack.borrow_mut().push(context));
    Ok(())
}

/// Undoes [`push`].
pub fn pop(out: Option<&mut u64>) -> Result {
    initialized()?;
    let context = STACK
        .with(|stack| stack.borrow_mut().pop())
        .ok_or(Code::INVALID_CONTEXT)?;
    put_optional(out, context);
    Ok(())
}

/// Returns the device of this thread's context.
pub fn current_device(out: Option<&mut c_int>) -> Result {
    let driver = driver()?;
    let context = top();
    let found = driver.contexts.get(&context).ok_or(Code::INVALID_CONTEXT)?;
    put(out, found.device as c_int)
}

/// Returns the range of stream priorities.
pub fn priorities(least: Option<&mut c_int>, greatest: Option<&mut c_int>) -> Result {
    driver()?.current()?;
    put_optional(least, 0);
    put_optional(greatest, -5);
    Ok(())
}

/// Waits for all work of this thread's context.
pub fn synchronize() -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    capture::forbid_in_context(&mut driver, context, Code::STREAM_CAPTURE_UNSUPPORTED)?;
    let pending = streams::pending(&driver, context);
    drop(driver);
    pending.iter().for_each(|work| work.wait());
    self::driver()?.current().map(drop)
}

/// Lets this thread's context access the allocations of another.
pub fn enable_peer(peer: u64, flags: u32) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    if flags != 0 {
        return Err(Code::INVALID_VALUE);
    }
    let other = driver.healthy(peer)?.device;
    let context = driver
        .contexts
        .get_mut(&context)
        .ok_or(Code::INVALID_CONTEXT)?;
    if context.device == other {
        return Err(Code::INVALID_DEVICE);
    }
    if !reaches(context.device, other) {
        return Err(Code::PEER_ACCESS_UNSUPPORTED);
    }
    if !context.peers.insert(other) {
        return Err(Code::PEER_ACCESS_ALREADY_ENABLED);
    }
    Ok(())
}

/// Undoes [`enable_peer`].
pub fn disable_peer(peer: u64) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    let other = driver.healthy(peer)?.device;
    let context = driver
        .contexts
        .get_mut(&context)
        .ok_or(Code::INVALID_CONTEXT)?;
    if context.peers.remove(&other) {
        Ok(())
    } else {
        Err(Code::PEER_ACCESS_NOT_ENABLED)
    }
}
