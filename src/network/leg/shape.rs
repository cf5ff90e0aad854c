//! The shapes of legs, for reports.

use super::leg::Leg;
use super::parts::Span;
use std::fmt;

/// How the data of a leg between nodes travels among its members over UCX.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LegShape {
    /// Each member sends its vector to every other in one message: a reduction in one step.
    Direct,
    /// Each member owns a share, which the others send it in pieces. It reduces the share, and returns it to the members that
    /// need it.
    Shares,
    /// Parts move between all pairs of members.
    Exchange,
    /// A broadcast along a binomial tree, by messages.
    Tree,
    /// A broadcast from member to member, in pieces.
    Chain,
    /// A barrier.
    Barrier,
}

impl LegShape {
    /// Returns the name in lower case.
    pub fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Shares => "shares",
            Self::Exchange => "exchange",
            Self::Tree => "tree",
            Self::Chain => "chain",
            Self::Barrier => "barrier",
        }
    }
}

impl fmt::Display for LegShape {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl Leg {
    /// Returns the shape.
    pub fn shape(&self) -> LegShape {
        match self {
            Self::Small(_) => LegShape::Direct,
            Self::Pieces(_) => LegShape::Shares,
            Self::Exchange(_) => LegShape::Exchange,
            Self::Tree(_) => LegShape::Tree,
            Self::Chain(_) => LegShape::Chain,
            Self::Barrier => LegShape::Barrier,
        }
    }

    /// Returns the bytes that the leg has at member `own` of `members`: what it reads there or, if that is more, what it
    /// writes.
    pub fn data_bytes(&self, members: usize, own: usize) -> u64 {
        let sum = |spans: Vec<Span>| spans.iter().map(|span| span.bytes).sum::<u64>();
        sum(self.reads(members, own)).max(sum(self.writes(members, own)))
    }
}
