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

/// Returns the peer of `rank`, which is `rank xor 1`; `None` for the last rank of an odd world.
pub(super) fn peer(rank: usize, world: usize) -> Option<usize> {
    let peer = rank ^ 1;
    (peer < world).then_some(peer)
}

/// Returns the role of `rank` if all pairs move at once. With one-way traffic, the even rank of each pair moves.
pub(super) fn role(rank: usize, world: usize, direction: Direction, traffic: Traffic) -> Role {
    let Some(peer) = peer(rank, world) else {
        return Role::default();
    };
    match traffic {
        Traffic::BothWays => Role {
            peer: Some(peer),
            moves: true,
            receives: true,
        },
        Traffic::OneWay => between(rank, rank & !1, rank | 1, direction),
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

/// Returns the lower rank of each pair and its peer.
pub(super) fn pairs(world: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..world / 2).map(|pair| (2 * pair, 2 * pair + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbors_pair_up_and_the_odd_one_stands_by() {
        assert_eq!(pairs(5).collect::<Vec<_>>(), [(0, 1), (2, 3)]);
        assert_eq!(peer(3, 5), Some(2));
        assert_eq!(peer(4, 5), None);
        for traffic in Traffic::ALL {
            for direction in Direction::ALL {
                assert_eq!(role(4, 5, direction, traffic), Role::default());
            }
        }
    }

    #[test]
    fn one_way_the_even_rank_moves_and_bytes_arrive_at_one_end() {
        for direction in Direction::ALL {
            let (even, odd) = (
                role(2, 4, direction, Traffic::OneWay),
                role(3, 4, direction, Traffic::OneWay),
            );
            assert!(even.moves && !odd.moves);
            assert_eq!(even.receives, direction == Direction::Pull);
            assert_ne!(even.receives, odd.receives);
            assert_eq!((even.peer, odd.peer), (Some(3), Some(2)));
        }
    }

    #[test]
    fn both_ways_both_move_and_receive() {
        for rank in 0..2 {
            let role = role(rank, 2, Direction::Push, Traffic::BothWays);
            assert!(role.moves && role.receives && role.peer == Some(1 - rank));
        }
    }

    #[test]
    fn in_a_matrix_all_but_two_ranks_stand_by() {
        assert_eq!(between(3, 0, 2, Direction::Pull), Role::default());
        assert!(between(2, 0, 2, Direction::Push).receives);
    }
}
