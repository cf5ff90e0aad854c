//! The closed sets of the public API as enums. Across the table of functions they are numbers, since a backend may
//! be older or newer.

use crate::backend::abi;

/// Declares an enum whose values stand for numbers of the table.
macro_rules! closed {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($(#[$vdoc:meta])* $variant:ident = $constant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// The name in logs, reports and tuning tables.
            pub fn name(self) -> &'static str {
                abi::$raw::from(self).name()
            }

            #[allow(dead_code, reason = "not every set is read back")]
            pub(crate) fn of(raw: abi::$raw) -> Option<Self> {
                Self::ALL.iter().copied().find(|&one| abi::$raw::from(one) == raw)
            }
        }

        impl From<$name> for abi::$raw {
            #[inline]
            fn from(value: $name) -> Self {
                match value {
                    $($name::$variant => Self::$constant,)+
                }
            }
        }
    };
}

closed! {
    /// How a reduction makes one element of several.
    ReduceOp of ReduceOperation {
        /// The sum; integers wrap.
        Sum = SUM,
        /// The sum divided by the number of ranks; integers are truncated.
        Average = AVERAGE,
        /// The least; NaN if any is NaN.
        Minimum = MINIMUM,
        /// The greatest; NaN if any is NaN.
        Maximum = MAXIMUM,
        /// The product; integers wrap.
        Product = PRODUCT,
    }
}

closed! {
    /// How a collective is done. Not every algorithm fits every operation.
    #[non_exhaustive]
    Algorithm of Algorithm {
        /// LL packets, which carry their flag: no barrier, twice the bytes. One-shot.
        Ll = PACKETS,
        /// LL packets twice: a reduce-scatter, then an all-gather of its results.
        LlTwoShot = PACKETS_TWO_SHOT,
        /// Between two barriers every rank pulls all it needs and reduces it itself.
        OneShot = ONE_SHOT,
        /// Between two barriers every rank pulls and reduces its part and pushes it to all; a broadcast scatters,
        /// then gathers.
        TwoShot = TWO_SHOT,
        /// Between two barriers every rank stores to its peers.
        Push = PUSH,
        /// Between two barriers every rank loads from its peers.
        Pull = PULL,
        /// Between two barriers the parts of each pair of ranks change places; each rank swaps half of them. An
        /// all-to-all in place, and nothing else.
        Swap = SWAP,
        /// Copies by the copy engine, each step when the neighbour has finished the one before it. In an
        /// all-reduce it gathers, once a kernel has reduced each rank's share.
        CopyEngine = COPY_ENGINE,
        /// NVLS: between two barriers every rank loads its share from a multicast address, reduced by the switch,
        /// and stores it to one. An operation that only reduces, or only hands out, does half of it.
        Multicast = MULTICAST,
        /// NVLS: between two barriers every rank loads all it needs from a multicast address, reduced by the
        /// switch. Never in place.
        MulticastOneShot = MULTICAST_ONE_SHOT,
        /// The receiver loads from the sender once both are there: sends and receives.
        Rendezvous = RENDEZVOUS,
        /// NCCL or RCCL.
        Nccl = VENDOR,
    }
}

closed! {
    /// When a wait for a word is over: the word, compared with the wait's value. The order is that of epochs:
    /// wrapping, so that a word is greater if it is less than half the range ahead.
    Condition of Condition {
        /// Equal.
        Equal = EQUAL,
        /// Not equal.
        NotEqual = NOT_EQUAL,
        /// Ahead or equal.
        GreaterOrEqual = GREATER_OR_EQUAL,
        /// Ahead.
        Greater = GREATER,
        /// Behind or equal.
        LessOrEqual = LESS_OR_EQUAL,
        /// Behind.
        Less = LESS,
    }
}

closed! {
    /// How a transfer moves its bytes.
    #[non_exhaustive]
    Method of Method {
        /// The copy engine: no compute unit is used.
        CopyEngine = COPY_ENGINE,
        /// A kernel of 16-byte loads and stores, unrolled.
        Vector = VECTOR,
        /// A kernel of bulk asynchronous copies through shared memory (TMA on NVIDIA, from sm_90 on).
        Bulk = BULK,
        /// A kernel of four warps, a quarter of the bytes each, with 4-byte loads unrolled by four: TileScale's
        /// published method, for comparison.
        Unrolled = UNROLLED,
    }
}

closed! {
    /// Which side of a transfer is remote.
    Direction of Direction {
        /// The destination: a store to the peer.
        Put = PUT,
        /// The source: a load from the peer.
        Get = GET,
        /// Neither: both are this rank's.
        Local = LOCAL,
    }
}

closed! {
    /// Types of elements that collectives can reduce.
    #[non_exhaustive]
    ElementType of ElementType {
        /// `i8`.
        I8 = I8,
        /// `u8`.
        U8 = U8,
        /// `i16`.
        I16 = I16,
        /// `u16`.
        U16 = U16,
        /// `i32`.
        I32 = I32,
        /// `u32`.
        U32 = U32,
        /// `i64`.
        I64 = I64,
        /// `u64`.
        U64 = U64,
        /// `half::f16`.
        F16 = F16,
        /// `half::bf16`.
        Bf16 = BF16,
        /// `f32`.
        F32 = F32,
        /// `f64`.
        F64 = F64,
        /// [`crate::F8E4M3`].
        F8E4M3 = F8_E4M3,
        /// [`crate::F8E5M2`].
        F8E5M2 = F8_E5M2,
    }
}

impl ElementType {
    /// Bytes of an element.
    pub fn bytes(self) -> u64 {
        abi::ElementType::from(self).bytes()
    }
}

closed! {
    /// The collectives.
    #[non_exhaustive]
    CollectiveOperation of CollectiveOperation {
        /// [`crate::Collectives::barrier`].
        Barrier = BARRIER,
        /// [`crate::Collectives::broadcast`].
        Broadcast = BROADCAST,
        /// [`crate::Collectives::all_gather`].
        AllGather = ALL_GATHER,
        /// [`crate::Collectives::all_gather_v`].
        AllGatherV = ALL_GATHER_V,
        /// [`crate::Collectives::reduce`].
        Reduce = REDUCE,
        /// [`crate::Collectives::reduce_scatter`].
        ReduceScatter = REDUCE_SCATTER,
        /// [`crate::Collectives::all_reduce`].
        AllReduce = ALL_REDUCE,
        /// [`crate::Collectives::all_to_all`].
        AllToAll = ALL_TO_ALL,
        /// [`crate::Collectives::all_to_all_v`].
        AllToAllV = ALL_TO_ALL_V,
        /// [`crate::Collectives::gather`].
        Gather = GATHER,
        /// [`crate::Collectives::scatter`].
        Scatter = SCATTER,
        /// [`crate::Exchange`]: sends and receives.
        Exchange = EXCHANGE,
    }
}

closed! {
    /// Which elements of a matrix are next to each other.
    MatrixOrder of MatrixOrder {
        /// Those of a row.
        Rows = ROWS,
        /// Those of a column.
        Columns = COLUMNS,
    }
}

closed! {
    /// How the ranks divide the matrix `A` of an all-gather + GEMM.
    Sharding of Sharding {
        /// Each rank has some of the rows.
        Rows = ROWS,
        /// Each rank has some of the columns.
        Columns = COLUMNS,
    }
}

closed! {
    /// Where the words of signals and barriers are.
    #[derive(Default)]
    SignalPlacement of SignalPlacement {
        /// In device memory of the rank that waits, where kernels poll them. Counts live on the device and can be
        /// captured.
        #[default]
        Device = DEVICE,
        /// In host memory that all ranks share: a stream waits in hardware and no compute unit is used. Counts
        /// live on the host, so calls cannot be captured.
        Host = HOST,
    }
}

closed! {
    /// How ranks share memory.
    #[non_exhaustive]
    ShareKind of ShareKind {
        /// A memory file on the host.
        MemoryFile = MEMORY_FILE,
        /// Virtual memory management of CUDA or HIP, exported as a file descriptor.
        VmmFileDescriptor = VMM_FILE_DESCRIPTOR,
        /// CUDA IPC or HIP IPC: a handle of 64 bytes.
        LegacyIpc = LEGACY_IPC,
        /// Addresses as they are, between ranks of one process.
        SameProcess = SAME_PROCESS,
    }
}

closed! {
    /// Whether collectives go through multicast (NVLS).
    #[derive(Default)]
    MulticastSupport of MulticastSupport {
        /// There is none.
        #[default]
        None = NONE,
        /// By the switch.
        Hardware = HARDWARE,
        /// By the members' own addresses, in the steps that multicast takes: for tests.
        Emulated = EMULATED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_has_a_number_of_its_own() {
        for &algorithm in Algorithm::ALL {
            assert_eq!(Algorithm::of(algorithm.into()), Some(algorithm));
        }
        assert_eq!(Algorithm::of(abi::Algorithm::AUTOMATIC), None);
        for &operator in ReduceOp::ALL {
            assert_eq!(ReduceOp::of(operator.into()), Some(operator));
        }
        for &condition in Condition::ALL {
            assert_eq!(Condition::of(condition.into()), Some(condition));
        }
    }
}
