//! The closed sets of the public API as enums. In the plugin's function table they are numbers, since a backend
//! may be older or newer.

use crate::backend::abi;
use serde::{Deserialize, Serialize};

/// Declares an enum whose values stand for numbers of the plugin's function table.
macro_rules! closed {
    ($(#[$doc:meta])* $name:ident of $raw:ident { $($(#[$vdoc:meta])* $variant:ident = $constant:ident,)+ }) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum $name {
            $($(#[$vdoc])* $variant,)+
        }

        impl $name {
            /// All values.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the name used in logs, reports and tuning tables.
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
    /// Operator of a reduction.
    ReduceOp of ReduceOpCode {
        /// The sum; integers wrap.
        Sum = SUM,
        /// The sum divided by the number of ranks; integers are truncated. NCCL and RCCL let a sum of integers wrap before
        /// they divide, so they average integers only if they are named.
        Average = AVERAGE,
        /// The minimum; NaN if any is NaN.
        Minimum = MINIMUM,
        /// The maximum; NaN if any is NaN.
        Maximum = MAXIMUM,
        /// The product; integers wrap.
        Product = PRODUCT,
    }
}

closed! {
    /// Algorithm of a collective. Not every algorithm fits every operation.
    #[non_exhaustive]
    Algorithm of AlgorithmCode {
        /// LL packets, which carry a flag beside the data: no barrier, twice the bytes. One-shot.
        Ll = PACKETS,
        /// LL packets twice: a reduce-scatter, then an all-gather of its results.
        LlTwoShot = PACKETS_TWO_SHOT,
        /// Lamport packets: data that is its own flag, without a barrier. One-shot, on channel 0. They carry sums and
        /// averages of floating-point types of at most 32 bits (all-reduce, reduce-scatter, reduce) without more bytes, and
        /// moves of any type (all-gather of equal parts, all-to-all, broadcast, gather, scatter) with 16 bytes of marks for
        /// every 496 of data. A long message
        /// takes several launches: on GPUs one launch carries 4 MiB to each peer in a group of two, less in larger
        /// groups. In symmetric buffers, sums of 8-bit types, and moves from or to addresses that are no multiples of 16, go
        /// up to 1 MiB to each peer, and sums of wider types at such addresses up to 4 MiB. LL packets do all other calls. A
        /// 32-bit word whose bits are all set, which is NaN, is added without its sign bit, and moved as it is.
        Lamport = LAMPORT,
        /// Lamport packets twice, in one launch: a reduce-scatter, then an all-gather of its results. Only for an
        /// all-reduce, of the sums and averages that [`Algorithm::Lamport`] carries, on the same channel; LL packets twice do
        /// all other calls.
        LamportTwoShot = LAMPORT_TWO_SHOT,
        /// Between two barriers, every rank loads all it needs from its peers and reduces it itself.
        OneShot = ONE_SHOT,
        /// Between two barriers, every rank loads and reduces its share and stores it to all; a broadcast
        /// scatters, then gathers.
        TwoShot = TWO_SHOT,
        /// Between two barriers, every rank stores to its peers. A reduction pushes its inputs into the inboxes
        /// of the ranks that reduce them.
        Push = PUSH,
        /// Every rank pushes its data in pieces through its peers' inboxes, without a barrier; an all-reduce does so
        /// twice. On channel 0 of the whole world, and reductions on GPUs of f16, bf16 and f32 only; LL packets do all
        /// other calls.
        Pieces = PIECES,
        /// Between two barriers, every rank loads from its peers.
        Pull = PULL,
        /// Between two barriers, each pair of ranks swaps its parts; each rank swaps half of them. Only for an
        /// all-to-all in place.
        Swap = SWAP,
        /// Copies by the copy engine; behind a switch, each step starts when the neighbor has finished the one
        /// before it. In an all-reduce it gathers, after a kernel has reduced each rank's share.
        CopyEngine = COPY_ENGINE,
        /// NVLS: between two barriers, every rank loads its share from a multicast address, reduced by the
        /// switch, and stores it to one. Operations that only reduce load only; operations that only distribute
        /// store only.
        Multicast = MULTICAST,
        /// NVLS: between two barriers, every rank loads all it needs from a multicast address, reduced by the
        /// switch. An all-reduce in place cannot use it.
        MulticastOneShot = MULTICAST_ONE_SHOT,
        /// Sends and receives: the receiver loads from the sender once both have arrived.
        Rendezvous = RENDEZVOUS,
        /// NCCL or RCCL.
        Nccl = VENDOR,
    }
}

closed! {
    /// Condition that ends a wait for a word, compared with the wait's value. Comparisons wrap, as those of
    /// epochs do: a word is ahead of a value if it is greater by less than half of the range.
    Condition of ConditionCode {
        /// The word equals the value.
        Equal = EQUAL,
        /// The word differs from the value.
        NotEqual = NOT_EQUAL,
        /// The word is ahead of the value, or equal.
        GreaterOrEqual = GREATER_OR_EQUAL,
        /// The word is ahead of the value.
        Greater = GREATER,
        /// The word is behind the value, or equal.
        LessOrEqual = LESS_OR_EQUAL,
        /// The word is behind the value.
        Less = LESS,
    }
}

closed! {
    /// Method by which a transfer moves its bytes.
    #[non_exhaustive]
    Method of MethodCode {
        /// The copy engine, which uses no compute units.
        CopyEngine = COPY_ENGINE,
        /// A kernel of 16-byte loads and stores, unrolled.
        Vector = VECTOR,
        /// A kernel of bulk asynchronous copies through shared memory (TMA on NVIDIA, from sm_90 on).
        Bulk = BULK,
        /// A kernel of four warps, each with a quarter of the bytes, with 4-byte loads unrolled by four:
        /// TileScale's published method, for comparison.
        Unrolled = UNROLLED,
    }
}

closed! {
    /// Direction of a transfer: which side is remote.
    Direction of DirectionCode {
        /// The destination is remote: a store to the peer.
        Put = PUT,
        /// The source is remote: a load from the peer.
        Get = GET,
        /// Neither is remote: both are this rank's.
        Local = LOCAL,
    }
}

closed! {
    /// Element types that collectives can reduce.
    #[non_exhaustive]
    ElementType of ElementTypeCode {
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
    /// Returns the bytes per element.
    pub fn bytes(self) -> u64 {
        abi::ElementTypeCode::from(self).bytes()
    }
}

closed! {
    /// Collective operations.
    #[non_exhaustive]
    CollectiveOperation of CollectiveOperationCode {
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
    /// Storage order of a matrix: which elements are adjacent. In tuning and shape files `row-major` or
    /// `column-major`.
    #[derive(Default, Serialize, Deserialize)]
    MatrixOrder of MatrixOrderCode {
        /// Row-major: the elements of a row.
        #[default]
        #[serde(rename = "row-major")]
        Rows = ROWS,
        /// Column-major: the elements of a column.
        #[serde(rename = "column-major")]
        Columns = COLUMNS,
    }
}

closed! {
    /// Division of the matrix `A` of an all-gather + GEMM among the ranks. In tuning and shape files `rows` or
    /// `columns`.
    #[derive(Default, Serialize, Deserialize)]
    #[serde(rename_all = "snake_case")]
    Sharding of ShardingCode {
        /// Each rank has a range of rows.
        #[default]
        Rows = ROWS,
        /// Each rank has a range of columns.
        Columns = COLUMNS,
    }
}

closed! {
    /// Placement of the words of signals. Barriers of all ranks always use device memory.
    #[derive(Default)]
    SignalPlacement of SignalPlacementCode {
        /// In device memory of the waiting rank, where kernels poll them. Counters are on the device, so calls
        /// can be captured.
        #[default]
        Device = DEVICE,
        /// In host memory that all ranks share: a stream waits in hardware, without compute units. Counters are
        /// on the host, so signals cannot be captured.
        Host = HOST,
    }
}

closed! {
    /// Strategy by which ranks share memory.
    #[non_exhaustive]
    ShareKind of ShareKindCode {
        /// A memory file on the host.
        MemoryFile = MEMORY_FILE,
        /// Virtual memory management (VMM) of CUDA or HIP, exported as a file descriptor.
        VmmFileDescriptor = VMM_FILE_DESCRIPTOR,
        /// CUDA IPC or HIP IPC: a handle of 64 bytes.
        LegacyIpc = LEGACY_IPC,
        /// Plain addresses, between ranks of one process.
        SameProcess = SAME_PROCESS,
        /// A dma-buf of an address range, exported and imported as a file descriptor (HIP, from ROCm 7.0 on).
        AddressRange = ADDRESS_RANGE,
    }
}

closed! {
    /// Support of multicast (NVLS) in collectives.
    #[derive(Default)]
    MulticastSupport of MulticastSupportCode {
        /// No multicast.
        #[default]
        None = NONE,
        /// Multicast by the switch.
        Hardware = HARDWARE,
        /// Emulated with the members' own addresses, in the steps of multicast: for tests.
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
        assert_eq!(Algorithm::of(abi::AlgorithmCode::AUTOMATIC), None);
        for &operator in ReduceOp::ALL {
            assert_eq!(ReduceOp::of(operator.into()), Some(operator));
        }
        for &condition in Condition::ALL {
            assert_eq!(Condition::of(condition.into()), Some(condition));
        }
    }
}
