//! Element counts and ranges of an operation at one of nccl-tests' sizes.

use crate::report::{Collective, Placement};
use std::ops::Range;

/// One operation at one size, in elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub collective: Collective,
    pub world: usize,
    /// Number of elements of the buffer that nccl-tests' size refers to.
    pub whole: usize,
    /// Number of elements of one rank's part, or of the whole if the operation has no parts.
    pub part: usize,
}

/// The root of operations that have one.
pub(crate) const ROOT: usize = 0;

impl Shape {
    /// Returns the shape of at most `bytes` with elements of `size` bytes. Parts are multiples of 16
    /// bytes, as in nccl-tests; `None` if a part would be empty.
    pub fn new(collective: Collective, bytes: u64, size: usize, world: usize) -> Option<Self> {
        let elements = bytes as usize / size;
        let part = match collective.has_parts() {
            true => (elements / world) & !((16 / size).max(1) - 1),
            false => elements,
        };
        let whole = if collective.has_parts() {
            part * world
        } else {
            part
        };
        (part != 0).then_some(Self {
            collective,
            world,
            whole,
            part,
        })
    }

    /// Whether the operation supports a placement.
    pub fn has(self, placement: Placement) -> bool {
        placement == Placement::OutOfPlace
            || !matches!(self.collective, Collective::Gather | Collective::Scatter)
    }

    /// Returns the range that a rank reads: of its source, or of the common buffer in place.
    pub fn input(self, rank: usize, placement: Placement) -> Range<usize> {
        match (self.collective, placement) {
            (Collective::AllGather, Placement::InPlace) => self.part_of(rank),
            (Collective::AllGather | Collective::Gather, _) => 0..self.part,
            _ => 0..self.whole,
        }
    }

    /// Returns the range that a rank writes: of its destination, or of the common buffer in place.
    pub fn output(self, rank: usize, placement: Placement) -> Range<usize> {
        match (self.collective, placement) {
            (Collective::ReduceScatter, Placement::InPlace) => self.part_of(rank),
            (Collective::ReduceScatter | Collective::Scatter, _) => 0..self.part,
            _ => 0..self.whole,
        }
    }

    fn part_of(self, rank: usize) -> Range<usize> {
        rank * self.part..(rank + 1) * self.part
    }

    /// Whether a rank gets a result.
    pub fn receives(self, rank: usize) -> bool {
        match self.collective {
            Collective::Reduce | Collective::Gather => rank == ROOT,
            _ => true,
        }
    }

    /// Whether two calls give the same result as one.
    pub fn is_idempotent(self, placement: Placement) -> bool {
        placement == Placement::OutOfPlace
            || matches!(
                self.collective,
                Collective::AllGather | Collective::Broadcast
            )
    }

    /// Returns the origin of a rank's output from element `at` on.
    pub fn origin(self, rank: usize, at: usize) -> Origin {
        let own = rank * self.part;
        let (from, until) = (at / self.part, (at / self.part + 1) * self.part);
        let within = at % self.part;
        let (who, place, until) = match self.collective {
            Collective::AllReduce | Collective::Reduce => (Contributors::Sum, at, self.whole),
            Collective::ReduceScatter => (Contributors::Sum, own + at, self.part),
            Collective::AllGather | Collective::Gather => (Contributors::One(from), within, until),
            Collective::AllToAll => (Contributors::One(from), own + within, until),
            Collective::Broadcast => (Contributors::One(ROOT), at, self.whole),
            Collective::Scatter => (Contributors::One(ROOT), own + at, self.part),
        };
        Origin { who, place, until }
    }
}

/// The origin of a range of output elements: whose elements, from element `place` on, up to output element `until`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Origin {
    pub who: Contributors,
    pub place: usize,
    pub until: usize,
}

/// The ranks whose elements form an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contributors {
    /// One rank.
    One(usize),
    /// The sum over all ranks.
    Sum,
}

#[cfg(test)]
mod tests {
    use super::*;
    use Collective::*;
    use Placement::*;

    fn shape(collective: Collective) -> Shape {
        Shape::new(collective, 1024, 2, 4).unwrap()
    }

    #[test]
    fn counts_are_those_of_nccl_tests() {
        // 512 elements of 2 bytes: whole for an all-reduce, 128 a rank for the rest.
        assert_eq!((shape(AllReduce).whole, shape(AllReduce).part), (512, 512));
        for collective in [AllGather, ReduceScatter, AllToAll] {
            assert_eq!(
                (shape(collective).whole, shape(collective).part),
                (512, 128)
            );
        }
        // 512 / 3 = 170, of which 168 fill whole words of 16 bytes.
        let odd = Shape::new(AllGather, 1024, 2, 3).unwrap();
        assert_eq!((odd.whole, odd.part), (504, 168));
        assert_eq!(Shape::new(AllGather, 16, 2, 4), None);
        assert_eq!(Shape::new(AllReduce, 1, 2, 4), None);
        assert_eq!(Shape::new(AllGather, 64, 32, 2).unwrap().part, 1);
    }

    #[test]
    fn in_place_a_rank_works_on_its_part_of_the_one_buffer() {
        assert_eq!(shape(AllGather).input(2, InPlace), 256..384);
        assert_eq!(shape(AllGather).output(2, InPlace), 0..512);
        assert_eq!(shape(ReduceScatter).output(2, InPlace), 256..384);
        assert_eq!(shape(ReduceScatter).output(2, OutOfPlace), 0..128);
        assert_eq!(
            shape(AllReduce).input(2, InPlace),
            shape(AllReduce).output(2, InPlace)
        );
        assert!(!shape(Scatter).has(InPlace) && shape(Scatter).has(OutOfPlace));
    }

    #[test]
    fn every_output_element_has_an_origin() {
        for collective in Collective::ALL {
            let shape = shape(collective);
            for rank in 0..4 {
                let length = shape.output(rank, OutOfPlace).len();
                let mut at = 0;
                while at < length {
                    let origin = shape.origin(rank, at);
                    assert!(
                        origin.until > at && origin.until <= length,
                        "{collective:?}"
                    );
                    at = origin.until;
                }
            }
        }
        let origin = shape(AllToAll).origin(2, 130);
        assert_eq!(
            (origin.who, origin.place, origin.until),
            (Contributors::One(1), 258, 256)
        );
        let origin = shape(ReduceScatter).origin(3, 5);
        assert_eq!((origin.who, origin.place), (Contributors::Sum, 389));
    }
}
