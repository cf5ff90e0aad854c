//! Copies and fills, ordered on a stream or waited for.

use crate::call::api;
use crate::capture;
use crate::driver::{Driver, Kind, dangling, driver};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::streams::{self, usable};
use crate::work::Work;

/// What a parameter of a copy has to be.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    /// Memory that the driver knows.
    Device,
    /// Host memory of any kind.
    Host,
    /// Either: the address tells.
    Any,
}

fn check(driver: &Driver, address: u64, bytes: u64, context: u64, side: Side) -> Result {
    let wrong = match driver.memory.find(address) {
        None if side == Side::Device => {
            Some(format!("{address:#x} is not memory that the driver knows"))
        }
        Some(range) if side == Side::Host && !range.is_host() => Some(format!(
            "{address:#x} is device memory, meant as the host's"
        )),
        _ => driver.resolve(address, bytes, context, Engine::Copy).err(),
    };
    wrong.map_or(Ok(()), |wrong| {
        violation(wrong);
        Err(Code::INVALID_VALUE)
    })
}

/// Copy on `stream`; with `blocking`, and also where the bytes go to pageable memory, until done.
///
/// # Safety
/// Host memory is valid for `bytes`, until the copy has run.
unsafe fn copy(
    to: (u64, Side),
    from: (u64, Side),
    bytes: usize,
    stream: u64,
    blocking: bool,
) -> Result {
    let mut locked = driver()?;
    locked.current()?;
    if blocking {
        capture::forbid(&mut locked)?;
    }
    if bytes == 0 {
        return Ok(());
    }
    let (length, key) = (bytes as u64, streams::key(&locked, stream)?);
    let context = usable(&locked, stream)?.context();
    let capturing = locked.streams[&key].capture.is_some();
    check(&locked, to.0, length, context, to.1)?;
    check(&locked, from.0, length, context, from.1)?;
    let pageable = |address: u64| locked.memory.find(address).is_none();
    let (staged, wait) = (
        pageable(from.0) && !capturing,
        blocking || pageable(to.0) && !capturing,
    );
    let work = if staged {
        // SAFETY: the source is pageable memory of the caller's, who promises `bytes` there. The
        // driver takes such bytes before it returns, so the caller may reuse them at once.
        let data = unsafe { std::slice::from_raw_parts(from.0 as *const u8, bytes) };
        Work::Write {
            destination: to.0,
            data: data.into(),
        }
    } else {
        Work::Copy {
            destination: to.0,
            source: from.0,
            bytes: length,
        }
    };
    let end = streams::submit(&mut locked, stream, work)?;
    drop(locked);
    if let Some(end) = end.filter(|_| wait) {
        end.wait();
        driver()?.healthy(context)?;
    }
    Ok(())
}

fn fill(
    address: u64,
    value: u32,
    width: usize,
    count: usize,
    stream: u64,
    blocking: bool,
) -> Result {
    let mut locked = driver()?;
    locked.current()?;
    if blocking {
        capture::forbid(&mut locked)?;
    }
    if !address.is_multiple_of(width as u64) {
        return Err(Code::INVALID_VALUE);
    }
    if count == 0 {
        return Ok(());
    }
    let context = usable(&locked, stream)?.context();
    check(
        &locked,
        address,
        (width * count) as u64,
        context,
        Side::Device,
    )?;
    let work = Work::Fill {
        address,
        value,
        width,
        count: count as u64,
    };
    let end = streams::submit(&mut locked, stream, work)?;
    drop(locked);
    if let Some(end) = end.filter(|_| blocking) {
        end.wait();
        driver()?.healthy(context)?;
    }
    Ok(())
}

api! { unsafe;
    fn [cuMemcpyHtoD_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Side::Device), (from, Side::Host), bytes, 0, true) }
    }
    fn [cuMemcpyDtoH_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Side::Host), (from, Side::Device), bytes, 0, true) }
    }
    fn [cuMemcpyDtoD_v2](to: u64, from: u64, bytes: usize) {
        // SAFETY: no host memory takes part.
        unsafe { copy((to, Side::Device), (from, Side::Device), bytes, 0, true) }
    }
    fn [cuMemcpy](to: u64, from: u64, bytes: usize) {
        // SAFETY: the caller promises the host memory, if any takes part.
        unsafe { copy((to, Side::Any), (from, Side::Any), bytes, 0, true) }
    }
    fn [cuMemcpyHtoDAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Side::Device), (from, Side::Host), bytes, stream, false) }
    }
    fn [cuMemcpyDtoHAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory.
        unsafe { copy((to, Side::Host), (from, Side::Device), bytes, stream, false) }
    }
    fn [cuMemcpyAsync](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: the caller promises the host memory, if any takes part.
        unsafe { copy((to, Side::Any), (from, Side::Any), bytes, stream, false) }
    }
    fn [cuMemcpyDtoDAsync_v2](to: u64, from: u64, bytes: usize, stream: u64) {
        // SAFETY: no host memory takes part.
        unsafe { copy((to, Side::Device), (from, Side::Device), bytes, stream, false) }
    }
    fn [cuMemcpyPeerAsync](
        to: u64, to_context: u64, from: u64, from_context: u64, bytes: usize, stream: u64,
    ) {
        let locked = driver()?;
        for context in [to_context, from_context] {
            locked.contexts.get(&context).ok_or_else(|| dangling(Kind::Context, context))?;
        }
        drop(locked);
        // SAFETY: no host memory takes part.
        unsafe { copy((to, Side::Device), (from, Side::Device), bytes, stream, false) }
    }
}
api! {
    fn [cuMemsetD8_v2](address: u64, value: u8, count: usize) { fill(address, value.into(), 1, count, 0, true) }
    fn [cuMemsetD32_v2](address: u64, value: u32, count: usize) { fill(address, value, 4, count, 0, true) }
    fn [cuMemsetD8Async](address: u64, value: u8, count: usize, stream: u64) {
        fill(address, value.into(), 1, count, stream, false)
    }
    fn [cuMemsetD32Async](address: u64, value: u32, count: usize, stream: u64) {
        fill(address, value, 4, count, stream, false)
    }
}
