//! A UCP context: the devices and transports of this process, and its registered memory.

use crate::environment;
use crate::failure::{Failure, Result, check};
use crate::library::Library;
use crate::lock::{Held, Lock};
use crate::memory::Memory;
use crate::table::{self, ContextParameters, Handle, Table};
use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_void};
use std::ptr;
use std::sync::{Arc, Mutex, PoisonError};

/// Options of a [`Context`]. What is `None` comes from the `UCX_*` environment variables, or is UCX's default.
#[derive(Clone, Debug, Default)]
pub struct Config {
    /// Transports, as in `UCX_TLS`: for example `tcp,self` or `rc,self`.
    pub tls: Option<String>,
    /// Network devices, as in `UCX_NET_DEVICES`: for example `mlx5_0:1,mlx5_1:1` or `eth0`.
    pub net_devices: Option<String>,
    /// Other options: the name of a `UCX_*` variable without that prefix, and its value.
    pub options: Vec<(String, String)>,
    /// The number of peers that are going to be connected, if known: UCX picks transports that scale to it.
    pub peers: Option<usize>,
}

/// A UCP context. Workers and registered memory keep it open.
#[derive(Clone)]
pub struct Context(pub(crate) Arc<ContextShared>);

pub(crate) struct ContextShared {
    pub library: Library,
    pub handle: Handle,
    /// Held during every call that concerns this context or its workers.
    pub lock: Lock,
    /// Registered memory by address.
    pub registered: Mutex<BTreeMap<usize, Registration>>,
}

/// Memory that is registered.
#[derive(Clone, Copy)]
pub(crate) struct Registration {
    pub bytes: usize,
    pub handle: Handle,
    /// Whether it is the host's, and not a device's.
    pub host: bool,
}

// SAFETY: the handles are only passed to UCX under `lock`, and UCX accepts calls of any thread, one at a time.
unsafe impl Send for ContextShared {}
// SAFETY: as above.
unsafe impl Sync for ContextShared {}

impl Context {
    /// Opens a context with one-sided transfers and active messages. Blocks while UCX looks
    /// for devices: some milliseconds, or more with many devices.
    ///
    /// # Errors
    /// A name or value that UCX does not know; no usable transport or device.
    pub fn new(library: &Library, config: &Config) -> Result<Self> {
        let table = library.table();
        let mut settings = Settings::read(table)?;
        if let Some(tls) = &config.tls {
            settings.modify("TLS", tls)?;
        }
        if let Some(devices) = &config.net_devices {
            settings.modify("NET_DEVICES", devices)?;
        }
        for (name, value) in &config.options {
            settings.modify(name, value)?;
        }
        let parameters = ContextParameters {
            field_mask: 1 | 1 << 5 | 1 << 6 | 1 << 8,
            features: table::FEATURES,
            request_size: 0,
            request_init: ptr::null(),
            request_cleanup: ptr::null(),
            tag_sender_mask: 0,
            mt_workers_shared: 0,
            estimated_num_eps: config.peers.unwrap_or(1),
            estimated_num_ppn: 0,
            name: c"symmem".as_ptr(),
        };
        let mut handle = ptr::null_mut();
        // Modules of transports read the environment when they are loaded, which happens here.
        let status = environment::with_options(|| {
            // SAFETY: the parameters have the layout of 1.13, the version named; the configuration is open.
            unsafe {
                (table.ucp_init_version)(
                    1,
                    13,
                    &raw const parameters,
                    settings.handle,
                    &raw mut handle,
                )
            }
        });
        check(table, "ucp_init", status)?;
        Ok(Self(Arc::new(ContextShared {
            library: library.clone(),
            handle,
            lock: Lock::new(),
            registered: Mutex::default(),
        })))
    }

    /// Registers memory for one-sided access by peers, and as a source and destination without a registration per
    /// transfer. Blocks while the pages are pinned, if a network device needs that; calls of workers of this context
    /// wait.
    ///
    /// # Errors
    /// No device can register this memory.
    ///
    /// # Safety
    /// The memory stays mapped until the [`Memory`] is dropped and no peer accesses it any more, and only raw pointers
    /// refer to it meanwhile: peers write it.
    pub unsafe fn register(&self, address: *mut u8, bytes: usize) -> Result<Memory> {
        // SAFETY: the same conditions.
        unsafe { Memory::register(&self.0, address, bytes) }
    }

    /// Returns the transports and devices that UCX found, such as `self/memory tcp/eth0`. Empty if this version of UCX
    /// cannot tell.
    pub fn transports(&self) -> String {
        let _held = self.0.lock.take();
        let Some(print) = self.0.table().ucp_context_print_info else {
            return String::new();
        };
        // SAFETY: the stream is open during the call and takes what UCX prints.
        let text = printed(|stream| unsafe { print(self.0.handle, stream) });
        // "#      resource 4  :  md 1  dev 3  flags -- tcp/eth0"
        let resources = text
            .lines()
            .filter(|line| line.contains("resource"))
            .filter_map(|line| line.split_whitespace().last())
            .filter(|name| name.contains('/'));
        resources.collect::<Vec<_>>().join(" ")
    }
}

impl ContextShared {
    pub fn table(&self) -> &Table {
        self.library.table()
    }

    pub fn take(&self) -> Held<'_> {
        self.lock.take()
    }

    /// Returns the registered memory that has all these bytes.
    pub fn registration(&self, address: usize, bytes: usize) -> Option<Registration> {
        let registered = self
            .registered
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        let (&start, &memory) = registered.range(..=address).next_back()?;
        let offset = address - start;
        (offset <= memory.bytes && bytes <= memory.bytes - offset).then_some(memory)
    }
}

impl Drop for ContextShared {
    fn drop(&mut self) {
        let _held = self.lock.take();
        // SAFETY: workers and memory hold this structure, so there are none left.
        unsafe { (self.library.table().ucp_cleanup)(self.handle) }
    }
}

/// `ucp_config_t`.
struct Settings<'a> {
    table: &'a Table,
    handle: Handle,
}

impl<'a> Settings<'a> {
    /// Reads the `UCX_*` variables.
    fn read(table: &'a Table) -> Result<Self> {
        let mut handle = ptr::null_mut();
        // SAFETY: null asks for the prefix `UCX_` and no file; the result is writable.
        let status = unsafe { (table.ucp_config_read)(ptr::null(), ptr::null(), &raw mut handle) };
        check(table, "ucp_config_read", status)?;
        Ok(Self { table, handle })
    }

    fn modify(&mut self, name: &str, value: &str) -> Result<()> {
        const CALL: &str = "ucp_config_modify";
        let text = |text: &str| {
            CString::new(text)
                .map_err(|_| Failure::refused(CALL, format!("UCX_{name} has a zero byte")))
        };
        let (c_name, c_value) = (text(name)?, text(value)?);
        // SAFETY: the configuration is open and both texts end with a zero byte.
        let status = unsafe {
            (self.table.ucp_config_modify)(self.handle, c_name.as_ptr(), c_value.as_ptr())
        };
        check(self.table, CALL, status).map_err(|mut failure| {
            failure.text = format!("UCX_{name}={value}: {}", failure.text);
            failure
        })
    }
}

impl Drop for Settings<'_> {
    fn drop(&mut self) {
        // SAFETY: the configuration is open, and nothing refers to it any more.
        unsafe { (self.table.ucp_config_release)(self.handle) }
    }
}

unsafe extern "C" {
    fn open_memstream(text: *mut *mut c_char, bytes: *mut usize) -> *mut c_void;
    fn fclose(stream: *mut c_void) -> i32;
    fn free(address: *mut c_void);
}

/// Returns what a function prints to a C stream.
fn printed(print: impl FnOnce(*mut c_void)) -> String {
    let (mut text, mut bytes) = (ptr::null_mut(), 0);
    // SAFETY: both results stay where they are until the stream is closed.
    let stream = unsafe { open_memstream(&raw mut text, &raw mut bytes) };
    if stream.is_null() {
        return String::new();
    }
    print(stream);
    // SAFETY: the stream is open, and is not used afterwards.
    unsafe { fclose(stream) };
    if text.is_null() {
        return String::new();
    }
    // SAFETY: closing the stream has stored the text's address and length.
    let slice = unsafe { std::slice::from_raw_parts(text.cast::<u8>(), bytes) };
    let owned = String::from_utf8_lossy(slice).into_owned();
    // SAFETY: the text belongs to the caller of `open_memstream`, and was copied.
    unsafe { free(text.cast()) };
    owned
}
