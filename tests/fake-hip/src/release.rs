//! Which release of the runtime this is, and which functions came after the first.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::LazyLock;

use fake_device::call::base_name;

/// A release: 7.1 is 701.
pub(crate) const fn of(major: u32, minor: u32) -> u32 {
    major * 100 + minor
}

/// Device memory that nobody caches came with 5.5 (`hipDeviceMallocUncached`).
pub(crate) const UNCACHED: u32 = of(5, 5);
/// The same for memory without addresses (`hipMemAllocationTypeUncached`).
pub(crate) const UNCACHED_TYPE: u32 = of(7, 2);
/// Virtual memory management works on Linux from 6.0 on; 5.2 has the functions, which do nothing.
pub(crate) const VIRTUAL_MEMORY: u32 = of(6, 0);
/// A shareable handle is imported by its value from 7.1 on, and from a pointer to it before.
pub(crate) const IMPORT_BY_VALUE: u32 = of(7, 1);
/// From 6.2 on `hipMemRetainAllocationHandle` reads through a null pointer for memory that is not mapped.
pub(crate) const RETAIN_CRASHES: u32 = of(6, 2);
/// From 7.14 on it answers there too, and what it gives is held.
pub(crate) const RETAIN_HOLDS: u32 = of(7, 14);
/// From 6.1 on a copy between devices can be kept off the compute units (`hipMemcpyDeviceToDeviceNoCU`).
pub(crate) const COPY_WITHOUT_UNITS: u32 = of(6, 1);
/// `hipMemoryType` starts with "unregistered" from 6.0 on; before, with the host.
pub(crate) const MEMORY_TYPES: u32 = of(6, 0);
/// Without a device `hipInit` says so from 6.0 on; 5.2.3 says 101.
pub(crate) const INIT_SAYS_NO_DEVICE: u32 = of(6, 0);

/// The release: `FAKE_HIP_RELEASE`, or else what the library's name has (`.so.5` is 5.2, `.so.6` 6.4),
/// or else 7.1.
pub(crate) fn release() -> u32 {
    static RELEASE: LazyLock<u32> = LazyLock::new(|| {
        let named = std::env::var("FAKE_HIP_RELEASE").ok();
        if let Some(release) = named.as_deref().and_then(parse) {
            return release;
        }
        match own_name().rsplit_once(".so.").map(|(_, number)| number) {
            Some("5") => of(5, 2),
            Some("6") => of(6, 4),
            _ => of(7, 1),
        }
    });
    *RELEASE
}

fn parse(text: &str) -> Option<u32> {
    let (major, minor) = text.split_once('.')?;
    Some(of(major.parse().ok()?, minor.parse().ok()?))
}

/// As `hipRuntimeGetVersion` has it: `HIP_VERSION` of the headers.
pub(crate) fn number() -> c_int {
    let (major, minor) = (release() / 100, release() % 100);
    (major * 10_000_000 + minor * 100_000 + 25_000) as c_int
}

/// The release that a function came with, if not the first.
pub(crate) fn since(symbol: &str) -> Option<u32> {
    let lines = include_str!("../symbols").lines();
    let mut entries = lines.filter_map(|line| line.split_once(' '));
    let (_, release) = entries.find(|(name, _)| *name == base_name(symbol))?;
    parse(release)
}

/// The file that this library was opened as.
fn own_name() -> String {
    /// `Dl_info`.
    #[repr(C)]
    struct Found {
        file: *const c_char,
        base: *mut c_void,
        symbol: *const c_char,
        address: *mut c_void,
    }
    unsafe extern "C" {
        fn dladdr(address: *const c_void, found: *mut Found) -> c_int;
    }
    let mut found = Found {
        file: std::ptr::null(),
        base: std::ptr::null_mut(),
        symbol: std::ptr::null(),
        address: std::ptr::null_mut(),
    };
    let here = own_name as *const c_void;
    // SAFETY: dladdr takes any address and fills the struct of its own layout.
    if unsafe { dladdr(here, &raw mut found) } == 0 || found.file.is_null() {
        return String::new();
    }
    // SAFETY: a zero-terminated name, which lives as long as the library is loaded.
    let name = unsafe { CStr::from_ptr(found.file) };
    name.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_is_as_old_as_its_symbol() {
        assert_eq!(since("hipGraphUpload"), Some(of(5, 3)));
        assert_eq!(since("hipEventRecordWithFlags"), Some(of(6, 4)));
        assert_eq!(since("hipMalloc"), None);
    }

    #[test]
    fn a_release_is_read_from_its_name() {
        assert_eq!(parse("7.1"), Some(701));
        assert_eq!(parse("seven"), None);
    }
}
