//! The parts of an all-to-all of unequal parts: where each is, and whether all are good.

use crate::rank::operand::Operand;

/// What [`crate::Queue::all_to_all_v`] is given, in elements: for each member.
pub struct Parts<'a> {
    /// Elements that come from it,
    pub received: &'a [usize],
    /// and where they go in the destination.
    pub received_at: &'a [usize],
    /// Elements that go to it,
    pub sent: &'a [usize],
    /// and where they are in the source.
    pub sent_at: &'a [usize],
}

/// Parts of two ranges.
#[derive(Clone, Copy)]
pub struct Ranges<'a> {
    /// The parts.
    pub parts: &'a Parts<'a>,
    /// What is written.
    pub to: Operand<'a>,
    /// What is read.
    pub from: Operand<'a>,
    /// Bytes of an element.
    pub element_bytes: u64,
    /// Members.
    pub world: usize,
}

impl<'a> Ranges<'a> {
    /// What a member is sent, and where what it sends is received.
    ///
    /// # Errors
    /// Why there is no such part.
    pub fn pair(&self, member: usize) -> Result<(Operand<'a>, Operand<'a>), String> {
        let parts = self.parts;
        Ok((
            self.part(&self.from, parts.sent, parts.sent_at, member)?,
            self.part(&self.to, parts.received, parts.received_at, member)?,
        ))
    }

    fn part(
        &self,
        whole: &Operand<'a>,
        counts: &[usize],
        at: &[usize],
        member: usize,
    ) -> Result<Operand<'a>, String> {
        let world = self.world;
        if counts.len() != world || at.len() != world {
            return Err(format!(
                "{} counts and {} offsets for {world} ranks",
                counts.len(),
                at.len()
            ));
        }
        let elements = whole.bytes() / self.element_bytes;
        let (count, at) = (counts[member] as u64, at[member] as u64);
        if at.checked_add(count).is_none_or(|end| end > elements) {
            return Err(format!(
                "{count} elements at {at} of the part of rank {member} are outside the range's \
                 {elements}"
            ));
        }
        Ok(whole.part(at * self.element_bytes, count * self.element_bytes))
    }

    /// Checks all parts of this rank, which is rank `own` of the communicator and member `rank`.
    ///
    /// # Errors
    /// What is wrong with them.
    pub fn judge(&self, own: usize, rank: usize) -> Result<(), String> {
        for member in 0..self.world {
            let (sent, received) = self.pair(member)?;
            if member == rank {
                own_pair(own, &sent, &received)?;
            }
        }
        // A peer loads what it is sent while others store here. Ranges that lie apart need no look at
        // their parts.
        let apart = !self.to.overlaps(own, &self.from);
        for member in (0..self.world).filter(|_| !apart) {
            let (sent, _) = self.pair(member)?;
            for other in 0..self.world {
                let (_, received) = self.pair(other)?;
                // What a rank sends itself was looked at above.
                let itself = member == rank && other == rank;
                if !itself && sent.overlaps(own, &received) {
                    return Err(format!(
                        "what rank {member} is sent overlaps what rank {other} sends here"
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
/// What is wrong with it.
pub fn own_pair(own: usize, sent: &Operand<'_>, received: &Operand<'_>) -> Result<(), String> {
    if sent.bytes() != received.bytes() {
        return Err(format!(
            "this rank sends itself {} bytes but expects {}",
            sent.bytes(),
            received.bytes()
        ));
    }
    if !sent.is_at(own, received, 0) && sent.overlaps(own, received) {
        return Err("what this rank sends itself overlaps where it receives it".into());
    }
    Ok(())
}
