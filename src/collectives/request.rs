//! A collective request, and its checks.

use crate::backend::abi::{CollectiveOperationCode, ElementTypeCode, ReduceOpCode};
use crate::collectives::plan::{PartLayout, VECTOR};
use crate::rank::memory_range::MemoryRange;

/// A collective request, as a verb makes it.
pub struct Request<'a> {
    /// The method's name, for errors.
    pub name: &'static str,
    /// The operation.
    pub operation: CollectiveOperationCode,
    /// Element type of a reduction; [`ElementTypeCode::U8`] if the operation moves bytes.
    pub element: ElementTypeCode,
    /// Bytes per element.
    pub element_bytes: u64,
    /// Reduction operator; 0 for operations that do not reduce.
    pub reduce: ReduceOpCode,
    /// The root; 0 for operations without one.
    pub root: usize,
    /// Elements of each rank, if they may differ.
    pub counts: Option<&'a [usize]>,
    /// Distance of the members' parts in the larger range of an all-gather or a reduce-scatter, in bytes, unless they lie
    /// side by side. The range ends with the last part.
    pub stride: Option<u64>,
    /// The destination.
    pub destination: MemoryRange<'a>,
    /// The source.
    pub source: MemoryRange<'a>,
}

impl<'a> Request<'a> {
    /// Returns the request with both ranges as `rank`'s own memory, if one of them is: no algorithm could use the other
    /// at the peers.
    pub fn with_own_memory(&self, rank: usize) -> Self {
        let own = self.destination.is_own() || self.source.is_own();
        let kept = |range: MemoryRange<'a>| if own { range.only_at(rank) } else { range };
        Self {
            destination: kept(self.destination),
            source: kept(self.source),
            ..*self
        }
    }

    /// Returns whether the ranges, and members' parts of them, start at multiples of 16 bytes. Uses only what
    /// is the same on all ranks: in place, the smaller range depends on the rank, so the larger one decides.
    pub fn starts_at_vectors(&self, in_place: bool, parts: &PartLayout<'_>) -> bool {
        let (to, from) = (&self.destination, &self.source);
        let starts = match in_place {
            true if to.bytes() >= from.bytes() => [to.offset(), to.offset()],
            true => [from.offset(), from.offset()],
            false => [to.offset(), from.offset()],
        };
        // In the others' parts, nobody relies on it: NCCL sends and receives them, or broadcasts each.
        let part = match self.operation {
            CollectiveOperationCode::ALL_GATHER
            | CollectiveOperationCode::REDUCE_SCATTER
            | CollectiveOperationCode::ALL_TO_ALL => [parts.offset(1), parts.bytes(0)],
            _ => [0, 0],
        };
        let mut all = starts.into_iter().chain(part);
        all.all(|offset| offset.is_multiple_of(VECTOR))
    }

    /// Returns the size of the call in bytes, as nccl-tests counts it, in a group of `world` members.
    pub fn counted_bytes(&self, world: usize) -> u64 {
        let (to, from) = (self.destination.bytes(), self.source.bytes());
        match (self.counts, self.stride) {
            (Some(_), _) => to,
            (None, Some(_)) => to.min(from) * world as u64,
            (None, None) => to.max(from),
        }
    }

    /// Returns the bytes of the larger range, whose parts have `part` bytes.
    fn whole(&self, part: u64, world: usize) -> u64 {
        let before = self.stride.unwrap_or(part) * (world as u64).saturating_sub(1);
        before.saturating_add(part)
    }

    fn equal_parts(&self, bytes: u64) -> PartLayout<'a> {
        match self.stride {
            Some(stride) => PartLayout::Strided { stride, bytes },
            None => PartLayout::Equal(bytes),
        }
    }

    /// Checks lengths and overlaps in a group of `world` members, of which rank `own` of the communicator is member `rank`.
    /// Returns the parts, and whether the call is in place.
    ///
    /// # Errors
    /// The first violation, as text.
    pub fn validate(
        &self,
        own: usize,
        (world, rank): (usize, usize),
    ) -> std::result::Result<(PartLayout<'a>, bool), String> {
        use CollectiveOperationCode as O;
        if self.root >= world {
            let root = self.root;
            return Err(format!("there is no rank {root} in a group of {world}"));
        }
        let (to, from) = (&self.destination, &self.source);
        let elements = |bytes: u64| bytes / self.element_bytes;
        let wrong = |expected: u64| {
            Err(format!(
                "the destination has {} elements, the source {}; for {world} ranks the destination needs {expected}",
                elements(to.bytes()),
                elements(from.bytes()),
            ))
        };
        let many = world as u64;
        let parts = match self.operation {
            O::ALL_GATHER | O::GATHER if to.bytes() != self.whole(from.bytes(), world) => {
                return wrong(elements(self.whole(from.bytes(), world)));
            }
            O::ALL_GATHER | O::GATHER => self.equal_parts(from.bytes()),
            O::REDUCE_SCATTER | O::SCATTER | O::ALL_TO_ALL
                if self.stride.is_none() && !elements(from.bytes()).is_multiple_of(many) =>
            {
                return Err(format!(
                    "{} elements cannot be divided evenly among {world} ranks",
                    elements(from.bytes())
                ));
            }
            O::REDUCE_SCATTER | O::SCATTER if from.bytes() != self.whole(to.bytes(), world) => {
                return wrong(elements(from.bytes()) / many);
            }
            O::REDUCE_SCATTER | O::SCATTER => self.equal_parts(to.bytes()),
            O::ALL_GATHER_V => {
                let counts = self.counts.unwrap_or_default();
                if counts.len() != world {
                    return Err(format!(
                        "{} counts for {world} ranks; pass one per rank",
                        counts.len()
                    ));
                }
                let bytes = |&count: &usize| (count as u64).saturating_mul(self.element_bytes);
                let total = counts.iter().map(bytes).fold(0, u64::saturating_add);
                if to.bytes() != total || from.bytes() < bytes(&counts[rank]) {
                    return Err(format!(
                        "the counts add up to {} elements, {} of them from this rank, but the destination has {} \
                         and the source {}",
                        elements(total),
                        counts[rank],
                        elements(to.bytes()),
                        elements(from.bytes())
                    ));
                }
                PartLayout::Counted {
                    counts,
                    element_bytes: self.element_bytes,
                }
            }
            _ if to.bytes() != from.bytes() => return wrong(elements(from.bytes())),
            O::ALL_TO_ALL => PartLayout::Equal(from.bytes() / many),
            _ => PartLayout::Equal(to.bytes()),
        };
        let part = parts.offset(rank);
        let in_place = match self.operation {
            O::ALL_GATHER | O::GATHER | O::ALL_GATHER_V => from.is_at(own, to, part),
            O::REDUCE_SCATTER | O::SCATTER => to.is_at(own, from, part),
            _ => to.is_at(own, from, 0),
        };
        let overlap = to.overlaps(own, from);
        // A rank that contributes no elements may pass any source range.
        let nothing = self.operation == O::ALL_GATHER_V && parts.bytes(rank) == 0;
        if overlap && !in_place && !nothing {
            let in_place = match self.operation {
                O::ALL_GATHER | O::GATHER | O::ALL_GATHER_V => {
                    format!(
                        "pass this rank's part of the destination (part {}) as the source",
                        rank
                    )
                }
                O::REDUCE_SCATTER | O::SCATTER => {
                    format!(
                        "pass this rank's part of the source (part {}) as the destination",
                        rank
                    )
                }
                _ => "pass the same range as both".into(),
            };
            return Err(format!(
                "source and destination overlap, but not as in an in-place call; for one, {in_place}; else pass \
                 disjoint ranges"
            ));
        }
        debug_assert!(to.is_inside() && from.is_inside());
        Ok((parts, in_place))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::abi::DeviceAddress;

    /// Returns whether a call out of place starts at vectors, whose ranges do.
    fn starts(operation: CollectiveOperationCode, parts: &PartLayout<'_>) -> bool {
        let range = MemoryRange::own(DeviceAddress(256), 480);
        let request = Request {
            name: "test",
            operation,
            element: ElementTypeCode::U8,
            element_bytes: 1,
            reduce: ReduceOpCode::default(),
            root: 0,
            counts: None,
            stride: None,
            destination: range,
            source: range,
        };
        request.starts_at_vectors(false, parts)
    }

    #[test]
    fn the_larger_range_of_parts_at_a_distance_ends_with_the_last_part() {
        use CollectiveOperationCode as O;
        let range = |bytes| MemoryRange::own(DeviceAddress(256), bytes);
        let request = |operation, large, small| {
            let gathers = operation == O::ALL_GATHER;
            let (to, from) = if gathers {
                (large, small)
            } else {
                (small, large)
            };
            let request = Request {
                name: "test",
                operation,
                element: ElementTypeCode::F32,
                element_bytes: 4,
                reduce: ReduceOpCode::default(),
                root: 0,
                counts: None,
                stride: Some(100),
                destination: range(to),
                source: MemoryRange::own(DeviceAddress(1 << 20), from),
            };
            let valid = request.validate(0, (3, 1)).map(|(parts, _)| {
                let of = |member| (parts.offset(member), parts.bytes(member));
                (0..3).map(of).collect::<Vec<_>>()
            });
            (valid, request.counted_bytes(3))
        };
        for operation in [O::ALL_GATHER, O::REDUCE_SCATTER] {
            let (valid, bytes) = request(operation, 240, 40);
            assert_eq!(valid.unwrap(), [(0, 40), (100, 40), (200, 40)]);
            assert_eq!(bytes, 120);
            assert!(request(operation, 300, 40).0.is_err());
            assert!(request(operation, 120, 40).0.is_err());
        }
    }

    #[test]
    fn a_call_starts_at_vectors_if_each_members_part_does() {
        use CollectiveOperationCode as O;
        for parted in [O::ALL_GATHER, O::REDUCE_SCATTER, O::ALL_TO_ALL] {
            assert!(starts(parted, &PartLayout::Equal(160)));
            assert!(!starts(parted, &PartLayout::Equal(168)));
            let strided = |stride, bytes| starts(parted, &PartLayout::Strided { stride, bytes });
            assert!(strided(320, 160));
            assert!(!strided(328, 160) && !strided(320, 152));
        }
        for other in [
            O::ALL_REDUCE,
            O::BROADCAST,
            O::REDUCE,
            O::GATHER,
            O::SCATTER,
        ] {
            assert!(starts(other, &PartLayout::Equal(168)));
        }
        let counts: &[usize] = &[7, 16, 16];
        let counted = PartLayout::Counted {
            counts,
            element_bytes: 1,
        };
        assert!(starts(O::ALL_GATHER_V, &counted));
    }
}
