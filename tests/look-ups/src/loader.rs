//! The dynamic loader's own functions, found in its symbols and not by asking for them: whoever asks by name gets
//! those that stand before them.

use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
}

/// `RTLD_LAZY | RTLD_NOLOAD`: what is loaded already.
const LOADED: c_int = 1 | 4;

/// What glibc's handles point to: `struct link_map` of `<link.h>`.
#[repr(C)]
struct Loaded {
    base: usize,
    name: *const c_char,
    dynamic: *const Entry,
}

/// `ElfN_Dyn`.
#[repr(C)]
struct Entry {
    tag: isize,
    value: usize,
}

/// `Elf64_Sym`.
#[repr(C)]
struct Symbol {
    name: u32,
    info: u8,
    other: u8,
    section: u16,
    value: u64,
    size: u64,
}

const END: isize = 0;
const STRINGS: isize = 5;
const SYMBOLS: isize = 6;
const HASHES: isize = 0x6fff_fef5;

/// A function of the loader's, which is in the C library; before glibc 2.34 in one of its own.
pub fn function(name: &CStr) -> Option<*mut c_void> {
    [c"libc.so.6", c"libdl.so.2"].iter().find_map(|file| {
        // SAFETY: a zero-terminated name.
        let handle = unsafe { dlopen(file.as_ptr(), LOADED) };
        // SAFETY: a handle of glibc's, which stays valid: neither library is ever unloaded.
        let loaded = unsafe { handle.cast::<Loaded>().as_ref() }?;
        // SAFETY: it is a library that is loaded.
        unsafe { find(loaded, name) }
    })
}

/// # Safety
/// The library is loaded.
unsafe fn find(loaded: &Loaded, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a loaded library's dynamic section ends with an entry that says so, and its tables are as the format
    // has them.
    unsafe {
        let table = |tag: isize| {
            let mut entry = loaded.dynamic;
            while (*entry).tag != tag {
                if (*entry).tag == END {
                    return None;
                }
                entry = entry.add(1);
            }
            // The loader has made addresses of them on most machines.
            let value = (*entry).value;
            let address = if value < loaded.base {
                value + loaded.base
            } else {
                value
            };
            Some(address)
        };
        let (strings, symbols) = (
            table(STRINGS)? as *const c_char,
            table(SYMBOLS)? as *const Symbol,
        );
        // How many buckets, the first symbol in them, how many words of a filter; then the filter, of which nothing
        // is to be known, the buckets and the chains.
        let words = table(HASHES)? as *const u32;
        let (buckets, first, filter) = (*words, *words.add(1), *words.add(2) as usize);
        let heads = words.add(4).cast::<usize>().add(filter).cast::<u32>();
        let chains = heads.add(buckets as usize);
        let hash = name.to_bytes().iter().fold(5381_u32, |hash, &byte| {
            hash.wrapping_mul(33).wrapping_add(u32::from(byte))
        });
        let mut index = *heads.add((hash % buckets) as usize);
        while index >= first {
            let link = *chains.add((index - first) as usize);
            let symbol = &*symbols.add(index as usize);
            let here = symbol.section != 0 && link | 1 == hash | 1;
            if here && CStr::from_ptr(strings.add(symbol.name as usize)) == name {
                return Some((loaded.base + symbol.value as usize) as *mut c_void);
            }
            if link & 1 == 1 {
                return None;
            }
            index += 1;
        }
        None
    }
}
