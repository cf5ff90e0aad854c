//! Modules and the functions in them.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_int};

use crate::call::{put, put_optional};
use crate::capture;
use crate::devices::{machine, physical};
use crate::driver::{Driver, Kind, dangling, driver, new_handle};
use crate::error::{Code, Result};
use crate::kernels;
use crate::streams;

/// A kernel in an image.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Entry {
    /// Its name.
    pub name: String,
    /// Whether it is one of symmem's own kernels, which a vendor's runtime may launch with a preamble.
    pub own: bool,
    /// Offset and size in bytes of each parameter, if the image says so.
    pub parameters: Option<Vec<(usize, usize)>>,
    /// Most threads of a block that it is compiled for, if the image says so.
    pub most_threads: Option<u32>,
    /// Bytes of static shared memory, if the image says so.
    pub shared_bytes: u32,
}

impl Entry {
    /// Returns the bytes of its parameters, to the end of the last, if the image says so.
    pub fn parameter_bytes(&self) -> Option<usize> {
        let ends = self.parameters.iter().flatten();
        let last = ends.map(|(offset, size)| offset + size).max();
        self.parameters.as_ref().map(|_| last.unwrap_or(0))
    }
}

/// A loaded module.
pub(crate) struct Module {
    pub context: u64,
    entries: Vec<Entry>,
    functions: BTreeMap<String, u64>,
}

/// A function of a module.
pub(crate) struct Function {
    pub context: u64,
    pub module: u64,
    pub entry: Entry,
    /// Most bytes of dynamic shared memory that a launch may ask for.
    pub dynamic_shared: u32,
    /// Whether its code is on the device. If not, the first launch loads it, which waits for the device.
    pub loaded: bool,
}

/// Loads a module with the kernels that its image contains.
pub fn load(out: Option<&mut u64>, read: impl FnOnce() -> Result<Vec<Entry>>) -> Result {
    let mut driver = driver()?;
    let context = driver.current()?;
    capture::forbid(&mut driver)?;
    if out.is_none() {
        return Err(Code::INVALID_VALUE);
    }
    let entries = read()?;
    let handle = new_handle(Kind::Module);
    driver.modules.insert(
        handle,
        Module {
            context,
            entries,
            functions: BTreeMap::new(),
        },
    );
    put(out, handle)
}

fn function(driver: &mut Driver, handle: u64) -> Result<&mut Function> {
    driver.current()?;
    driver
        .functions
        .get_mut(&handle)
        .ok_or_else(|| dangling(Kind::Function, handle))
}

/// Unloads a module.
pub fn unload(handle: u64) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    capture::forbid(&mut driver)?;
    let context = driver
        .modules
        .get(&handle)
        .ok_or_else(|| dangling(Kind::Module, handle))?
        .context;
    streams::report_module_use(&driver, handle);
    streams::report_waits(&driver, context);
    driver.modules.remove(&handle);
    driver
        .functions
        .retain(|_, function| function.module != handle);
    Ok(())
}

/// Changes an attribute of a function.
pub fn set_attribute(handle: u64, attribute: u32, value: c_int) -> Result {
    let mut driver = driver()?;
    let function = function(&mut driver, handle)?;
    match attribute {
        8 => {
            let value = u32::try_from(value).map_err(|_| Code::INVALID_VALUE)?;
            if value > machine()?.shared.limit {
                return Err(Code::INVALID_VALUE);
            }
            function.dynamic_shared = value;
            Ok(())
        }
        // The preferred carve-out is a hint.
        9 if (-1..=100).contains(&value) => Ok(()),
        _ => Err(Code::INVALID_VALUE),
    }
}

/// Returns an attribute of a function.
pub fn attribute(out: Option<&mut c_int>, attribute: u32, handle: u64) -> Result {
    let mut driver = driver()?;
    let function = function(&mut driver, handle)?;
    put(
        out,
        match attribute {
            0 => function.entry.most_threads.unwrap_or(1024) as c_int,
            1 => function.entry.shared_bytes as c_int,
            2 | 3 => 0,
            4 => 32,
            5 | 6 => machine()?.architecture,
            7 => 0,
            8 => function.dynamic_shared as c_int,
            9 => -1,
            _ => return Err(Code::INVALID_VALUE),
        },
    )
}

/// Returns offset and size of parameter `index` of a function: what its image says, or what its kernel takes.
pub fn parameter(
    offset: Option<&mut usize>,
    size: Option<&mut usize>,
    index: usize,
    handle: u64,
) -> Result {
    let mut driver = driver()?;
    let entry = &function(&mut driver, handle)?.entry;
    let known = || kernels::find(&entry.name).map(|kernel| kernel.layout().collect());
    let parameters = entry.parameters.clone().or_else(known);
    let parameters = parameters.ok_or(Code::NOT_SUPPORTED)?;
    let &(at, bytes) = parameters.get(index).ok_or(Code::INVALID_VALUE)?;
    put_optional(size, bytes);
    put(offset, at)
}

/// Loads a function onto the device.
pub fn load_function(handle: u64) -> Result {
    let mut locked = driver()?;
    let module = function(&mut locked, handle)?.module;
    if !function(&mut locked, handle)?.loaded {
        let context = locked
            .modules
            .get(&module)
            .map_or(0, |module| module.context);
        streams::report_waits(&locked, context);
    }
    function(&mut locked, handle)?.loaded = true;
    Ok(())
}

/// Returns whether a function is on the device.
pub fn is_loaded(state: Option<&mut c_int>, handle: u64) -> Result {
    put(
        state,
        c_int::from(function(&mut *driver()?, handle)?.loaded),
    )
}

/// Returns how many blocks of a function are co-resident on a multiprocessor.
pub fn occupancy(
    blocks: Option<&mut c_int>,
    handle: u64,
    threads: c_int,
    dynamic_shared: usize,
) -> Result {
    let mut driver = driver()?;
    let function = function(&mut driver, handle)?;
    put(
        blocks,
        of_multiprocessor(function, threads, dynamic_shared)?,
    )
}

/// Returns the physical device of a function's context.
pub fn device(handle: u64) -> Result<usize> {
    let mut driver = driver()?;
    let context = function(&mut driver, handle)?.context;
    let context = driver.contexts.get(&context);
    Ok(physical(context.ok_or(Code::INVALID_CONTEXT)?.device))
}

/// Returns how many blocks of a function are co-resident on a multiprocessor.
pub(crate) fn of_multiprocessor(
    function: &Function,
    threads: c_int,
    dynamic_shared: usize,
) -> Result<c_int> {
    let (most, used) = (function.dynamic_shared, function.entry.shared_bytes);
    if !(1..=1024).contains(&threads) || dynamic_shared > most as usize {
        return Ok(0);
    }
    // A multiprocessor runs at most 2048 threads and 32 blocks.
    let by_threads = 2048 / threads;
    let shared = &machine()?.shared;
    let own = u64::from(shared.of_each_block) + u64::from(used);
    let wanted = (dynamic_shared as u64 + own).max(1);
    let by_shared = u64::from(shared.of_multiprocessor) / wanted;
    Ok(by_threads.min(32).min(by_shared.min(32) as c_int))
}

/// Returns a function of a module by its name.
///
/// # Safety
/// Host pointers and arrays are valid for the lengths that go with them.
pub unsafe fn find_function(out: Option<&mut u64>, module: u64, name: *const c_char) -> Result {
    let mut driver = driver()?;
    driver.current()?;
    if name.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the caller promises a zero-terminated name.
    let name = unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned();
    let found = driver
        .modules
        .get_mut(&module)
        .ok_or_else(|| dangling(Kind::Module, module))?;
    let entry = found
        .entries
        .iter()
        .find(|entry| entry.name == name)
        .cloned()
        .ok_or(Code::NOT_FOUND)?;
    let context = found.context;
    let handle = *found
        .functions
        .entry(name)
        .or_insert_with(|| new_handle(Kind::Function));
    driver.functions.entry(handle).or_insert(Function {
        context,
        module,
        entry,
        dynamic_shared: machine()?.shared.by_default,
        loaded: machine()?.eager_loading,
    });
    put(out, handle)
}
