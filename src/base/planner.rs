//! The planner of transfers: chooses method, blocks, threads and bytes in flight, by direction and size.
//!
//! The tables are data that each backend measured for its devices; the rules here hold on all of them.

use crate::backend::abi::{
    self, CAPABILITY_BULK, CAPABILITY_COPY_ENGINE, Capabilities, TransferRow,
};
use crate::base::names::{Direction, Method};

/// Options of a one-sided transfer. By default, all values come from the backend's table for the transfer's
/// direction and size.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferOptions {
    method: Option<Method>,
    /// Blocks of the grid and threads per block; 0 for the table's.
    geometry: (u32, u32),
    /// Bulk copies in flight per block, and bytes of each; 0 for the table's.
    in_flight: (u32, u32),
}

impl TransferOptions {
    /// Returns the defaults: all values from the table.
    pub const fn new() -> Self {
        Self {
            method: None,
            geometry: (0, 0),
            in_flight: (0, 0),
        }
    }

    /// Sets the method; `None` for the table's.
    #[must_use]
    pub fn method(mut self, method: impl Into<Option<Method>>) -> Self {
        self.method = method.into();
        self
    }

    /// Sets a grid of `blocks` blocks (1 to 65535) of `threads` threads (a multiple of 32, at most 1024); 0 for
    /// the table's. Ignored by the copy engine, which has no grid.
    #[must_use]
    pub fn geometry(mut self, blocks: u32, threads: u32) -> Self {
        self.geometry = (blocks, threads);
        self
    }

    /// Sets the bulk copies in flight per block (at least 2) and the bytes of each (a multiple of 16); 0 for
    /// the table's. Used by [`Method::Bulk`] only; all copies together must fit in the block's shared memory.
    #[must_use]
    pub fn in_flight(mut self, copies: u32, bytes: u32) -> Self {
        self.in_flight = (copies, bytes);
        self
    }
}

/// Bulk copies in flight per block if neither the table nor the caller sets them: enough to keep one block's
/// processor busy over a fast link (see `benches/NOTES.md`).
const DEFAULT_STAGES: u32 = 8;
const DEFAULT_STAGE_BYTES: u32 = 16 * 1024;

/// Returns the complete row for a transfer of `bytes` bytes. `skew` is destination minus source, in bytes: bulk copies
/// need it to be a multiple of 16. Does not block.
///
/// # Errors
/// The reason why the options cannot be met, as text.
pub fn plan(
    capabilities: &Capabilities,
    direction: Direction,
    bytes: u64,
    skew: u64,
    options: &TransferOptions,
) -> Result<TransferRow, String> {
    let rows = match direction {
        Direction::Get => &capabilities.get_rows,
        Direction::Put | Direction::Local => &capabilities.put_rows,
    };
    let fits = |row: &&TransferRow| bytes <= row.bytes;
    let mut row = match options.method.map(abi::MethodCode::from) {
        None => rows.iter().find(fits).copied(),
        Some(method) => rows
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
    let (blocks, threads) = options.geometry;
    let (stages, stage_bytes) = options.in_flight;
    for (field, value) in [
        (&mut row.blocks, blocks),
        (&mut row.threads, threads),
        (&mut row.stages, stages),
        (&mut row.stage_bytes, stage_bytes),
    ] {
        if value != 0 {
            *field = value;
        }
    }
    let has = |flag| capabilities.flags & flag != 0;
    let bulk_possible = has(CAPABILITY_BULK) && skew.is_multiple_of(16);
    if row.method == abi::MethodCode::BULK && !bulk_possible {
        if options.method == Some(Method::Bulk) && !has(CAPABILITY_BULK) {
            return Err("this device has no bulk copies; use another method".into());
        }
        // The skew comes from the data, not from the caller's choice of method: use vector accesses instead.
        row.method = abi::MethodCode::VECTOR;
    }
    match row.method {
        abi::MethodCode::COPY_ENGINE if !has(CAPABILITY_COPY_ENGINE) => {
            return Err("this device has no copy engine; use another method".into());
        }
        abi::MethodCode::COPY_ENGINE => return Ok(TransferRow { bytes, ..row }),
        abi::MethodCode::VECTOR | abi::MethodCode::UNROLLED => {}
        abi::MethodCode::BULK => {
            if row.stages == 0 {
                row.stages = DEFAULT_STAGES;
            }
            if row.stage_bytes == 0 {
                row.stage_bytes = DEFAULT_STAGE_BYTES;
            }
            if row.stages < 2 {
                return Err("1 bulk copy in flight; use 2 or more".into());
            }
            let needed = u64::from(row.stages) * u64::from(row.stage_bytes);
            // Reserves room for the ring's barriers.
            let room = u64::from(capabilities.shared_memory_per_block).saturating_sub(1024);
            if !row.stage_bytes.is_multiple_of(16) || needed > room {
                return Err(format!(
                    "{} bulk copies of {} bytes do not fit in shared memory: each must be a multiple of 16 bytes, \
                     and all together at most {room} bytes",
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
            "{} threads per block; choose a multiple of 32 up to 1024",
            row.threads
        ));
    }
    if row.method == abi::MethodCode::UNROLLED && !row.threads.is_multiple_of(128) {
        return Err(
            "the unrolled method needs a multiple of 128 threads per block; use 128".into(),
        );
    }
    Ok(TransferRow { bytes, ..row })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::ShareKindCode;

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
        let last = row(u64::MAX, abi::MethodCode::VECTOR, 16);
        let mut rows = [last; 8];
        rows[0] = row(64 << 10, abi::MethodCode::BULK, 1);
        Capabilities {
            flags,
            share_kinds: [ShareKindCode::default(); 4],
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
        plan(&capabilities(ALL), Direction::Put, bytes, skew, &options)
    }

    #[test]
    fn the_first_row_that_holds_for_the_size_is_taken() {
        let automatic = TransferOptions::default();
        assert_eq!(
            put(64 << 10, 0, automatic).unwrap().method,
            abi::MethodCode::BULK
        );
        assert_eq!(
            put(65_537, 0, automatic).unwrap().method,
            abi::MethodCode::VECTOR
        );
        let get = plan(&capabilities(ALL), Direction::Get, 8, 0, &automatic);
        assert_eq!(get.unwrap().method, abi::MethodCode::VECTOR);
    }

    #[test]
    fn addresses_that_bulk_copies_cannot_take_are_moved_by_vector_accesses() {
        let skewed = put(1000, 8, TransferOptions::new().method(Method::Bulk)).unwrap();
        assert_eq!(skewed.method, abi::MethodCode::VECTOR);
        let without = plan(
            &capabilities(0),
            Direction::Put,
            1000,
            0,
            &TransferOptions::default(),
        );
        assert_eq!(without.unwrap().method, abi::MethodCode::VECTOR);
    }

    #[test]
    fn what_the_caller_says_overrides_the_table() {
        let options = TransferOptions::new()
            .method(Method::Bulk)
            .geometry(4, 256)
            .in_flight(2, 1024);
        let row = put(1 << 30, 0, options).unwrap();
        assert_eq!((row.blocks, row.threads), (4, 256));
        assert_eq!((row.stages, row.stage_bytes), (2, 1024));
    }

    #[test]
    fn options_that_cannot_be_met_are_refused_with_what_would_be_right() {
        let vector = TransferOptions::new().method(Method::Vector);
        let bulk = TransferOptions::new().method(Method::Bulk);
        for (options, word) in [
            (vector.geometry(1, 100), "multiple of 32"),
            (vector.geometry(70_000, 32), "65535"),
            (bulk.in_flight(1, 1024), "2 or more"),
            (bulk.in_flight(8, 24), "multiple of 16"),
            (bulk.in_flight(8, 32 << 10), "do not fit"),
            (
                TransferOptions::new()
                    .method(Method::Unrolled)
                    .geometry(1, 96),
                "128 threads",
            ),
        ] {
            let refused = put(1 << 20, 0, options).unwrap_err();
            assert!(refused.contains(word), "{options:?}: {refused}");
        }
        for method in [Method::Bulk, Method::CopyEngine] {
            let options = TransferOptions::new().method(method);
            assert!(plan(&capabilities(0), Direction::Put, 64, 0, &options).is_err());
        }
    }
}
