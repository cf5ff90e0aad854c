//! The kernel families of collectives, and the limits of their grids.
//!
//! One table of families, from which the selector, launches and residency checks derive.

use crate::backend::abi::*;

/// A kernel, and whether it is instantiated per element type or moves bytes.
const KERNELS: [(CollectiveKernel, bool); 13] = [
    (CollectiveKernel::MOVE, false),
    (CollectiveKernel::PACKETS, false),
    (CollectiveKernel::PIECES, false),
    (CollectiveKernel::MOVE_LAMPORT, false),
    (CollectiveKernel::EXCHANGE, false),
    (CollectiveKernel::SWAP, false),
    (CollectiveKernel::MULTICAST_MOVE, false),
    (CollectiveKernel::REDUCE, true),
    (CollectiveKernel::REDUCE_PACKETS, true),
    (CollectiveKernel::REDUCE_PUSH, true),
    (CollectiveKernel::REDUCE_LAMPORT, true),
    (CollectiveKernel::REDUCE_NORM, true),
    (CollectiveKernel::MULTICAST_REDUCE, true),
];
/// Element types, numbered from 1 on.
const ELEMENTS: usize = ElementTypeCode::F8_E5M2.0 as usize;
/// Kernel families: first those that move bytes, then those that are instantiated per element type.
pub const FAMILIES: usize = {
    let (mut count, mut kernel) = (0, 0);
    while kernel < KERNELS.len() {
        count += if KERNELS[kernel].1 { ELEMENTS } else { 1 };
        kernel += 1;
    }
    count
};

/// Returns all families, in the order of [`index`].
pub fn all() -> impl Iterator<Item = (CollectiveKernel, ElementTypeCode)> {
    KERNELS.iter().flat_map(|&(kernel, typed)| {
        let elements = match typed {
            true => 1..=ELEMENTS as u32,
            false => ElementTypeCode::U8.0..=ElementTypeCode::U8.0,
        };
        elements.map(move |element| (kernel, ElementTypeCode(element)))
    })
}

/// Returns the index of a family; `None` for an unknown kernel or element type.
pub fn index(kernel: CollectiveKernel, element: ElementTypeCode) -> Option<usize> {
    let element = (element.0 as usize)
        .checked_sub(1)
        .filter(|&index| index < ELEMENTS)?;
    let mut first = 0;
    for (one, typed) in KERNELS {
        if one == kernel {
            return Some(first + if typed { element } else { 0 });
        }
        first += if typed { ELEMENTS } else { 1 };
    }
    None
}

/// Returns whether a kernel uses multicast addresses.
pub fn is_multicast(kernel: CollectiveKernel) -> bool {
    [
        CollectiveKernel::MULTICAST_MOVE,
        CollectiveKernel::MULTICAST_REDUCE,
    ]
    .contains(&kernel)
}

/// Returns the most blocks that a grid of the kernel can have, by the memory with which its blocks synchronize.
pub fn most_blocks(kernel: CollectiveKernel) -> u32 {
    match kernel {
        CollectiveKernel::PACKETS | CollectiveKernel::REDUCE_PACKETS => PACKET_BLOCKS,
        _ => SLOT_BLOCKS,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_family_is_found_where_it_stands() {
        assert_eq!(all().count(), FAMILIES);
        for (place, (kernel, element)) in all().enumerate() {
            assert_eq!(index(kernel, element), Some(place), "{}", kernel.name());
        }
        assert_eq!(index(CollectiveKernel::REDUCE, ElementTypeCode(0)), None);
    }
}
