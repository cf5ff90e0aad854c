//! The device-side headers of symmem, embedded.
//!
//! A program that compiles kernels while it runs hands [`HEADERS`] to the compiler, which takes names and
//! contents as they are here; others add `device/include` to their include path. The
//! headers need C++17 and no header of any vendor: `#include "symmem/handle.h"` for put, get, signal and
//! wait by the handle that `SymmetricBuffer::handle` gives; `"symmem/copy.h"`, `"symmem/signal.h"`,
//! `"symmem/wait.h"`, `"symmem/barrier.h"`, `"symmem/bulk.h"` are what that is made of.

/// A header file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Its path as `#include` names it, e.g. `symmem/copy.h`.
    pub path: &'static str,
    /// Its text.
    pub contents: &'static str,
}

macro_rules! headers {
    ($($name:literal),+ $(,)?) => {
        &[$(Header {
            path: concat!("symmem/", $name),
            contents: include_str!(concat!("../include/symmem/", $name)),
        }),+]
    };
}

/// Every header of the library, sorted by path.
pub const HEADERS: &[Header] = headers![
    "abi.h",
    "arch.h",
    "arch_hip.h",
    "arch_host.h",
    "arch_ptx.h",
    "arch_ptx_multicast.h",
    "barrier.h",
    "bulk.h",
    "copy.h",
    "element.h",
    "exchange.h",
    "float.h",
    "gathered_gemm.h",
    "group.h",
    "halved_tiles.h",
    "handle.h",
    "memory.h",
    "move.h",
    "multicast.h",
    "packets.h",
    "reduce.h",
    "reduce_packets.h",
    "reduce_push.h",
    "signal.h",
    "swap.h",
    "tile_gemm.h",
    "wait.h",
    "word.h",
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_header_file_is_embedded() {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/include/symmem");
        let mut files: Vec<_> = std::fs::read_dir(folder)
            .unwrap()
            .map(|entry| format!("symmem/{}", entry.unwrap().file_name().to_str().unwrap()))
            .collect();
        files.sort();
        let embedded: Vec<_> = HEADERS.iter().map(|header| header.path).collect();
        assert_eq!(embedded, files);
    }

    #[test]
    fn headers_include_only_each_other_and_the_host_twin_the_standard_library() {
        for header in HEADERS
            .iter()
            .filter(|header| header.path != "symmem/arch_host.h")
        {
            for line in header
                .contents
                .lines()
                .filter(|line| line.starts_with("#include"))
            {
                let name = line
                    .split('"')
                    .nth(1)
                    .unwrap_or_else(|| panic!("{}: {line}", header.path));
                assert!(
                    HEADERS.iter().any(|other| other.path == name),
                    "{}: {line}",
                    header.path
                );
            }
        }
    }
}
