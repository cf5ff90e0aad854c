//! Groups: subsets of a communicator's ranks.

/// Some of a communicator's ranks, which make collective calls of their own
/// ([`crate::CollectiveOptions::group`]). Ranks are numbered densely within it. Made by
/// [`crate::Communicator::split`].
pub struct Group {
    members: Vec<usize>,
    rank: usize,
}

impl Group {
    /// This rank's number in the group.
    pub fn rank(&self) -> usize {
        self.rank
    }

    /// Ranks in the group.
    pub fn world(&self) -> usize {
        self.members.len()
    }

    /// The communicator's number of each member.
    pub fn members(&self) -> &[usize] {
        &self.members
    }
}

impl crate::Communicator {
    /// Divides the ranks into groups, one for each `colour`, ordered by `key` and then by rank; `None`
    /// for a rank that joins none. Collective over all ranks.
    ///
    /// # Errors
    /// As any collective call.
    pub fn split(&self, colour: Option<u32>, key: u32) -> crate::Result<Option<Group>> {
        let _ = (colour, key);
        todo!()
    }
}
