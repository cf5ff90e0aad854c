//! The release that this runtime stands for, and the functions that came after the first release.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::sync::LazyLock;

use fake_device::call::base_name;

/// Returns a release's number: 7.1 is 701.
pub(crate) const fn of(major: u32, minor: u32) -> u32 {
    major * 100 + minor
}

/// Release that added uncached device memory (`hipDeviceMallocUncached`).
pub(crate) const UNCACHED: u32 = of(5, 5);
/// Release that added uncached VMM memory (`hipMemAllocationTypeUncached`).
pub(crate) const UNCACHED_TYPE: u32 = of(7, 2);
/// Release from which virtual memory management works on Linux. 5.2 has the functions, which do nothing.
pub(crate) const VIRTUAL_MEMORY: u32 = of(6, 0);
/// Release from which a shareable handle is imported by value; before, by a pointer to it.
pub(crate) const IMPORT_BY_VALUE: u32 = of(7, 1);
/// Release from which `hipMemRetainAllocationHandle` reads through a null pointer for memory that is not mapped.
pub(crate) const RETAIN_CRASHES: u32 = of(6, 2);
/// Release from which `hipMemRetainAllocationHandle` handles that case and adds a reference.
pub(crate) const RETAIN_HOLDS: u32 = of(7, 14);
/// Release that added copies between devices without compute units (`hipMemcpyDeviceToDeviceNoCU`).
pub(crate) const COPY_WITHOUT_UNITS: u32 = of(6, 1);
/// Release from which `hipMemoryType` starts with "unregistered"; before, with the host.
pub(crate) const MEMORY_TYPES: u32 = of(6, 0);
/// Release from which `hipInit` without a device reports no device (100); 5.2.3 returns 101.
pub(crate) const INIT_SAYS_NO_DEVICE: u32 = of(6, 0);

/// Returns the release: `FAKE_HIP_RELEASE`, else the one of the library's file name (`.so.5` is 5.2, `.so.6` 6.4), else
/// 7.1.
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

/// Returns the version as `hipRuntimeGetVersion` reports it: `HIP_VERSION` of the headers.
pub(crate) fn number() -> c_int {
    let (major, minor) = (release() / 100, release() % 100);
    (major * 10_000_000 + minor * 100_000 + 25_000) as c_int
}

/// Returns the release that added a function, if it was not in the first.
pub(crate) fn since(symbol: &str) -> Option<u32> {
    let lines = include_str!("../symbols").lines();
    let mut entries = lines.filter_map(|line| line.split_once(' '));
    let (_, release) = entries.find(|(name, _)| *name == base_name(symbol))?;
    parse(release)
}

/// Returns the file name that this library was opened by.
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
    // SAFETY: dladdr accepts any address and fills a struct of this layout.
    if unsafe { dladdr(here, &raw mut found) } == 0 || found.file.is_null() {
        return String::new();
    }
    // SAFETY: the name is zero-terminated and lives as long as the library is loaded.
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
