//! Finds the dynamic loader's own functions in its symbol tables. A look-up by name would find the functions that
//! precede the loader's, which are this library's own.

use std::ffi::{CStr, c_char, c_int, c_void};

unsafe extern "C" {
    fn dlopen(file: *const c_char, mode: c_int) -> *mut c_void;
}

/// `RTLD_LAZY | RTLD_NOLOAD`: opens only what is loaded already.
const LOADED: c_int = 1 | 4;

/// The target of glibc's handles: `struct link_map` of `<link.h>`.
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

/// Returns a function of the loader. It is in the C library, before glibc 2.34 in libdl.
pub fn function(name: &CStr) -> Option<*mut c_void> {
    [c"libc.so.6", c"libdl.so.2"].iter().find_map(|file| {
        // SAFETY: the name is zero-terminated.
        let handle = unsafe { dlopen(file.as_ptr(), LOADED) };
        // SAFETY: the handle is null or glibc's, and stays valid because neither library is ever unloaded.
        let loaded = unsafe { handle.cast::<Loaded>().as_ref() }?;
        // SAFETY: `loaded` describes a library that is loaded and never unloaded.
        unsafe { find(loaded, name) }
    })
}

/// # Safety
/// The library is loaded.
unsafe fn find(loaded: &Loaded, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a loaded library's dynamic section ends with an end entry, and its tables have the layout that the ELF
    // format defines.
    unsafe {
        let table = |tag: isize| {
            let mut entry = loaded.dynamic;
            while (*entry).tag != tag {
                if (*entry).tag == END {
                    return None;
                }
                entry = entry.add(1);
            }
            // On most machines the loader has relocated these offsets to addresses.
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
        // The number of buckets, the first hashed symbol, and the words of a Bloom filter; then the filter, which is
        // skipped, the buckets and the chains.
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
