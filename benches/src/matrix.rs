//! Bandwidth between every two ranks, one pair at a time.

use super::candidates::{Candidate, candidates, choose};
use super::pairs::Run;
use super::progress::Stepper;
use super::session::Case;
use super::{Result, exchange, pairing};
use crate::report::{Column, Direction, Matrix, Timing};
use serde::{Deserialize, Serialize};

/// Size of the transfers, if memory suffices.
const BYTES: u64 = 64 << 20;

/// Rounds per pair; the result is their median.
const ROUNDS: u32 = 3;

/// The rate of a pair, measured by the rank that moved the bytes.
#[derive(Serialize, Deserialize)]
struct Cell {
    mover: usize,
    other: usize,
    gbps: f64,
}

/// Measures a matrix for each direction, with the copy engine and with the best kernel. Pairs with wrong
/// bytes are left out and noted. Collective.
pub(super) fn measure(
    run: &Run<'_>,
    largest: u64,
    notes: &mut Vec<String>,
    step: &mut Stepper<'_>,
) -> Result<Vec<Matrix>> {
    let bytes = largest.min(BYTES);
    let mut matrices = Vec::new();
    for direction in Direction::ALL {
        let candidates = candidates(&run.capabilities, direction, bytes, run.by_caller);
        // The best geometry of the first pair is used for all, since they differ in their links only.
        let times = run.search(&case(run, direction, bytes, 0, 1), &candidates)?;
        for (column, index) in choose(&candidates, &times) {
            let by_processor = run.by_caller && column == Column::Block128;
            if !(by_processor || matches!(column, Column::CopyEngine | Column::GridBest)) {
                continue;
            }
            let chosen = (&candidates[index], times[index]);
            let gbps = every_pair(run, direction, bytes, chosen, column, notes, step)?;
            matrices.push(Matrix {
                direction,
                bytes,
                column,
                gbps,
            });
        }
    }
    Ok(matrices)
}

fn case(run: &Run<'_>, direction: Direction, bytes: u64, mover: usize, other: usize) -> Case {
    let rank = run.session.communicator.rank();
    Case {
        direction,
        bytes: bytes as usize,
        role: pairing::between(rank, mover, other, direction),
    }
}

fn every_pair(
    run: &Run<'_>,
    direction: Direction,
    bytes: u64,
    (candidate, each_ns): (&Candidate, f64),
    column: Column,
    notes: &mut Vec<String>,
    step: &mut Stepper<'_>,
) -> Result<Vec<Vec<Option<f64>>>> {
    let communicator = run.session.communicator;
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let repeats = run.repeats(each_ns, ROUNDS);
    let (mut cells, mut wrong) = (Vec::new(), Vec::new());
    step.expect(world * (world - 1));
    for mover in 0..world {
        for other in (0..world).filter(|&other| other != mover) {
            step.next(format!(
                "{} {mover} to {other} by {}",
                direction.label(),
                column.label()
            ));
            let case = case(run, direction, bytes, mover, other);
            if run.session.check(&case, candidate.means)? != 0 {
                wrong.push((mover, other));
            }
            let mut times = Vec::new();
            for _ in 0..ROUNDS {
                times.push(run.session.looped(&case, candidate.means, repeats)?);
            }
            if rank == mover
                && let Some(timing) = Timing::from_rounds(bytes, &times)
            {
                let gbps = timing.gbps;
                cells.push(Cell { mover, other, gbps });
            }
        }
    }
    let mut gbps = vec![vec![None; world]; world];
    let all = exchange::all_gather(communicator, &(cells, wrong))?;
    for (cells, _) in &all {
        for cell in cells {
            gbps[cell.mover][cell.other] = Some(cell.gbps);
        }
    }
    for (mover, other) in all.into_iter().flat_map(|(_, wrong)| wrong) {
        gbps[mover][other] = None;
        notes.push(format!(
            "WRONG: {} between ranks {mover} and {other} by {} had wrong bytes",
            direction.label(),
            column.label()
        ));
    }
    Ok(gbps)
}
