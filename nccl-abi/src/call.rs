//! A collective call.

use crate::abi::{Comm, Stream};
use crate::element::{element_of, is_integer, operator_of};
use std::ffi::{c_int, c_void};
use symmem::{CollectiveOperation, ElementType, ReduceOp};

/// A collective that symmem does too.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    AllReduce,
    Reduce,
    ReduceScatter,
    AllGather,
    Broadcast,
    AllToAll,
}

impl Kind {
    pub const ALL: [Self; 6] = [
        Self::AllReduce,
        Self::Reduce,
        Self::ReduceScatter,
        Self::AllGather,
        Self::Broadcast,
        Self::AllToAll,
    ];

    /// Returns its name in `nccl.h`.
    pub fn name(self) -> &'static str {
        match self {
            Self::AllReduce => "ncclAllReduce",
            Self::Reduce => "ncclReduce",
            Self::ReduceScatter => "ncclReduceScatter",
            Self::AllGather => "ncclAllGather",
            Self::Broadcast => "ncclBroadcast",
            Self::AllToAll => "ncclAlltoAll",
        }
    }

    /// Returns its name in the library.
    pub fn operation(self) -> CollectiveOperation {
        match self {
            Self::AllReduce => CollectiveOperation::AllReduce,
            Self::Reduce => CollectiveOperation::Reduce,
            Self::ReduceScatter => CollectiveOperation::ReduceScatter,
            Self::AllGather => CollectiveOperation::AllGather,
            Self::Broadcast => CollectiveOperation::Broadcast,
            Self::AllToAll => CollectiveOperation::AllToAll,
        }
    }
}

/// The arguments of a collective call, as the program gave them.
#[derive(Clone, Copy)]
pub struct Call {
    pub kind: Kind,
    pub source: *const c_void,
    pub destination: *mut c_void,
    /// Elements of a part.
    pub count: usize,
    pub element: c_int,
    /// The reduction's number; [`Call::MOVES`] for calls that move only.
    pub reduce: c_int,
    /// The root; 0 for calls that have none.
    pub root: c_int,
    pub comm: Comm,
    pub stream: Stream,
}

impl Call {
    /// In place of a reduction, for calls that move only.
    pub const MOVES: c_int = 0;

    /// Returns element type, its size, and the reduction, or that of [`Call::MOVES`]; `None` if only NCCL has them: a
    /// reduction that the program made, and the average of integers, which NCCL divides after a sum that may overflow.
    pub fn types(&self) -> Option<(ElementType, usize, ReduceOp)> {
        let (element, size) = element_of(self.element)?;
        let operator = operator_of(self.reduce)?;
        let of_nccl = operator == ReduceOp::Average && is_integer(element);
        (!of_nccl).then_some((element, size, operator))
    }
}
