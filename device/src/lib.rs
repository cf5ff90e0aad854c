//! The device-side headers of symmem, embedded.
//!
//! A program that compiles kernels at run time (NVRTC, hipRTC) passes the paths and contents in [`HEADERS`] to the
//! compiler; other programs add `device/include` to their include path. The headers need C++17 and no vendor header.
//! `#include "symmem/handle.h"` for put, get, signal and wait with the handle that `SymmetricBuffer::handle` returns;
//! it builds on `"symmem/copy.h"`, `"symmem/signal.h"` and `"symmem/wait.h"`. `"symmem/barrier.h"` and `"symmem/bulk.h"`
//! have a barrier and bulk copies.

/// A header file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// The path as `#include` names it, such as `symmem/copy.h`.
    pub path: &'static str,
    /// The text.
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
    "block_sums.h",
    "bulk.h",
    "copy.h",
    "divided_round.h",
    "element.h",
    "exchange.h",
    "float.h",
    "gathered_gemm.h",
    "gemm_feed.h",
    "gemm_stage.h",
    "group.h",
    "halved_tiles.h",
    "handle.h",
    "lamport.h",
    "memory.h",
    "move.h",
    "move_lamport.h",
    "move_pieces.h",
    "multicast.h",
    "packets.h",
    "packets_few.h",
    "pieces.h",
    "reduce.h",
    "reduce_lamport.h",
    "reduce_lamport_two_shot.h",
    "reduce_norm.h",
    "reduce_norm_shares.h",
    "reduce_packets.h",
    "reduce_push.h",
    "reduced_gemm.h",
    "signal.h",
    "swap.h",
    "tile_gemm.h",
    "tile_reduce.h",
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
