//! Checks of what a caller names, as far as they depend neither on the device nor on the size of the group. The members of
//! a group over nodes make different calls within their nodes, or none, and must be refused alike.

use crate::backend::abi::*;
use crate::group::choice::Constraints;
use crate::group::families::most_blocks;
use crate::group::operations::{algorithms, kernel_of};

/// Threads of a block are a multiple of this (a warp, or half a wavefront).
pub const THREAD_STEP: u32 = 32;
/// Most threads of a block, on every supported device.
pub const MOST_THREADS: u32 = 1024;

/// Checks the algorithm and the grid that a caller names for an operation.
///
/// # Errors
/// The reason, with what is possible.
pub fn check_named(
    operation: CollectiveOperationCode,
    constraints: &Constraints,
) -> Result<(), String> {
    let algorithm = constraints.algorithm;
    if algorithm == AlgorithmCode::AUTOMATIC {
        return check_grid(SLOT_BLOCKS, "a collective", constraints);
    }
    let possible = algorithms(operation);
    if !possible.contains(&algorithm) {
        let names: Vec<&str> = possible.iter().map(|one| one.name()).collect();
        let why = has_no_algorithm(operation, algorithm);
        return Err(format!("{why}; possible algorithms: {}", names.join(", ")));
    }
    match kernel_of(operation, algorithm) {
        Some(kernel) => check_grid(most_blocks(kernel), algorithm.name(), constraints),
        None => Ok(()),
    }
}

/// Describes that an operation does not have the algorithm.
pub fn has_no_algorithm(operation: CollectiveOperationCode, algorithm: AlgorithmCode) -> String {
    format!("{} has no algorithm {}", operation.name(), algorithm.name())
}

/// Checks the grid that a caller names for a kernel of at most `most` blocks.
///
/// # Errors
/// The reason, with what is possible.
pub fn check_grid(most: u32, of: &str, constraints: &Constraints) -> Result<(), String> {
    if let Some(blocks) = constraints.blocks
        && (blocks == 0 || blocks > most)
    {
        return Err(format!("{blocks} blocks; use 1 to {most} for {of}"));
    }
    if let Some(threads) = constraints.threads
        && (threads == 0 || threads > MOST_THREADS || !threads.is_multiple_of(THREAD_STEP))
    {
        return Err(format!(
            "{threads} threads; use a multiple of {THREAD_STEP}, at most {MOST_THREADS}"
        ));
    }
    Ok(())
}
