//! The program's side of a backend's table.

use super::abi::*;
use super::failure::{CallResult, Failure, read_text};
use super::load_error::LoadError;
use super::table::{ABI_MAJOR, BackendTable, MAGIC};
use super::trait_tables::{
    CollectivesTable, DeviceTable, GemmTable, MulticastTable, NcclCollectivesTable,
    RemoteAccessTable, SignalsTable, SymmetricMemoryTable,
};
use std::mem::{MaybeUninit, offset_of};

/// Copies of a backend's tables, in this build's layout.
#[derive(Clone, Copy)]
pub struct Tables {
    pub(super) root: BackendTable,
    pub(super) device: DeviceTable,
    pub(super) symmetric_memory: SymmetricMemoryTable,
    pub(super) remote_access: RemoteAccessTable,
    pub(super) signals: SignalsTable,
    pub(super) collectives: CollectivesTable,
    pub(super) nccl_collectives: NcclCollectivesTable,
    pub(super) gemm: GemmTable,
    pub(super) multicast: MulticastTable,
}

/// A device opened through a backend's table.
pub struct PluginBackend {
    tables: Tables,
    instance: Instance,
}

// SAFETY: `Implementation` requires the instance's type to be `Send`.
unsafe impl Send for PluginBackend {}
// SAFETY: `Implementation` requires the instance's type to be `Sync`.
unsafe impl Sync for PluginBackend {}

impl Tables {
    /// Checks a table and copies it, together with the tables that it points to.
    ///
    /// # Errors
    /// Returns a [`LoadError`] that says what is wrong: null, the magic bytes, the major version or the size.
    ///
    /// # Safety
    /// `table` is null or points to at least a table's first fields, and to a whole table of the size that it states
    /// if the magic matches. The table and what it points to live as long as the program.
    pub unsafe fn read(table: *const BackendTable) -> Result<Self, LoadError> {
        if table.is_null() {
            return Err(LoadError::NoTable);
        }
        // SAFETY: the first fields exist, as this function requires.
        let (magic, major, size) =
            unsafe { ((*table).magic, (*table).abi_major, (*table).size as usize) };
        if magic != MAGIC {
            return Err(LoadError::WrongMagic { found: magic });
        }
        if major != ABI_MAJOR {
            return Err(LoadError::WrongMajor {
                found: major,
                expected: ABI_MAJOR,
            });
        }
        // The whole table of ABI 1.0, of which `multicast` is the last field; no shorter one was released.
        let least = offset_of!(BackendTable, multicast) + size_of::<*const ()>();
        if size < least {
            return Err(LoadError::Truncated { found: size, least });
        }
        // SAFETY: the table has at least the fields of ABI 1.0. Fields that a later minor version appends read as
        // null in a shorter table, which is valid for them. Each trait's table is copied by the size that it states.
        unsafe {
            let mut root = MaybeUninit::<BackendTable>::zeroed();
            let bytes = size.min(size_of::<BackendTable>());
            root.as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(table.cast(), bytes);
            let root = root.assume_init();
            Ok(Self {
                root,
                device: DeviceTable::copy(root.device),
                symmetric_memory: SymmetricMemoryTable::copy(root.symmetric_memory),
                remote_access: RemoteAccessTable::copy(root.remote_access),
                signals: SignalsTable::copy(root.signals),
                collectives: CollectivesTable::copy(root.collectives),
                nccl_collectives: NcclCollectivesTable::copy(root.nccl_collectives),
                gemm: GemmTable::copy(root.gemm),
                multicast: MulticastTable::copy(root.multicast),
            })
        }
    }

    /// Returns the backend's name.
    pub fn name(&self) -> String {
        self.root.name()
    }

    /// Returns the version of the crate that the backend was built from.
    pub fn build(&self) -> String {
        read_text(&self.root.build)
    }

    /// Returns the number of devices.
    ///
    /// # Errors
    /// Returns the reason why the backend cannot start.
    pub fn device_count(&self) -> CallResult<u32> {
        let mut count = 0;
        let Some(entry) = self.root.device_count else {
            return Err(self.missing_entry("device_count"));
        };
        // SAFETY: `count` is writable.
        let status = unsafe { entry(&raw mut count) };
        self.finish(status, "device_count", || count)
    }

    /// Describes a device without opening it.
    ///
    /// # Errors
    /// Returns the backend's own failure.
    pub fn describe_device(&self, ordinal: u32) -> CallResult<DeviceDescription> {
        let mut out = MaybeUninit::uninit();
        let Some(entry) = self.root.describe_device else {
            return Err(self.missing_entry("describe_device"));
        };
        // SAFETY: `out` is writable.
        let status = unsafe { entry(ordinal, out.as_mut_ptr()) };
        // SAFETY: an entry that returns OK has written its result.
        self.finish(status, "describe_device", || unsafe { out.assume_init() })
    }

    /// Returns lines of `key=value` about the libraries that the backend found.
    ///
    /// # Errors
    /// Returns the backend's own failure.
    pub fn describe_libraries(&self) -> CallResult<String> {
        let mut buffer = vec![0; 64 * 1024];
        let mut length = 0;
        let Some(entry) = self.root.describe_libraries else {
            return Err(self.missing_entry("describe_libraries"));
        };
        // SAFETY: the buffer has as many writable bytes as the call states.
        let status = unsafe { entry(buffer.as_mut_ptr(), buffer.len() as u64, &raw mut length) };
        self.finish(status, "describe_libraries", || {
            buffer.truncate(length as usize);
            String::from_utf8_lossy(&buffer).into_owned()
        })
    }

    /// Opens a device.
    ///
    /// # Errors
    /// Returns the backend's own failure.
    pub fn open(&self, options: &OpenOptions) -> CallResult<PluginBackend> {
        let mut instance: Instance = std::ptr::null();
        let (Some(entry), Some(_)) = (self.root.open, self.root.close) else {
            return Err(self.missing_entry("open"));
        };
        // SAFETY: `options` is readable and `instance` is writable.
        let status = unsafe { entry(options, &raw mut instance) };
        self.finish(status, "open", || PluginBackend {
            tables: *self,
            instance,
        })
    }

    fn missing_entry(&self, entry: &str) -> Failure {
        Failure::new(
            Status::UNSUPPORTED,
            entry,
            format!(
                "backend `{}` (build {}) is older than this program and lacks the call; use the plugin file of this \
                 program's symmem release",
                self.name(),
                self.build()
            ),
        )
    }

    fn finish<T>(&self, status: Status, call: &str, value: impl FnOnce() -> T) -> CallResult<T> {
        if status == Status::OK {
            return Ok(value());
        }
        let mut record = FailureRecord {
            status,
            vendor_code: 0,
            call: [0; 64],
            message: [0; 952],
        };
        if let Some(entry) = self.root.last_failure {
            // SAFETY: `record` is writable.
            unsafe { entry(&raw mut record) };
        }
        let mut failure = Failure::from_record(&record);
        failure.status = status;
        if failure.call.is_empty() {
            failure.call = call.into();
        }
        Err(failure)
    }
}

impl PluginBackend {
    pub(super) fn tables(&self) -> &Tables {
        &self.tables
    }

    pub(super) fn instance(&self) -> Instance {
        self.instance
    }

    pub(super) fn missing_entry(&self, entry: &str) -> Failure {
        self.tables.missing_entry(entry)
    }

    pub(super) fn finish<T>(
        &self,
        status: Status,
        call: &str,
        value: impl FnOnce() -> T,
    ) -> CallResult<T> {
        self.tables.finish(status, call, value)
    }
}

impl Drop for PluginBackend {
    fn drop(&mut self) {
        if let Some(close) = self.tables.root.close {
            // SAFETY: `open` created the instance, and nothing uses it after this.
            unsafe { close(self.instance) };
        }
    }
}
