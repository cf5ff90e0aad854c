//! The parts of [`crate::Queue::all_to_all_v`]: their ranges, and the checks of them.

use crate::rank::memory_range::MemoryRange;

/// The counts and offsets of [`crate::Queue::all_to_all_v`], in elements, one of each for every member.
pub struct AllToAllParts<'a> {
    /// Elements received from each member.
    pub received: &'a [usize],
    /// Offset in the destination of what each member sends.
    pub received_at: &'a [usize],
    /// Elements sent to each member.
    pub sent: &'a [usize],
    /// Offset in the source of what each member is sent.
    pub sent_at: &'a [usize],
}

/// Parts of a destination and a source.
#[derive(Clone, Copy)]
pub struct Ranges<'a> {
    /// The parts.
    pub parts: &'a AllToAllParts<'a>,
    /// The destination.
    pub to: MemoryRange<'a>,
    /// The source.
    pub from: MemoryRange<'a>,
    /// Bytes per element.
    pub element_bytes: u64,
    /// Number of members.
    pub world: usize,
}

impl<'a> Ranges<'a> {
    /// Returns the range sent to a member, and the range that receives from it.
    ///
    /// # Errors
    /// The reason why a part lies outside of its range.
    pub fn pair(&self, member: usize) -> Result<(MemoryRange<'a>, MemoryRange<'a>), String> {
        let parts = self.parts;
        Ok((
            self.part(&self.from, parts.sent, parts.sent_at, member)?,
            self.part(&self.to, parts.received, parts.received_at, member)?,
        ))
    }

    fn part(
        &self,
        whole: &MemoryRange<'a>,
        counts: &[usize],
        at: &[usize],
        member: usize,
    ) -> Result<MemoryRange<'a>, String> {
        let world = self.world;
        if counts.len() != world || at.len() != world {
            return Err(format!(
                "{} counts and {} offsets for {world} ranks; pass one of each per rank",
                counts.len(),
                at.len()
            ));
        }
        let elements = whole.bytes() / self.element_bytes;
        let (count, at) = (counts[member] as u64, at[member] as u64);
        if at.checked_add(count).is_none_or(|end| end > elements) {
            return Err(format!(
                "the part of rank {member}, {count} elements from {at} on, is outside the range of {elements} \
                 elements"
            ));
        }
        Ok(whole.part(at * self.element_bytes, count * self.element_bytes))
    }

    /// Checks all parts of this rank, which is rank `own` of the communicator and member `rank` of the group.
    ///
    /// # Errors
    /// The first violation, as text.
    pub fn validate(&self, own: usize, rank: usize) -> Result<(), String> {
        for member in 0..self.world {
            let (sent, received) = self.pair(member)?;
            if member == rank {
                own_pair(own, &sent, &received)?;
            }
        }
        // A peer may load from a part here while others store to one here, so the two must not overlap. If
        // source and destination are disjoint, so are their parts.
        let apart = !self.to.overlaps(own, &self.from);
        for member in (0..self.world).filter(|_| !apart) {
            let (sent, _) = self.pair(member)?;
            for other in 0..self.world {
                let (_, received) = self.pair(other)?;
                // The rank's send to itself was checked above.
                let itself = member == rank && other == rank;
                if !itself && sent.overlaps(own, &received) {
                    return Err(format!(
                        "the part sent to rank {member} overlaps the part received from rank {other}"
                    ));
                }
            }
        }
        Ok(())
    }
}

/// Checks a send of rank `own` to itself.
///
/// # Errors
/// The first violation, as text.
pub fn own_pair(
    own: usize,
    sent: &MemoryRange<'_>,
    received: &MemoryRange<'_>,
) -> Result<(), String> {
    if sent.bytes() != received.bytes() {
        return Err(format!(
            "this rank sends itself {} bytes but receives {} from itself",
            sent.bytes(),
            received.bytes()
        ));
    }
    if !sent.is_at(own, received, 0) && sent.overlaps(own, received) {
        return Err(
            "the part that this rank sends itself overlaps the part that receives it".into(),
        );
    }
    Ok(())
}
