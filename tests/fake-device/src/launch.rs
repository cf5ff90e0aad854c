//! Kernel launches: geometry, arguments, and what a launch may wait for.

use std::ffi::{c_int, c_void};
use std::sync::Arc;

use crate::call;
use crate::callers;
use crate::devices::{Preamble, machine};
use crate::driver::{Driver, Kind, dangling, driver};
use crate::error::{Code, Result};
use crate::kernels::{self, Kernel, Launch};
use crate::modules::of_multiprocessor;
use crate::report::violation;
use crate::streams::{self, usable};
use crate::work::Work;

/// A launch's geometry.
pub struct Grid {
    /// Blocks along x, y, z.
    pub blocks: [u32; 3],
    /// Threads of a block along x, y, z.
    pub threads: [u32; 3],
    /// Bytes of dynamic shared memory.
    pub shared: u32,
}

/// Checks a grid.
fn check(grid: &Grid, dynamic_shared: u32) -> Result {
    let Grid {
        blocks,
        threads,
        shared,
    } = grid;
    let product: u64 = threads.iter().map(|&n| u64::from(n)).product();
    let good_blocks = blocks.iter().all(|&n| n > 0)
        && blocks[0] <= i32::MAX as u32
        && blocks[1..].iter().all(|&n| n < 65536);
    let good_threads = (1..=1024).contains(&product) && threads[2] <= 64;
    if !good_blocks || !good_threads {
        violation(format!(
            "{blocks:?} blocks of {threads:?} threads cannot be launched"
        ));
        return Err(Code::INVALID_VALUE);
    }
    if *shared > dynamic_shared {
        violation(format!(
            "{shared} bytes of shared memory are more than the {dynamic_shared} opted in to"
        ));
        return Err(Code::INVALID_VALUE);
    }
    Ok(())
}

/// Copies a launch's arguments from either of the two forms.
///
/// # Safety
/// `parameters` is null or has a pointer to each of the kernel's parameters; `extra` is null or a list as the driver
/// documents it, with a buffer of the size that the list says.
unsafe fn arguments(
    kernel: &Kernel,
    preamble: usize,
    parameters: *const *const u8,
    extra: *const *const c_void,
) -> Result<Vec<u8>> {
    let mut bytes = Vec::new();
    if !parameters.is_null() && !extra.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    if !parameters.is_null() {
        let first = (preamble > 0).then_some((preamble, 4));
        let layout = first.iter().chain(kernel.parameters);
        for (index, &(size, align)) in layout.enumerate() {
            bytes.resize(bytes.len().next_multiple_of(align), 0);
            // SAFETY: the caller promises a pointer for each parameter.
            let parameter = unsafe { parameters.add(index).read() };
            if parameter.is_null() {
                return Err(Code::INVALID_VALUE);
            }
            // SAFETY: the caller promises that each pointer leads to a parameter of the kernel's type.
            bytes.extend(unsafe { std::slice::from_raw_parts(parameter, size) });
        }
        return Ok(bytes);
    }
    if extra.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    let (mut buffer, mut size) = (std::ptr::null(), None);
    let mut at = extra;
    let end = machine()?.end_of_arguments;
    loop {
        // SAFETY: the caller promises a list that continues up to its end marker, which has not been reached.
        match unsafe { at.read() } as usize {
            marker if marker == end => break,
            // SAFETY: a buffer marker is followed by the buffer's address.
            1 => buffer = unsafe { at.add(1).read() }.cast::<u8>(),
            // SAFETY: a size marker is followed by a pointer to the size.
            2 => size = Some(unsafe { at.add(1).read().cast::<usize>().read() }),
            _ => return Err(Code::INVALID_VALUE),
        }
        // SAFETY: every marker but the end marker is followed by one value, so the next marker is in the list.
        at = unsafe { at.add(2) };
    }
    let size = size
        .filter(|_| !buffer.is_null())
        .ok_or(Code::INVALID_VALUE)?;
    let wanted = preamble + kernel.argument_bytes();
    if size < wanted || size > wanted.next_multiple_of(8) {
        violation(format!(
            "{} takes {wanted} bytes of arguments, not {size}",
            kernel.name
        ));
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a buffer of `size` bytes, and `size` was checked against `wanted`.
    Ok(unsafe { std::slice::from_raw_parts(buffer, wanted) }.to_vec())
}

/// A function that can be launched.
struct Prepared {
    kernel: &'static Kernel,
    module: u64,
    preamble: Option<&'static Preamble>,
    /// Most blocks of it that are resident on the device if nothing else runs.
    resident: u32,
}

/// Returns the kernel of a function after the checks that the driver makes.
fn prepare(driver: &mut Driver, handle: u64, grid: &Grid, stream: u64) -> Result<Prepared> {
    driver.current()?;
    let function = driver
        .functions
        .get(&handle)
        .ok_or_else(|| dangling(Kind::Function, handle))?;
    check(grid, function.dynamic_shared)?;
    let threads: u32 = grid.threads.iter().product();
    if let Some(most) = function.entry.most_threads.filter(|most| threads > *most) {
        violation(format!("{threads} threads of a kernel compiled for {most}"));
        return Err(Code::INVALID_VALUE);
    }
    let context = function.context;
    if usable(driver, stream)?.context() != context {
        violation("the function and the stream belong to different contexts".into());
        return Err(Code::INVALID_HANDLE);
    }
    let name = &function.entry.name;
    let Some(kernel) = kernels::find(name) else {
        violation(format!(
            "{name} is in the module, but the fake does not know what it does"
        ));
        return Err(Code::NOT_SUPPORTED);
    };
    let preamble = machine()?.preamble.as_ref();
    let preamble = preamble.filter(|_| function.entry.own);
    let wanted = preamble.map_or(0, |preamble| preamble.bytes) + kernel.argument_bytes();
    if function
        .entry
        .parameter_bytes
        .is_some_and(|bytes| bytes != wanted)
    {
        let declared = function.entry.parameter_bytes;
        violation(format!(
            "{name} declares {declared:?} bytes of parameters, not {wanted}"
        ));
    }
    if !function.loaded
        && let Some(stream) = streams::waiting(driver, context)
    {
        violation(format!(
            "the first launch of {name} loads it, which waits for stream {stream:#x}, which can wait for a \
             peer: load functions eagerly"
        ));
    }
    let module = function.module;
    let each = of_multiprocessor(function, threads as c_int, grid.shared as usize)?;
    let resident = (each * machine()?.units) as u32;
    if let Some(function) = driver.functions.get_mut(&handle) {
        function.loaded = true;
    }
    Ok(Prepared {
        kernel,
        module,
        preamble,
        resident,
    })
}

/// Launches a function. The arguments are a pointer to each parameter, or a list that names a buffer with all of them.
///
/// # Safety
/// `parameters` is null or has a pointer to each of the kernel's parameters; `extra` is null or a list as the vendor
/// documents it, with a buffer of the size that the list says.
pub unsafe fn kernel(
    function: u64,
    grid: Grid,
    stream: u64,
    parameters: *const *const u8,
    extra: *const *const c_void,
) -> Result {
    callers::record();
    let mut driver = driver()?;
    let Prepared {
        kernel,
        module,
        preamble,
        resident,
    } = prepare(&mut driver, function, &grid, stream)?;
    let ahead = preamble.map_or(0, |preamble| preamble.bytes);
    // SAFETY: this function's caller makes the promises that `arguments` asks for.
    let mut arguments = unsafe { arguments(kernel, ahead, parameters, extra) }?;
    let own = arguments.split_off(ahead);
    if let Some(wrong) = preamble.and_then(|preamble| (preamble.check)(&arguments, &grid)) {
        violation(format!("{}: {wrong}", kernel.name));
        return Err(Code::INVALID_VALUE);
    }
    let Grid {
        blocks,
        threads,
        shared,
    } = grid;
    let launch = Launch {
        kernel,
        arguments: own,
        blocks,
        threads,
        shared,
        module,
        resident,
    };
    streams::submit(&mut driver, stream, Work::Kernel(Arc::new(launch)))?;
    call::launched(kernel.name);
    Ok(())
}
