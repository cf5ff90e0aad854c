//! Constants from measured runs.

use super::algorithm::Hierarchical;
use super::machine::{CONSTANTS, Constant, Machine};
use super::time::{Counts, MOST_CHUNKS, Terms, best, cost, seconds};
use crate::base::names::CollectiveOperation;

/// A measured call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Measurement {
    /// Number of nodes.
    pub nodes: u32,
    /// Ranks of each node.
    pub ranks_per_node: u32,
    /// Network links of each node.
    pub rails: u32,
    /// The operation.
    pub operation: CollectiveOperation,
    /// nccl-tests' size, in bytes.
    pub bytes: u64,
    /// Time of the call, in seconds.
    pub seconds: f64,
    /// The algorithm that ran; `None` for the fastest by the formula.
    pub algorithm: Option<Hierarchical>,
    /// The number of chunks that ran; `None` for the fastest by the formula.
    pub chunks: Option<u32>,
}

/// The result of [`fit`].
#[derive(Clone, Debug, PartialEq)]
pub struct Fit {
    /// The machine with the fitted constants.
    pub machine: Machine,
    /// The constants that the measurements determine; all others are those of the machine given.
    pub fitted: Vec<Constant>,
    /// Number of measurements that were used.
    pub used: usize,
    /// Mean of the relative errors' absolute values, over all used measurements.
    pub mean_error: f64,
    /// The largest relative error.
    pub largest_error: f64,
}

/// Rounds of the search. Each solves the linear problem for the algorithms and chunks that the last constants choose.
const ROUNDS: usize = 30;

/// Finds the constants with which the formula meets `measurements` best: least squares of the relative error.
///
/// The gaps keep their values, since runs of few nodes do not tell a gap from a latency. So do constants that the
/// measurements do not determine, or could only meet with a value below zero. `None` if the formula has none of the
/// measured operations and algorithms, or no measured time is positive.
pub fn fit(start: &Machine, measurements: &[Measurement]) -> Option<Fit> {
    let mut machine = *start;
    let mut best: Option<(f64, Fit)> = None;
    let mut fitted = Vec::new();
    for _ in 0..ROUNDS {
        let rows = rows(&machine, measurements);
        // A constant that a round has set and a later one keeps comes from the measurements, too.
        fitted.extend(solve(&mut machine, &rows));
        let ever = Constant::ALL.into_iter().filter(|one| fitted.contains(one));
        let (squares, judged) = judge(machine, ever.collect(), measurements)?;
        if best.as_ref().is_none_or(|(least, _)| squares < *least) {
            best = Some((squares, judged));
        }
    }
    best.map(|(_, fit)| fit)
}

/// Returns for each measurement how often each constant counts, over the measured time: with the right constants, the
/// sum of a row's products is 1.
fn rows(machine: &Machine, measurements: &[Measurement]) -> Vec<Terms> {
    let row = |measured: &Measurement| {
        let shape = Machine {
            nodes: measured.nodes,
            ranks_per_node: measured.ranks_per_node,
            rails: measured.rails,
            ..*machine
        };
        let terms = terms(&shape, measured)?;
        let is_time = measured.seconds.is_finite() && measured.seconds > 0.0;
        is_time.then(|| terms.map(|term| term / measured.seconds))
    };
    measurements.iter().filter_map(row).collect()
}

fn terms(shape: &Machine, measured: &Measurement) -> Option<Terms> {
    let Measurement {
        operation, bytes, ..
    } = *measured;
    let algorithm = match measured.algorithm {
        Some(algorithm) => algorithm,
        None => match measured.chunks {
            None => best(shape, operation, bytes)?.0,
            Some(chunks) => with_chunks(shape, operation, bytes, chunks)?,
        },
    };
    let counts = Counts::new(shape, operation, bytes, algorithm)?;
    let factors = shape.factors();
    let chunks = match measured.chunks {
        Some(chunks) => chunks.clamp(1, MOST_CHUNKS),
        None => counts.chunks(&factors),
    };
    Some(counts.terms(chunks, &factors))
}

/// Returns the fastest algorithm with a number of chunks that is known.
fn with_chunks(
    shape: &Machine,
    operation: CollectiveOperation,
    bytes: u64,
    chunks: u32,
) -> Option<Hierarchical> {
    let seconds = |algorithm| Some(cost(shape, operation, bytes, algorithm, chunks)?.seconds);
    let timed = Hierarchical::all().filter_map(|algorithm| Some((algorithm, seconds(algorithm)?)));
    let fastest = timed.min_by(|(_, a), (_, b)| a.total_cmp(b));
    fastest.map(|(algorithm, _)| algorithm)
}

/// Returns the sum of the squared relative errors, and the fit with its errors.
fn judge(
    machine: Machine,
    fitted: Vec<Constant>,
    measurements: &[Measurement],
) -> Option<(f64, Fit)> {
    let factors = machine.factors();
    let rows = rows(&machine, measurements);
    let errors: Vec<f64> = rows
        .iter()
        .map(|row| (seconds(row, &factors) - 1.0).abs())
        .collect();
    let used = errors.len();
    let largest_error = errors.iter().copied().reduce(f64::max)?;
    let fit = Fit {
        machine,
        fitted,
        used,
        mean_error: errors.iter().sum::<f64>() / used as f64,
        largest_error,
    };
    Some((errors.iter().map(|error| error * error).sum(), fit))
}

/// Sums of squares that differ by less are equal.
const ROUNDING: f64 = 1e-12;

/// Constants that a fit may change; the gaps are not among them.
const OPEN: [Constant; 5] = [
    Constant::InsideLatency,
    Constant::InsideBandwidth,
    Constant::BetweenLatency,
    Constant::BetweenBandwidth,
    Constant::Reduction,
];

/// Sets the constants that meet the rows best, and returns them. Tries every set of constants, since those that the
/// rows do not determine, or only with a value below zero, have to keep their values.
fn solve(machine: &mut Machine, rows: &[Terms]) -> Vec<Constant> {
    let factors = machine.factors();
    let squares = |factors: &Terms| -> f64 {
        let errors = rows.iter().map(|row| seconds(row, factors) - 1.0);
        errors.map(|error| error * error).sum()
    };
    let mut best: Option<(f64, Terms, Vec<Constant>)> = None;
    for set in 1_u32..1 << OPEN.len() {
        let is_open = |at: &usize| set & 1 << at != 0;
        let open: Vec<Constant> = (0..OPEN.len()).filter(is_open).map(|at| OPEN[at]).collect();
        let columns: Vec<usize> = open.iter().map(|constant| *constant as usize).collect();
        let Some(solution) = least_squares(rows, &factors, &columns) else {
            continue;
        };
        let mut solved = factors;
        for (column, factor) in columns.into_iter().zip(solution) {
            solved[column] = factor;
        }
        let squares = squares(&solved);
        // Of equally good sets, the largest: a constant that an earlier round found is found again.
        let is_better = best.as_ref().is_none_or(|(least, _, before)| {
            let equal = least * ROUNDING + ROUNDING;
            squares < least - equal || squares <= least + equal && open.len() > before.len()
        });
        if is_better {
            best = Some((squares, solved, open));
        }
    }
    let Some((_, solved, open)) = best else {
        return Vec::new();
    };
    for &constant in &open {
        let factor = solved[constant as usize];
        let value = if constant.is_rate() {
            1.0 / factor
        } else {
            factor
        };
        machine.set(constant, value);
    }
    open
}

/// A pivot below this share of its column's norm is rounding: other columns determine this one.
const LEAST_PIVOT: f64 = 1e-9;

/// Returns the factors of the columns `open` that bring each row's sum nearest to 1; all other columns have the
/// factors given. `None` if the rows do not determine one of them, or its best factor is not positive.
fn least_squares(rows: &[Terms], factors: &[f64; CONSTANTS], open: &[usize]) -> Option<Vec<f64>> {
    let norm = |at: usize| rows.iter().map(|row| row[at] * row[at]).sum::<f64>().sqrt();
    let norms: Vec<f64> = open.iter().map(|&at| norm(at)).collect();
    if norms.contains(&0.0) {
        return None;
    }
    // The normal equations, each column scaled to length 1; the last column is the right-hand side.
    let size = open.len();
    let mut matrix = vec![vec![0.0; size + 1]; size];
    for row in rows {
        let closed = (0..CONSTANTS).filter(|at| !open.contains(at));
        let target = 1.0 - closed.map(|at| row[at] * factors[at]).sum::<f64>();
        for i in 0..size {
            let scaled = row[open[i]] / norms[i];
            for j in 0..size {
                matrix[i][j] += scaled * row[open[j]] / norms[j];
            }
            matrix[i][size] += scaled * target;
        }
    }
    // The matrix is symmetric and not negative: elimination needs no exchange of rows.
    for pivot in 0..size {
        if matrix[pivot][pivot] < LEAST_PIVOT {
            return None;
        }
        let reduced = matrix[pivot].clone();
        for row in &mut matrix[pivot + 1..] {
            let factor = row[pivot] / reduced[pivot];
            for (value, subtracted) in row.iter_mut().zip(&reduced) {
                *value -= factor * subtracted;
            }
        }
    }
    let mut solution = vec![0.0; size];
    for at in (0..size).rev() {
        let known: f64 = (at + 1..size).map(|j| matrix[at][j] * solution[j]).sum();
        solution[at] = (matrix[at][size] - known) / matrix[at][at];
    }
    let is_positive = solution.iter().all(|value| *value > 0.0);
    let scaled = solution
        .iter()
        .zip(&norms)
        .map(|(value, norm)| value / norm);
    is_positive.then(|| scaled.collect())
}
