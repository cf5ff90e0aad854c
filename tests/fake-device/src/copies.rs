//! Copies and fills, either ordered on a stream or blocking.

use crate::capture;
use crate::driver::{Driver, Kind, dangling, driver};
use crate::error::{Code, Result};
use crate::memory::Engine;
use crate::report::violation;
use crate::streams::{self, usable};
use crate::work::{Rows, Work};

/// The kind of memory that a parameter of a copy accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// Memory that the driver knows.
    Device,
    /// Host memory of any kind.
    Host,
    /// Either; the address decides.
    Any,
}

fn check(driver: &Driver, address: u64, bytes: u64, context: u64, side: Side) -> Result {
    let wrong = match driver.memory.find(address) {
        None if side == Side::Device => {
            Some(format!("{address:#x} is not memory that the driver knows"))
        }
        Some(range) if side == Side::Host && !range.is_host() => Some(format!(
            "{address:#x} is device memory, passed as host memory"
        )),
        _ => driver.resolve(address, bytes, context, Engine::Copy).err(),
    };
    wrong.map_or(Ok(()), |wrong| {
        violation(wrong);
        Err(Code::INVALID_VALUE)
    })
}

/// Copies on `stream`. Waits for the end if `blocking`, or if the destination is pageable memory.
///
/// # Safety
/// Host memory is valid for `bytes`, until the copy has run.
pub unsafe fn copy(
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
        // SAFETY: the source is the caller's pageable memory, and the caller promises `bytes` there. The driver takes
        // such bytes before it returns, so the caller may reuse them at once.
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

/// The widest stride of a row copy in bytes, as devices report it.
const MOST_STRIDE: usize = i32::MAX as usize;

/// Copies rows of `bytes` bytes each on `stream`. `to` and `from` give address, stride and side.
pub fn copy_rows(
    to: (u64, usize, Side),
    from: (u64, usize, Side),
    bytes: usize,
    rows: usize,
    stream: u64,
) -> Result {
    let mut locked = driver()?;
    locked.current()?;
    if bytes == 0 || rows == 0 {
        return Ok(());
    }
    for (address, stride, _) in [to, from] {
        if !(bytes..=MOST_STRIDE).contains(&stride) {
            violation(format!(
                "rows of {bytes} bytes at {address:#x} are {stride} bytes apart"
            ));
            return Err(Code::INVALID_VALUE);
        }
    }
    let work = Rows {
        destination: to.0,
        destination_stride: to.1 as u64,
        source: from.0,
        source_stride: from.1 as u64,
        bytes: bytes as u64,
        rows: rows as u64,
    };
    let context = usable(&locked, stream)?.context();
    for ((address, _, side), (_, length)) in [to, from].into_iter().zip(work.ranges()) {
        // The driver would read pageable memory at once; no caller needs that for rows.
        let side = if side == Side::Any && locked.memory.find(address).is_none() {
            Side::Device
        } else {
            side
        };
        check(&locked, address, length, context, side)?;
    }
    streams::submit(&mut locked, stream, Work::CopyRows(work)).map(drop)
}

/// Writes `count` elements of `width` bytes on `stream`. Waits for the end if `blocking`.
pub fn fill(
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

/// Copies between the memory of two contexts.
pub fn copy_between(to: (u64, u64), from: (u64, u64), bytes: usize, stream: u64) -> Result {
    let locked = driver()?;
    for (_, context) in [to, from] {
        let found = locked.contexts.get(&context);
        found.ok_or_else(|| dangling(Kind::Context, context))?;
    }
    drop(locked);
    // SAFETY: both sides are device memory, so no host pointer is used.
    unsafe {
        copy(
            (to.0, Side::Device),
            (from.0, Side::Device),
            bytes,
            stream,
            false,
        )
    }
}
