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

/// Bytes in flight per block where neither the table nor the caller says: what keeps one SM of a
/// Hopper busy over NVLink (see `benches/NOTES.md`).
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
