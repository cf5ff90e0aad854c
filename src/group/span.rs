//! The members of a group, on whichever nodes they are.

use crate::base::placement::Placement;

/// All members of a group.
pub struct Span {
    /// The communicator's rank of each member.
    pub members: Vec<usize>,
    /// This rank's number in the group.
    pub rank: usize,
    /// Which members, by their numbers in the group, share a node.
    pub placement: Placement,
}

impl Span {
    /// Makes the span of `members`, of which this rank is `members[rank]`, in a world of this placement.
    pub fn new(members: Vec<usize>, rank: usize, world: &Placement) -> Self {
        let nodes: Vec<usize> = members.iter().map(|&member| world.node(member)).collect();
        Self {
            placement: Placement::of(&nodes),
            members,
            rank,
        }
    }

    /// Returns the communicator's rank of each member on this rank's node, and this rank's number among them.
    pub fn here(&self) -> (Vec<usize>, usize) {
        let numbers = self.placement.node_members(self.rank).iter();
        (
            numbers.map(|&number| self.members[number]).collect(),
            self.placement.local_rank(self.rank),
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_numbers_its_members_and_knows_which_are_here() {
        let world = Placement::of(&[0, 0, 1, 1, 1]);
        let span = Span::new(vec![4, 1, 0, 2], 3, &world);
        assert_eq!(span.here(), (vec![4, 2], 1));
        assert!(span.placement.spans_nodes());
        assert_eq!(span.placement.members(1), [1, 2], "ranks 1 and 0");
        let near = Span::new(vec![3, 2], 0, &world);
        assert_eq!(near.here(), (vec![3, 2], 0));
        assert!(!near.placement.spans_nodes());
    }
}
