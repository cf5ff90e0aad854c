//! Finds the file that code was loaded from, for reports.

use std::ffi::c_void;
use std::path::PathBuf;

/// Returns the file that the code at `address` was mapped from.
pub fn file_of(address: *const c_void) -> Option<PathBuf> {
    mapped_file(
        &std::fs::read_to_string("/proc/self/maps").ok()?,
        address as u64,
    )
}

/// Finds `address` in the text of `/proc/<pid>/maps`.
fn mapped_file(maps: &str, address: u64) -> Option<PathBuf> {
    maps.lines().find_map(|line| {
        // start-end permissions offset device inode path
        let mut fields = line.splitn(6, ' ');
        let (start, end) = fields.next()?.split_once('-')?;
        let range = u64::from_str_radix(start, 16).ok()?..u64::from_str_radix(end, 16).ok()?;
        let path = fields.nth(4)?.trim_start();
        (range.contains(&address) && path.starts_with('/')).then(|| path.into())
    })
}

// Miri isolates files.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    #[test]
    fn an_address_is_traced_to_its_file() {
        let maps = "\
7f00-8000 r-xp 00000000 08:01 42   /usr/lib/lib with space.so.1
8000-9000 rw-p 00000000 00:00 0 \n9000-a000 rw-p 00000000 00:00 0   [heap]\n";
        let file = PathBuf::from("/usr/lib/lib with space.so.1");
        assert_eq!(mapped_file(maps, 0x7f10), Some(file));
        assert_eq!(mapped_file(maps, 0x8000), None);
        assert_eq!(mapped_file(maps, 0x9000), None);
    }

    #[test]
    fn this_very_function_is_in_this_very_program() {
        let here = this_very_function_is_in_this_very_program as *const c_void;
        let program = std::env::current_exe().and_then(std::fs::canonicalize).ok();
        assert_eq!(file_of(here), program);
    }
}
