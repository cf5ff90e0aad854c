//! The algorithms of each operation, their kernels, and the reductions of NVLS.

use crate::backend::abi::*;

/// Returns the kernel of an operation with an algorithm; `None` if the copy engine or NCCL does all of it.
pub fn kernel_of(
    operation: CollectiveOperationCode,
    algorithm: AlgorithmCode,
) -> Option<CollectiveKernel> {
    match (algorithm, reduces(operation)) {
        (AlgorithmCode::PACKETS | AlgorithmCode::PACKETS_TWO_SHOT, true) => {
            Some(CollectiveKernel::REDUCE_PACKETS)
        }
        (AlgorithmCode::LAMPORT | AlgorithmCode::LAMPORT_TWO_SHOT, true) => {
            Some(CollectiveKernel::REDUCE_LAMPORT)
        }
        (AlgorithmCode::LAMPORT, false) => Some(CollectiveKernel::MOVE_LAMPORT),
        // In an all-reduce, the other kernel gathers what this one has reduced.
        (AlgorithmCode::PUSH | AlgorithmCode::PIECES, true) => Some(CollectiveKernel::REDUCE_PUSH),
        (AlgorithmCode::PIECES, false) => Some(CollectiveKernel::PIECES),
        (AlgorithmCode::PACKETS, false) => Some(CollectiveKernel::PACKETS),
        // The copy engine gathers the shares that a kernel has reduced.
        (AlgorithmCode::ONE_SHOT | AlgorithmCode::TWO_SHOT | AlgorithmCode::COPY_ENGINE, true) => {
            Some(CollectiveKernel::REDUCE)
        }
        (AlgorithmCode::TWO_SHOT | AlgorithmCode::PUSH | AlgorithmCode::PULL, false) => {
            Some(CollectiveKernel::MOVE)
        }
        (AlgorithmCode::MULTICAST | AlgorithmCode::MULTICAST_ONE_SHOT, true) => {
            Some(CollectiveKernel::MULTICAST_REDUCE)
        }
        (AlgorithmCode::MULTICAST, false) => Some(CollectiveKernel::MULTICAST_MOVE),
        (AlgorithmCode::SWAP, _) => Some(CollectiveKernel::SWAP),
        (AlgorithmCode::RENDEZVOUS, _) => Some(CollectiveKernel::EXCHANGE),
        _ => None,
    }
}

/// Returns whether an operation reduces.
pub fn reduces(operation: CollectiveOperationCode) -> bool {
    matches!(
        operation,
        CollectiveOperationCode::ALL_REDUCE
            | CollectiveOperationCode::REDUCE
            | CollectiveOperationCode::REDUCE_SCATTER
    )
}

/// Returns the algorithms of an operation.
pub fn algorithms(operation: CollectiveOperationCode) -> &'static [AlgorithmCode] {
    use AlgorithmCode as A;
    match operation {
        CollectiveOperationCode::ALL_REDUCE => &[
            A::PACKETS,
            A::PACKETS_TWO_SHOT,
            A::ONE_SHOT,
            A::TWO_SHOT,
            A::PUSH,
            A::COPY_ENGINE,
            A::VENDOR,
            A::MULTICAST,
            A::MULTICAST_ONE_SHOT,
            A::LAMPORT,
            A::LAMPORT_TWO_SHOT,
            A::PIECES,
        ],
        CollectiveOperationCode::REDUCE => &[
            A::PACKETS,
            A::ONE_SHOT,
            A::TWO_SHOT,
            A::PUSH,
            A::VENDOR,
            A::LAMPORT,
            A::PIECES,
        ],
        CollectiveOperationCode::REDUCE_SCATTER => &[
            A::PACKETS,
            A::ONE_SHOT,
            A::PUSH,
            A::VENDOR,
            A::MULTICAST,
            A::LAMPORT,
            A::PIECES,
        ],
        CollectiveOperationCode::BROADCAST => &[
            A::PACKETS,
            A::PUSH,
            A::PULL,
            A::TWO_SHOT,
            A::VENDOR,
            A::MULTICAST,
            A::LAMPORT,
            A::PIECES,
        ],
        CollectiveOperationCode::ALL_GATHER => &[
            A::PACKETS,
            A::PUSH,
            A::PULL,
            A::COPY_ENGINE,
            A::VENDOR,
            A::MULTICAST,
            A::LAMPORT,
            A::PIECES,
        ],
        // Parts of different lengths, or of none, do not go in Lamport packets.
        CollectiveOperationCode::ALL_GATHER_V => &[
            A::PACKETS,
            A::PUSH,
            A::PULL,
            A::COPY_ENGINE,
            A::VENDOR,
            A::MULTICAST,
            A::PIECES,
        ],
        CollectiveOperationCode::ALL_TO_ALL => &[
            A::PACKETS,
            A::PUSH,
            A::PULL,
            A::SWAP,
            A::COPY_ENGINE,
            A::VENDOR,
            A::LAMPORT,
            A::PIECES,
        ],
        CollectiveOperationCode::GATHER | CollectiveOperationCode::SCATTER => &[
            A::PACKETS,
            A::PUSH,
            A::PULL,
            A::VENDOR,
            A::LAMPORT,
            A::PIECES,
        ],
        CollectiveOperationCode::EXCHANGE | CollectiveOperationCode::ALL_TO_ALL_V => {
            &[A::RENDEZVOUS, A::VENDOR]
        }
        CollectiveOperationCode::BARRIER => &[A::PUSH, A::MULTICAST],
        _ => &[],
    }
}

/// Returns the algorithms to try, in order, if no row serves. The last of each list serves every call: an older
/// backend without the swap kernel has LL packets.
pub fn fallbacks(operation: CollectiveOperationCode) -> &'static [AlgorithmCode] {
    use AlgorithmCode as A;
    match operation {
        CollectiveOperationCode::ALL_REDUCE
        | CollectiveOperationCode::REDUCE
        | CollectiveOperationCode::BROADCAST => &[A::TWO_SHOT],
        CollectiveOperationCode::REDUCE_SCATTER => &[A::ONE_SHOT],
        CollectiveOperationCode::ALL_TO_ALL => &[A::PUSH, A::SWAP, A::PACKETS],
        CollectiveOperationCode::EXCHANGE | CollectiveOperationCode::ALL_TO_ALL_V => {
            &[A::RENDEZVOUS]
        }
        // Every receiver loads its own part: no rank stores to all.
        CollectiveOperationCode::SCATTER => &[A::PULL],
        _ => &[A::PUSH],
    }
}

/// Returns whether an algorithm needs no peer's address of source or destination: data goes through inboxes.
pub fn takes_own_memory(algorithm: AlgorithmCode) -> bool {
    use AlgorithmCode as A;
    matches!(
        algorithm,
        A::PACKETS | A::PACKETS_TWO_SHOT | A::LAMPORT | A::LAMPORT_TWO_SHOT | A::PIECES | A::VENDOR
    )
}

/// Returns the algorithms to try, in order, if no row serves a call of memory that only each rank knows.
pub fn own_memory_fallbacks(operation: CollectiveOperationCode) -> &'static [AlgorithmCode] {
    match operation {
        CollectiveOperationCode::ALL_REDUCE => &[AlgorithmCode::PACKETS_TWO_SHOT],
        _ => &[AlgorithmCode::PACKETS],
    }
}

/// Returns whether an algorithm supports an operation in place, or out of place.
pub fn fits_place(
    operation: CollectiveOperationCode,
    algorithm: AlgorithmCode,
    in_place: bool,
) -> bool {
    match (operation, in_place) {
        // A peer may still have to load elements that would be overwritten.
        (CollectiveOperationCode::ALL_REDUCE, true) => !matches!(
            algorithm,
            AlgorithmCode::ONE_SHOT | AlgorithmCode::MULTICAST_ONE_SHOT
        ),
        (CollectiveOperationCode::ALL_TO_ALL, true) => {
            matches!(
                algorithm,
                AlgorithmCode::PACKETS
                    | AlgorithmCode::SWAP
                    | AlgorithmCode::LAMPORT
                    | AlgorithmCode::PIECES
            )
        }
        // Swapping would overwrite the source.
        (CollectiveOperationCode::ALL_TO_ALL, false) => algorithm != AlgorithmCode::SWAP,
        _ => true,
    }
}

/// Returns the operations whose tuning rows apply to an operation, its own first: they move the same bytes.
pub fn tuning_sources(operation: CollectiveOperationCode) -> &'static [CollectiveOperationCode] {
    use CollectiveOperationCode as O;
    match operation {
        O::ALL_REDUCE => &[O::ALL_REDUCE],
        O::REDUCE => &[O::REDUCE, O::ALL_REDUCE],
        O::REDUCE_SCATTER => &[O::REDUCE_SCATTER],
        O::ALL_GATHER => &[O::ALL_GATHER],
        O::ALL_GATHER_V => &[O::ALL_GATHER_V, O::ALL_GATHER],
        O::ALL_TO_ALL => &[O::ALL_TO_ALL],
        O::BROADCAST => &[O::BROADCAST],
        O::GATHER => &[O::GATHER],
        O::SCATTER => &[O::SCATTER],
        O::EXCHANGE => &[O::EXCHANGE],
        O::ALL_TO_ALL_V => &[O::ALL_TO_ALL_V, O::EXCHANGE],
        O::BARRIER => &[O::BARRIER],
        _ => &[],
    }
}

/// Returns whether NCCL and RCCL average elements as symmem does. They add integers in the element type, where the sum may
/// wrap, and divide then; so they average integers only on request.
pub fn nccl_averages_alike(element: ElementTypeCode) -> bool {
    use ElementTypeCode as E;
    let floats = [E::F16, E::BF16, E::F32, E::F64, E::F8_E4M3, E::F8_E5M2];
    floats.contains(&element)
}

/// Returns whether a switch reduces elements with the library's semantics. It computes no products, reduces no
/// 8- or 16-bit integers and sums no signed 64-bit integers. It takes minimum and maximum of integers only: for
/// floating-point types it lacks them, or treats NaN and zeros differently. Few devices sum fp8; the others
/// have no kernel for it. If a call names a multicast algorithm for any other reduction, another algorithm does
/// it ([`crate::Communicator::explain_call`]).
pub fn multicast_reduces(element: ElementTypeCode, reduce: ReduceOpCode) -> bool {
    use ElementTypeCode as E;
    match reduce {
        ReduceOpCode::SUM | ReduceOpCode::AVERAGE => matches!(
            element,
            E::F16 | E::BF16 | E::F32 | E::F64 | E::I32 | E::U32 | E::U64 | E::F8_E4M3 | E::F8_E5M2
        ),
        ReduceOpCode::MINIMUM | ReduceOpCode::MAXIMUM => {
            matches!(element, E::I32 | E::U32 | E::I64 | E::U64)
        }
        _ => false,
    }
}

/// Returns whether NVLS reduces this type only on request. The switch accumulates fp8 in f16; all other
/// algorithms accumulate in f32.
pub fn multicast_only_by_name(element: ElementTypeCode) -> bool {
    matches!(element, ElementTypeCode::F8_E4M3 | ElementTypeCode::F8_E5M2)
}

/// Returns the equivalent algorithm over the members' own addresses.
pub fn without_multicast(
    operation: CollectiveOperationCode,
    algorithm: AlgorithmCode,
) -> AlgorithmCode {
    match (operation, algorithm) {
        (CollectiveOperationCode::ALL_REDUCE, AlgorithmCode::MULTICAST) => AlgorithmCode::TWO_SHOT,
        (CollectiveOperationCode::ALL_REDUCE | CollectiveOperationCode::REDUCE_SCATTER, _) => {
            AlgorithmCode::ONE_SHOT
        }
        _ => AlgorithmCode::PUSH,
    }
}
