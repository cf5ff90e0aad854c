//! The program's side of a backend's table.

use super::abi::*;
use super::cross::Cross;
use super::failure::{CallResult, Failure, read_text};
use super::pointers::Pointers;
use super::table::{ABI_MAJOR, ABI_MINOR, BackendTable, MAGIC};
use super::table_error::TableError;
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
    /// Checks a linked backend's table and copies it, together with the tables that it points to.
    ///
    /// # Errors
    /// Returns a [`TableError`] that says what is wrong: null, the magic bytes, the major version or a size.
    ///
    /// # Safety
    /// `table` is null or points to a whole table of the size that it states, and so do the pointers in it. The table
    /// and what it points to live as long as the program.
    pub unsafe fn read(table: *const BackendTable) -> Result<Self, TableError> {
        // SAFETY: this function's conditions allow every pointer to be followed.
        unsafe { Self::read_checked(table, &Pointers::Trusted) }
    }

    /// Checks a table and its pointers, and copies it, together with the tables that it points to.
    ///
    /// # Errors
    /// As [`Tables::read`], and if `pointers` does not allow an address.
    ///
    /// # Safety
    /// What `pointers` allows can be read, and lives as long as the program if it is a table's.
    pub(super) unsafe fn read_checked(
        table: *const BackendTable,
        pointers: &Pointers,
    ) -> Result<Self, TableError> {
        const PART: &str = "backend";
        if table.is_null() {
            return Err(TableError::Null);
        }
        // The fields up to the name are in every version.
        pointers.readable(PART, table, offset_of!(BackendTable, name))?;
        // SAFETY: these fields are readable.
        let (magic, major, minor, size) = unsafe {
            (
                (*table).magic,
                (*table).abi_major,
                (*table).abi_minor,
                (*table).size as usize,
            )
        };
        if magic != MAGIC {
            return Err(TableError::WrongMagic { found: magic });
        }
        if major != ABI_MAJOR {
            return Err(TableError::WrongMajor {
                found: major,
                expected: ABI_MAJOR,
            });
        }
        // The whole table of ABI 1.0, of which `selector_row` is the last field; no shorter one was released.
        let least = offset_of!(BackendTable, selector_row) + size_of::<*const ()>();
        if size < least {
            return Err(TableError::Truncated {
                part: PART,
                found: size as u64,
                least: least as u64,
            });
        }
        let same_minor = minor == ABI_MINOR;
        if same_minor && size != size_of::<BackendTable>() {
            return Err(TableError::OtherSize {
                part: PART,
                found: size as u64,
                expected: size_of::<BackendTable>() as u64,
            });
        }
        pointers.readable(PART, table, size)?;
        // SAFETY: the table is readable for the size that it states, which is at least that of ABI 1.0. Fields that a
        // later minor version appends read as null in a shorter table, which is valid for them.
        let root = unsafe {
            let mut root = MaybeUninit::<BackendTable>::zeroed();
            let bytes = size.min(size_of::<BackendTable>());
            root.as_mut_ptr()
                .cast::<u8>()
                .copy_from_nonoverlapping(table.cast(), bytes);
            root.assume_init()
        };
        for (entry, function) in [
            ("device_count", root.device_count.map(|f| f as *const ())),
            ("describe_device", root.describe_device.map(|f| f as _)),
            (
                "describe_libraries",
                root.describe_libraries.map(|f| f as _),
            ),
            ("open", root.open.map(|f| f as _)),
            ("close", root.close.map(|f| f as _)),
            ("last_failure", root.last_failure.map(|f| f as _)),
            ("selector_row", root.selector_row.map(|f| f as _)),
        ] {
            pointers.executable(PART, entry, function)?;
        }
        // SAFETY: each trait's table is copied by the size that it states, after a check of its pointers.
        unsafe {
            Ok(Self {
                root,
                device: DeviceTable::copy(root.device, pointers, same_minor)?,
                symmetric_memory: SymmetricMemoryTable::copy(
                    root.symmetric_memory,
                    pointers,
                    same_minor,
                )?,
                remote_access: RemoteAccessTable::copy(root.remote_access, pointers, same_minor)?,
                signals: SignalsTable::copy(root.signals, pointers, same_minor)?,
                collectives: CollectivesTable::copy(root.collectives, pointers, same_minor)?,
                nccl_collectives: NcclCollectivesTable::copy(
                    root.nccl_collectives,
                    pointers,
                    same_minor,
                )?,
                gemm: GemmTable::copy(root.gemm, pointers, same_minor)?,
                multicast: MulticastTable::copy(root.multicast, pointers, same_minor)?,
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

    /// Returns row `index` of the selector table of this backend's devices, or `None` past the last row.
    ///
    /// # Errors
    /// Returns the backend's own failure; [`Status::UNSUPPORTED`] if the plugin is older than this call.
    pub fn selector_row(&self, index: u32) -> CallResult<Option<CollectiveRow>> {
        const NAME: &str = "selector_row";
        let mut row = CollectiveRow::default();
        let Some(entry) = self.root.selector_row else {
            return Err(self.missing_entry(NAME));
        };
        // SAFETY: `row` is writable.
        let status = unsafe { entry(index, &raw mut row) };
        self.finish(status, NAME, || row)
            // SAFETY: a row has no pointers.
            .and_then(|row| unsafe { Option::<CollectiveRow>::from_c(row, NAME) })
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
