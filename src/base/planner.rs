//! How a transfer is carried out: method, blocks, threads and bytes in flight, by direction and size.
//!
//! The tables are data that each backend measured for its devices; the rules here hold everywhere.

use crate::backend::abi::{
    CAPABILITY_BULK, CAPABILITY_COPY_ENGINE, Capabilities, Direction, Method, TransferRow,
};

/// What a caller may ask of a transfer; zero or automatic leaves the choice to the tables.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferOptions {
    /// How bytes are moved.
    pub method: Method,
    /// Blocks of the grid; at most this many compute units are used.
    pub blocks: u32,
    /// Threads of a block, a multiple of 32.
    pub threads: u32,
    /// Bulk copies in flight per block.
    pub stages: u32,
    /// Bytes of each bulk copy, a multiple of 16.
    pub stage_bytes: u32,
}

impl TransferOptions {
    /// Moves bytes by this method, with the tables' geometry.
    pub fn method(method: Method) -> Self {
        Self {
            method,
            ..Self::default()
        }
    }

    /// Uses this many blocks of this many threads.
    pub fn geometry(self, blocks: u32, threads: u32) -> Self {
        Self {
            blocks,
            threads,
            ..self
        }
    }

    /// Keeps this many bulk copies of this many bytes in flight per block.
    pub fn in_flight(self, stages: u32, stage_bytes: u32) -> Self {
        Self {
            stages,
            stage_bytes,
            ..self
        }
    }
}

/// Bytes in flight per block where neither the table nor the caller says: what keeps one block's
/// processor busy over a fast link (see `benches/NOTES.md`).
const DEFAULT_STAGES: u32 = 8;
const DEFAULT_STAGE_BYTES: u32 = 16 * 1024;

/// The row for a transfer, complete and possible; or why the options cannot be met.
///
/// `skew` is destination minus source: bulk copies need it to be a multiple of 16.
pub fn plan(
    capabilities: &Capabilities,
    direction: Direction,
    bytes: u64,
    skew: u64,
    options: &TransferOptions,
) -> Result<TransferRow, String> {
    let rows = match direction {
        Direction::GET => &capabilities.get_rows,
        _ => &capabilities.put_rows,
    };
    let fits = |row: &&TransferRow| bytes <= row.bytes;
    let mut row = match options.method {
        Method::AUTOMATIC => rows.iter().find(fits).copied(),
        method => rows
            .iter()
            .filter(|row| row.method == method)
            .find(fits)
            .or_else(|| rows.iter().rev().find(|row| row.method == method))
            .copied()
            .or(Some(TransferRow {
                method,
                blocks: 1,
                threads: 128,
                ..TransferRow::default()
            })),
    }
    .ok_or("the backend's transfer table has no row for this size; this is a bug in the backend")?;
    if options.blocks != 0 {
        row.blocks = options.blocks;
    }
    if options.threads != 0 {
        row.threads = options.threads;
    }
    if options.stages != 0 {
        row.stages = options.stages;
    }
    if options.stage_bytes != 0 {
        row.stage_bytes = options.stage_bytes;
    }
    let has = |flag| capabilities.flags & flag != 0;
    let bulk_possible = has(CAPABILITY_BULK) && skew.is_multiple_of(16);
    if row.method == Method::BULK && !bulk_possible {
        if options.method == Method::BULK && !has(CAPABILITY_BULK) {
            return Err("this device has no bulk copies; use another method".into());
        }
        // A skewed pair of addresses is the data's, not the caller's choice of method: move it anyway.
        row.method = Method::VECTOR;
    }
    match row.method {
        Method::COPY_ENGINE if !has(CAPABILITY_COPY_ENGINE) => {
            return Err("this device has no copy engine; use another method".into());
        }
        Method::COPY_ENGINE => return Ok(TransferRow { bytes, ..row }),
        Method::VECTOR | Method::UNROLLED => {}
        Method::BULK => {
            if row.stages == 0 {
                row.stages = DEFAULT_STAGES;
            }
            if row.stage_bytes == 0 {
                row.stage_bytes = DEFAULT_STAGE_BYTES;
            }
            if row.stages < 2 {
                return Err("one bulk copy in flight is no ring; use 2 or more".into());
            }
            let needed = u64::from(row.stages) * u64::from(row.stage_bytes);
            // A little room for the ring's barriers.
            let room = u64::from(capabilities.shared_memory_per_block).saturating_sub(1024);
            if !row.stage_bytes.is_multiple_of(16) || needed > room {
                return Err(format!(
                    "{} bulk copies of {} bytes do not fit: each must be a multiple of 16 bytes, \
                     and all together at most {room}",
                    row.stages, row.stage_bytes
                ));
            }
        }
        other => return Err(format!("method {} is unknown to this version", other.0)),
    }
    if row.blocks == 0 || row.blocks > 65_535 {
        return Err(format!("{} blocks; choose 1 to 65535", row.blocks));
    }
    if row.threads == 0 || row.threads > 1024 || !row.threads.is_multiple_of(32) {
        return Err(format!(
            "{} threads a block; choose a multiple of 32 up to 1024",
            row.threads
        ));
    }
    if row.method == Method::UNROLLED && !row.threads.is_multiple_of(128) {
        return Err("the unrolled method is four warps, a quarter each: use 128 threads".into());
    }
    Ok(TransferRow { bytes, ..row })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::ShareKind;

    fn capabilities(flags: u64) -> Capabilities {
        let row = |bytes, method, blocks| TransferRow {
            bytes,
            method,
            blocks,
            threads: 128,
            stages: 8,
            stage_bytes: 16 << 10,
            reserved: 0,
        };
        let last = row(u64::MAX, Method::VECTOR, 16);
        let mut rows = [last; 8];
        rows[0] = row(64 << 10, Method::BULK, 1);
        Capabilities {
            flags,
            share_kinds: [ShareKind::default(); 4],
            share_granularity: 4096,
            shared_memory_per_block: 227 << 10,
            fanout: 1,
            put_rows: rows,
            get_rows: [last; 8],
            driver_version: 0,
            reduce_inbox_bytes: 0,
        }
    }

    const ALL: u64 = CAPABILITY_BULK | CAPABILITY_COPY_ENGINE;

    fn put(bytes: u64, skew: u64, options: TransferOptions) -> Result<TransferRow, String> {
        plan(&capabilities(ALL), Direction::PUT, bytes, skew, &options)
    }

    #[test]
    fn the_first_row_that_holds_for_the_size_is_taken() {
        let automatic = TransferOptions::default();
        assert_eq!(put(64 << 10, 0, automatic).unwrap().method, Method::BULK);
        assert_eq!(put(65_537, 0, automatic).unwrap().method, Method::VECTOR);
        let get = plan(&capabilities(ALL), Direction::GET, 8, 0, &automatic);
        assert_eq!(get.unwrap().method, Method::VECTOR);
    }

    #[test]
    fn addresses_that_bulk_copies_cannot_take_are_moved_by_vector_accesses() {
        let skewed = put(1000, 8, TransferOptions::method(Method::BULK)).unwrap();
        assert_eq!(skewed.method, Method::VECTOR);
        let without = plan(
            &capabilities(0),
            Direction::PUT,
            1000,
            0,
            &TransferOptions::default(),
        );
        assert_eq!(without.unwrap().method, Method::VECTOR);
    }

    #[test]
    fn what_the_caller_says_overrides_the_table() {
        let options = TransferOptions::method(Method::BULK)
            .geometry(4, 256)
            .in_flight(2, 1024);
        let row = put(1 << 30, 0, options).unwrap();
        assert_eq!((row.blocks, row.threads), (4, 256));
        assert_eq!((row.stages, row.stage_bytes), (2, 1024));
    }

    #[test]
    fn options_that_cannot_be_met_are_refused_with_what_would_be_right() {
        let vector = TransferOptions::method(Method::VECTOR);
        let bulk = TransferOptions::method(Method::BULK);
        for (options, word) in [
            (vector.geometry(1, 100), "multiple of 32"),
            (vector.geometry(70_000, 32), "65535"),
            (bulk.in_flight(1, 1024), "2 or more"),
            (bulk.in_flight(8, 24), "multiple of 16"),
            (bulk.in_flight(8, 32 << 10), "do not fit"),
            (TransferOptions::method(Method(77)), "unknown"),
            (
                TransferOptions::method(Method::UNROLLED).geometry(1, 96),
                "128 threads",
            ),
        ] {
            let refused = put(1 << 20, 0, options).unwrap_err();
            assert!(refused.contains(word), "{options:?}: {refused}");
        }
        for method in [Method::BULK, Method::COPY_ENGINE] {
            let options = TransferOptions::method(method);
            assert!(plan(&capabilities(0), Direction::PUT, 64, 0, &options).is_err());
        }
    }
}
