//! Placement: which ranks of a world share a node.

/// The node of each rank. Ranks of one node can map each other's memory; nodes are numbered by their lowest rank.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Placement {
    /// By rank: its node, and its number among the ranks of that node.
    places: Vec<(usize, usize)>,
    /// By node: its ranks, in order.
    members: Vec<Vec<usize>>,
}

impl Placement {
    /// Returns the placement of ranks with these keys, in rank order: ranks with equal keys share a node.
    pub fn of(keys: &[impl Eq]) -> Self {
        let mut members: Vec<Vec<usize>> = Vec::new();
        let places = (0..keys.len()).map(|rank| {
            let known = members.iter().position(|node| keys[node[0]] == keys[rank]);
            let node = known.unwrap_or_else(|| {
                members.push(Vec::new());
                members.len() - 1
            });
            members[node].push(rank);
            (node, members[node].len() - 1)
        });
        Self {
            places: places.collect(),
            members,
        }
    }

    /// Returns the placement of `world` ranks on one node.
    pub fn one_node(world: usize) -> Self {
        Self::of(&vec![(); world])
    }

    /// Returns the number of ranks.
    pub fn world(&self) -> usize {
        self.places.len()
    }

    /// Returns the number of nodes.
    pub fn nodes(&self) -> usize {
        self.members.len()
    }

    /// Returns the node of a rank.
    pub fn node(&self, rank: usize) -> usize {
        self.places[rank].0
    }

    /// Returns a rank's number among the ranks of its node.
    pub fn local_rank(&self, rank: usize) -> usize {
        self.places[rank].1
    }

    /// Returns the ranks of a node, in order.
    pub fn members(&self, node: usize) -> &[usize] {
        &self.members[node]
    }

    /// Returns the ranks of a rank's node, itself included, in order.
    pub fn node_members(&self, rank: usize) -> &[usize] {
        self.members(self.node(rank))
    }

    /// Returns whether two ranks share a node.
    pub fn share_node(&self, one: usize, other: usize) -> bool {
        self.node(one) == self.node(other)
    }

    /// Returns whether there is more than one node.
    pub fn spans_nodes(&self) -> bool {
        self.nodes() > 1
    }

    /// Returns whether all nodes have the same number of ranks.
    pub fn is_even(&self) -> bool {
        self.members
            .iter()
            .all(|node| node.len() == self.members[0].len())
    }

    /// Returns the rank with the number `local` on each node that has one, by node.
    pub fn rail(&self, local: usize) -> Vec<usize> {
        let ranks = self.members.iter().filter_map(|node| node.get(local));
        ranks.copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_with_equal_keys_share_a_node_and_nodes_are_numbered_by_their_lowest_rank() {
        let placement = Placement::of(&["b", "a", "b", "a", "c"]);
        assert_eq!((placement.nodes(), placement.world()), (3, 5));
        let nodes: Vec<usize> = (0..5).map(|rank| placement.node(rank)).collect();
        let locals: Vec<usize> = (0..5).map(|rank| placement.local_rank(rank)).collect();
        assert_eq!(nodes, [0, 1, 0, 1, 2]);
        assert_eq!(locals, [0, 0, 1, 1, 0]);
        assert_eq!(placement.members(0), [0, 2]);
        assert_eq!(placement.node_members(3), [1, 3]);
        assert!(placement.share_node(0, 2) && !placement.share_node(0, 1));
        assert!(placement.spans_nodes() && !placement.is_even());
    }

    #[test]
    fn a_rail_has_one_rank_of_each_node_that_is_large_enough() {
        let uneven = Placement::of(&[0, 0, 0, 1]);
        assert_eq!(uneven.rail(0), [0, 3]);
        assert_eq!(uneven.rail(1), [1]);
        assert_eq!(uneven.rail(3), [0; 0]);
        let even = Placement::of(&[0, 0, 1, 1]);
        assert_eq!((even.rail(0), even.rail(1)), (vec![0, 2], vec![1, 3]));
        assert!(even.is_even());
    }

    #[test]
    fn a_world_of_one_node_does_not_span_nodes() {
        let placement = Placement::one_node(4);
        assert_eq!(placement, Placement::of(&[7, 7, 7, 7]));
        assert!(!placement.spans_nodes() && placement.is_even());
        assert_eq!(placement.node_members(2), [0, 1, 2, 3]);
    }
}
