//! Names of the algorithms that the formula knows.

use std::fmt;

/// How the ranks of a node take part in a collective of several nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NodeStage {
    /// Each rank has a share of the data and a leg of its own: reduce-scatter before a reducing leg, all-gather after
    /// it. All-to-all exchanges inside the node first, so that each part crosses on the rail of its destination.
    Sharded,
    /// A one-shot all-reduce inside the node, then a leg with all the data on every rank: fewest steps, most bytes.
    OneShot,
    /// One rank of the node has the only leg: a reduce or gather to it, and a broadcast or scatter from it.
    Leader,
}

impl NodeStage {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Sharded, Self::OneShot, Self::Leader];

    /// Returns the name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sharded => "sharded",
            Self::OneShot => "one-shot",
            Self::Leader => "leader",
        }
    }
}

/// How the nodes exchange data in a leg.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum LegAlgorithm {
    /// Every node sends to every node at once.
    Direct,
    /// Each node sends to the next; all-to-all in pairs (each step another distance); broadcast and reduce in a chain.
    Ring,
    /// A binomial tree.
    Tree,
    /// Recursive halving and doubling, for any number of nodes; all-to-all by Bruck's algorithm.
    Halving,
}

impl LegAlgorithm {
    /// All of them; of equally fast ones, [`super::best`] returns the first.
    pub const ALL: [Self; 4] = [Self::Direct, Self::Ring, Self::Tree, Self::Halving];

    /// Returns the name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Direct => "direct",
            Self::Ring => "ring",
            Self::Tree => "tree",
            Self::Halving => "halving",
        }
    }
}

/// An algorithm of a hierarchical collective.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Hierarchical {
    /// Inside the node.
    pub node: NodeStage,
    /// Between nodes.
    pub leg: LegAlgorithm,
}

impl Hierarchical {
    /// Returns every combination. Not every operation has each of them.
    pub fn all() -> impl Iterator<Item = Self> {
        (NodeStage::ALL.into_iter())
            .flat_map(|node| LegAlgorithm::ALL.map(|leg| Self { node, leg }))
    }
}

impl fmt::Display for Hierarchical {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{} {}", self.node.name(), self.leg.name())
    }
}
