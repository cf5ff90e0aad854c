//! Pairs of ranks, and each rank's role in a measurement.

use crate::report::{Direction, Traffic};

/// A rank's role in one measurement. Every rank takes part in the barriers, whatever its role.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Role {
    /// The other rank of the pair; `None` for an idle rank.
    pub peer: Option<usize>,
    /// Whether this rank moves bytes.
    pub moves: bool,
    /// Whether bytes arrive at this rank.
    pub receives: bool,
}

/// The pairs of a measurement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pairing(Vec<(usize, usize)>);

impl Pairing {
    /// Pairs rank r with r xor 1. The last rank of an odd world stands by.
    pub(super) fn of_neighbors(world: usize) -> Self {
        Self(
            (0..world / 2)
                .map(|pair| (2 * pair, 2 * pair + 1))
                .collect(),
        )
    }

    /// Pairs ranks of the same rail on two nodes: node 0 with node 1, node 2 with node 3. A rank without one stands by.
    pub(super) fn of_nodes(rails: &[Vec<usize>]) -> Self {
        let pairs = rails.iter().flat_map(|rail| rail.chunks_exact(2));
        Self(pairs.map(|pair| (pair[0], pair[1])).collect())
    }

    /// Returns the lower rank of each pair and its peer.
    pub(super) fn pairs(&self) -> impl Iterator<Item = (usize, usize)> {
        self.0.iter().copied()
    }

    /// Returns the peer of `rank`, if it has one.
    pub(super) fn peer(&self, rank: usize) -> Option<usize> {
        self.pairs().find_map(|(lower, upper)| match rank {
            _ if rank == lower => Some(upper),
            _ if rank == upper => Some(lower),
            _ => None,
        })
    }

    /// Returns the role of `rank` if all pairs move at once. With one-way traffic, the lower rank of each pair moves.
    pub(super) fn role(&self, rank: usize, direction: Direction, traffic: Traffic) -> Role {
        let Some(peer) = self.peer(rank) else {
            return Role::default();
        };
        match traffic {
            Traffic::BothWays => Role {
                peer: Some(peer),
                moves: true,
                receives: true,
            },
            Traffic::OneWay => between(rank, rank.min(peer), rank.max(peer), direction),
        }
    }
}

/// Returns the role of `rank` if only `mover` moves bytes, to or from `other`.
pub(super) fn between(rank: usize, mover: usize, other: usize, direction: Direction) -> Role {
    let receiver = match direction {
        Direction::Push => other,
        Direction::Pull => mover,
    };
    let peer = if rank == mover {
        Some(other)
    } else if rank == other {
        Some(mover)
    } else {
        None
    };
    Role {
        peer,
        moves: rank == mover,
        receives: rank == receiver,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_pair_up_and_the_odd_one_stands_by() {
        let pairing = Pairing::of_neighbors(5);
        assert_eq!(pairing.pairs().collect::<Vec<_>>(), [(0, 1), (2, 3)]);
        assert_eq!(pairing.peer(3), Some(2));
        assert_eq!(pairing.peer(4), None);
        for traffic in Traffic::ALL {
            for direction in Direction::ALL {
                assert_eq!(pairing.role(4, direction, traffic), Role::default());
            }
        }
    }

    #[test]
    fn across_nodes_equals_of_two_nodes_pair_up() {
        // Three nodes, of two ranks, two and one.
        let pairing = Pairing::of_nodes(&[vec![0, 2, 4], vec![1, 3]]);
        assert_eq!(pairing.pairs().collect::<Vec<_>>(), [(0, 2), (1, 3)]);
        assert_eq!((pairing.peer(3), pairing.peer(4)), (Some(1), None));
        let role = |rank| pairing.role(rank, Direction::Push, Traffic::OneWay);
        assert!(role(1).moves && role(3).receives && !role(3).moves);
    }

    #[test]
    fn one_way_the_even_rank_moves_and_bytes_arrive_at_one_end() {
        for direction in Direction::ALL {
            let role = |rank| Pairing::of_neighbors(4).role(rank, direction, Traffic::OneWay);
            let (even, odd) = (role(2), role(3));
            assert!(even.moves && !odd.moves);
            assert_eq!(even.receives, direction == Direction::Pull);
            assert_ne!(even.receives, odd.receives);
            assert_eq!((even.peer, odd.peer), (Some(3), Some(2)));
        }
    }

    #[test]
    fn both_ways_both_move_and_receive() {
        for rank in 0..2 {
            let role = Pairing::of_neighbors(2).role(rank, Direction::Push, Traffic::BothWays);
            assert!(role.moves && role.receives && role.peer == Some(1 - rank));
        }
    }

    #[test]
    fn in_a_matrix_all_but_two_ranks_stand_by() {
        assert_eq!(between(3, 0, 2, Direction::Pull), Role::default());
        assert!(between(2, 0, 2, Direction::Push).receives);
    }
}
