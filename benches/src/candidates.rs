//! The transfer methods to try, and the columns that may choose each of them.

use super::session::TransferMethod;
use crate::report::{Column, Direction};
use symmem::backend::abi::{CAPABILITY_COPY_ENGINE, Capabilities, MethodCode, TransferRow};
use symmem::{self, TransferOptions, plan};

/// Maximum number of blocks in [`Column::GridBest`], since blocks take compute units from concurrent
/// computation.
const MOST_BLOCKS: u32 = 16;

/// The largest transfers with TileScale's method, in bytes: at a few GB/s, larger ones would take most of the run.
const LARGEST_UNROLLED: u64 = 64 << 20;

/// Bytes in flight per thread of the vector kernel: eight words of 16 bytes (`device/entries/base.h`).
const VECTOR_UNDER_WAY: u64 = 8 * 16;
/// Bytes in flight per thread of the unrolled kernel: four words of 4 bytes (`device/entries/base.h`).
const UNROLLED_UNDER_WAY: u64 = 4 * 4;

/// A method with its geometry, and the columns that may choose it.
#[derive(Clone, Debug)]
pub(super) struct Candidate {
    pub means: TransferMethod,
    /// The planner's row; `None` if neither a kernel nor the copy engine is used.
    pub row: Option<TransferRow>,
    /// What moves the bytes if there is no row.
    pub mover: &'static str,
    pub columns: Vec<Column>,
}

impl Candidate {
    /// Returns the method's name in the report.
    pub(super) fn method(&self) -> String {
        match &self.row {
            Some(row) => row.method.name().to_lowercase(),
            None => self.mover.into(),
        }
    }

    /// Returns blocks and threads per block; 0 if no kernel runs.
    pub(super) fn geometry(&self) -> (u32, u32) {
        match &self.row {
            Some(row) if row.method != MethodCode::COPY_ENGINE => (row.blocks, row.threads),
            _ => (0, 0),
        }
    }

    /// Returns the maximum number of bytes in flight; 0 if unknown.
    pub(super) fn bytes_in_flight(&self, bytes: u64) -> u64 {
        let Some(row) = &self.row else { return 0 };
        let per_block = match row.method {
            MethodCode::BULK => u64::from(row.stages) * u64::from(row.stage_bytes),
            MethodCode::VECTOR => u64::from(row.threads) * VECTOR_UNDER_WAY,
            MethodCode::UNROLLED => u64::from(row.threads) * UNROLLED_UNDER_WAY,
            _ => return 0,
        };
        (per_block * u64::from(row.blocks)).min(bytes)
    }
}

/// Returns the only candidate for transfers between nodes: the library has one way.
pub(super) fn between_nodes() -> Vec<Candidate> {
    let means = TransferMethod::Transfer(TransferOptions::default());
    vec![without_row(means, "network", Column::Block128)]
}

fn without_row(means: TransferMethod, mover: &'static str, column: Column) -> Candidate {
    Candidate {
        means,
        row: None,
        mover,
        columns: vec![column],
    }
}

/// Returns the candidates for transfers of `bytes`. `by_caller` means that the calling thread moves the bytes.
///
/// Ranks with equal capabilities get equal lists.
pub(super) fn candidates(
    capabilities: &Capabilities,
    direction: Direction,
    bytes: u64,
    by_caller: bool,
) -> Vec<Candidate> {
    if by_caller {
        let ours = TransferMethod::Transfer(TransferOptions::default());
        return vec![
            without_row(ours, "processor", Column::Block128),
            without_row(TransferMethod::Memcpy, "memcpy", Column::Memcpy),
        ];
    }
    let mut options: Vec<_> = kernels().into_iter().map(|one| (one, true)).collect();
    if bytes <= LARGEST_UNROLLED {
        let unrolled = TransferOptions::new().method(symmem::Method::Unrolled);
        options.push((unrolled.geometry(1, 128), true));
    }
    if capabilities.flags & CAPABILITY_COPY_ENGINE != 0 {
        let engine = TransferOptions::new().method(symmem::Method::CopyEngine);
        options.push((engine, true));
    }
    options.push((TransferOptions::default(), false));
    options
        .into_iter()
        .filter_map(|(options, named)| {
            let row = plan(capabilities, wire(direction), bytes, 0, &options).ok()?;
            // A ring whose stage is larger than the transfer behaves like one with smaller stages.
            let oversized =
                named && row.method == MethodCode::BULK && u64::from(row.stage_bytes) > bytes;
            let columns = columns(&row, named);
            (!columns.is_empty() && !oversized).then_some(Candidate {
                means: TransferMethod::Transfer(options),
                row: Some(row),
                mover: "",
                columns,
            })
        })
        .collect()
}

/// Returns vector and bulk kernels with 1 to 16 blocks.
fn kernels() -> Vec<TransferOptions> {
    let vector = TransferOptions::new().method(symmem::Method::Vector);
    // One thread issues a block's bulk copies, so more than 128 threads would only idle.
    let bulk = TransferOptions::new()
        .method(symmem::Method::Bulk)
        .geometry(1, 128);
    let mut all = Vec::new();
    for threads in [128, 256, 512, 1024] {
        all.push(vector.geometry(1, threads));
    }
    for (stages, kib) in [(8, 2), (8, 8), (8, 16), (8, 24), (8, 28), (4, 32), (12, 16)] {
        all.push(bulk.in_flight(stages, kib << 10));
    }
    for blocks in [2, 4, 8, 12, 14, MOST_BLOCKS] {
        for threads in [512, 1024] {
            all.push(vector.geometry(blocks, threads));
        }
        for (stages, kib) in [(8, 8), (8, 16), (8, 24), (8, 28), (7, 32)] {
            all.push(bulk.geometry(blocks, 128).in_flight(stages, kib << 10));
        }
    }
    all
}

/// Returns the columns that may choose a row. `named` means that the options named the method; otherwise the
/// backend's table chose it.
fn columns(row: &TransferRow, named: bool) -> Vec<Column> {
    match row.method {
        // The named copy engine is already a candidate of its column.
        MethodCode::COPY_ENGINE if !named => vec![],
        MethodCode::COPY_ENGINE => vec![Column::CopyEngine],
        MethodCode::UNROLLED => vec![Column::Unrolled],
        _ if row.blocks > MOST_BLOCKS => vec![],
        _ => {
            let mut columns = vec![Column::GridBest];
            if row.blocks == 1 {
                columns.push(Column::BlockBest);
                if row.threads == 128 {
                    columns.push(Column::Block128);
                }
            }
            columns
        }
    }
}

/// Converts the direction to the library's type.
pub(super) fn wire(direction: Direction) -> symmem::Direction {
    match direction {
        Direction::Push => symmem::Direction::Put,
        Direction::Pull => symmem::Direction::Get,
    }
}

/// Returns for each column its fastest candidate, in the report's order. `ns` has the candidates' times.
/// Columns without a candidate are left out.
pub(super) fn choose(candidates: &[Candidate], ns: &[f64]) -> Vec<(Column, usize)> {
    Column::ALL
        .into_iter()
        .filter_map(|column| {
            let may = |&index: &usize| candidates[index].columns.contains(&column);
            (0..candidates.len())
                .filter(may)
                .min_by(|&a, &b| ns[a].total_cmp(&ns[b]))
                .map(|index| (column, index))
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use symmem::backend::abi::{CAPABILITY_BULK, CAPABILITY_LAUNCH, ShareKindCode};

    fn capabilities(flags: u64) -> Capabilities {
        let automatic = TransferRow {
            bytes: u64::MAX,
            method: MethodCode::VECTOR,
            blocks: 16,
            threads: 1024,
            ..TransferRow::default()
        };
        Capabilities {
            flags: flags | CAPABILITY_LAUNCH,
            share_kinds: [ShareKindCode::default(); 4],
            share_granularity: 2 << 20,
            shared_memory_per_block: 227 << 10,
            fanout: 1,
            put_rows: [automatic; 8],
            get_rows: [automatic; 8],
            driver_version: 0,
            reduce_inbox_bytes: 0,
        }
    }

    fn found(flags: u64, bytes: u64) -> Vec<Candidate> {
        candidates(&capabilities(flags), Direction::Push, bytes, false)
    }

    #[test]
    fn each_column_has_candidates_of_its_own_geometry_only() {
        let all = found(CAPABILITY_BULK | CAPABILITY_COPY_ENGINE, 4 << 20);
        let chosen = choose(&all, &vec![1.0; all.len()]);
        let columns: Vec<Column> = chosen.iter().map(|(column, _)| *column).collect();
        assert_eq!(
            columns,
            [
                Column::Block128,
                Column::BlockBest,
                Column::GridBest,
                Column::CopyEngine,
                Column::Unrolled
            ]
        );
        for candidate in &all {
            let (blocks, threads) = candidate.geometry();
            let of = |column| candidate.columns.contains(&column);
            assert!(!of(Column::Block128) || (blocks, threads) == (1, 128));
            assert!(!of(Column::BlockBest) || blocks == 1);
            assert!(!of(Column::GridBest) || (1..=16).contains(&blocks));
            assert!(!of(Column::CopyEngine) || blocks == 0);
        }
    }

    #[test]
    fn the_fastest_candidate_of_a_column_is_chosen() {
        let all = found(CAPABILITY_BULK, 4 << 20);
        let fast = (all.iter())
            .position(|candidate| candidate.columns.contains(&Column::Block128))
            .unwrap();
        let mut ns = vec![100.0; all.len()];
        ns[fast] = 1.0;
        for (column, index) in choose(&all, &ns) {
            assert_eq!(index == fast, column != Column::Unrolled, "{column:?}");
        }
    }

    #[test]
    fn what_a_device_lacks_is_no_candidate() {
        for candidate in found(0, 4 << 20) {
            let method = candidate.row.unwrap().method;
            assert!(method != MethodCode::BULK && method != MethodCode::COPY_ENGINE);
        }
        let slow = found(0, 128 << 20);
        assert!(slow.iter().all(|c| !c.columns.contains(&Column::Unrolled)));
    }

    #[test]
    fn bytes_in_flight_are_those_of_all_blocks_and_no_more_than_there_are() {
        let ring = |blocks| Candidate {
            means: TransferMethod::Memcpy,
            row: Some(TransferRow {
                method: MethodCode::BULK,
                blocks,
                threads: 128,
                stages: 8,
                stage_bytes: 16 << 10,
                ..TransferRow::default()
            }),
            mover: "",
            columns: vec![],
        };
        assert_eq!(ring(2).bytes_in_flight(1 << 30), 256 << 10);
        assert_eq!(ring(2).bytes_in_flight(4096), 4096);
        let block = |method| Candidate {
            row: Some(TransferRow {
                method,
                ..ring(1).row.unwrap()
            }),
            ..ring(1)
        };
        assert_eq!(block(MethodCode::VECTOR).bytes_in_flight(1 << 30), 16 << 10);
        assert_eq!(
            block(MethodCode::UNROLLED).bytes_in_flight(1 << 30),
            2 << 10
        );
    }

    #[test]
    fn on_the_host_there_is_the_library_and_memcpy() {
        let all = candidates(&capabilities(0), Direction::Pull, 4096, true);
        let methods: Vec<String> = all.iter().map(Candidate::method).collect();
        assert_eq!(methods, ["processor", "memcpy"]);
    }
}
