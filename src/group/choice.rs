//! A question to the selector, and its answer.

use crate::backend::abi::*;
use crate::base::names;
use crate::group::provider::Provider;

/// What the selector is asked.
#[derive(Clone, Copy, Debug)]
pub struct Query {
    /// The operation.
    pub operation: CollectiveOperation,
    /// What is reduced; anything where nothing is.
    pub element: ElementType,
    /// How; anything where nothing is.
    pub reduce: ReduceOperation,
    /// Ranks in the group.
    pub world: u32,
    /// As [`CollectiveRow::bytes`] counts them.
    pub bytes: u64,
    /// Whether source and destination are the same memory.
    pub in_place: bool,
    /// Whether the vendor's communicator is open and has these ranks.
    pub vendor: bool,
    /// Whether the multicast object reaches the slots and both ranges at all members.
    pub multicast: bool,
    /// Parts of the inbox by which a reduction can be pushed; 0 where its ranges do not
    /// start at multiples of 16 bytes, too.
    pub push_channels: u32,
}

/// What the caller of a collective leaves open or fixes.
#[derive(Clone, Copy, Debug, Default)]
pub struct Constraints {
    /// [`Algorithm::AUTOMATIC`] for the table's.
    pub algorithm: Algorithm,
    /// `None` for the table's.
    pub blocks: Option<u32>,
    /// `None` for the table's.
    pub threads: Option<u32>,
    /// `None` for the table's.
    pub concurrent: Option<u32>,
    /// Who does it.
    pub provider: Provider,
}

/// How a collective is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Choice {
    /// The algorithm; never [`Algorithm::AUTOMATIC`].
    pub(crate) algorithm: Algorithm,
    /// Blocks of the grid; 0 where no kernel does it.
    pub blocks: u32,
    /// Threads of a block; 0 where no kernel does it.
    pub threads: u32,
    /// Copies under way at once; 0 for as many as there are, by the copy engine for as many as the size
    /// is worth.
    pub concurrent: u32,
}

impl Choice {
    /// The algorithm.
    pub fn algorithm(&self) -> names::Algorithm {
        // The selector knows no other numbers, and rows with others are refused when they are read.
        names::Algorithm::of(self.algorithm).unwrap_or(names::Algorithm::Push)
    }
}
