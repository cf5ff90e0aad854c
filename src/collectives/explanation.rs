//! The answer to how a collective would be done.

use crate::base::names::CollectiveOperation;
use crate::group::choice::Choice;
use crate::network::leg::shape::LegShape;
use std::fmt;

/// How this rank takes part in a collective call: the answer of [`crate::Communicator::explain_call`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Explanation {
    /// The calls among the ranks of this rank's node, each kind once. Exactly one in a group on one node. In a group over nodes,
    /// empty if this rank exchanges nothing inside its node: it is the only member there, or the call goes straight to other
    /// nodes.
    pub stages: Vec<Stage>,
    /// What goes between nodes; `None` if the group is on one node, or the call has no bytes.
    pub between_nodes: Option<BetweenNodes>,
}

/// A call among the ranks of one node, and the selector's choice for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Stage {
    /// What the ranks of the node do.
    pub operation: CollectiveOperation,
    /// Size in bytes, as nccl-tests counts it; of the largest, if a call over nodes makes several. `u64::MAX` for sends and
    /// receives, whose sizes the ranks do not know of each other.
    pub bytes: u64,
    /// The selector's choice.
    pub choice: Choice,
}

/// What a collective sends between nodes.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BetweenNodes {
    /// The library that carries it.
    pub carrier: Carrier,
    /// This rank's legs, each kind once. Empty if another rank of the node has them.
    pub legs: Vec<NodeLeg>,
}

/// The library that carries a collective's legs between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Carrier {
    /// UCX.
    #[non_exhaustive]
    Ucx {
        /// Whether the bytes go through pinned host memory, because UCX does not reach the device's.
        staged: bool,
        /// Why NCCL or RCCL does not carry the call.
        without_nccl: WithoutNccl,
    },
    /// NCCL or, on AMD, RCCL, from device memory to device memory.
    Nccl,
}

/// Why NCCL or RCCL does not carry a collective between nodes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum WithoutNccl {
    /// The options exclude it ([`crate::Provider::Symmem`]).
    Excluded,
    /// It is not open ([`crate::Communicator::open_nccl`]).
    NotOpen,
    /// The nodes have different numbers of the group's ranks.
    UnevenNodes,
    /// The rails of the group are not those of the communicator.
    OtherRails,
    /// It does not reduce these elements as symmem does.
    Elements,
    /// Parts go between ranks of different numbers within their nodes, and it has a communicator of each rail only.
    Pairs,
    /// It has no such operation.
    Operation,
    /// The legs have fewer than 256 KiB, and UCX takes less time for them. A call that names NCCL gets it.
    Small,
}

/// A leg: what this rank exchanges with one rank of each other node, or of some.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeLeg {
    /// How the data travels over UCX; `None` if NCCL or RCCL chooses.
    pub shape: Option<LegShape>,
    /// Ranks in the leg, this one included.
    pub members: usize,
    /// Bytes of the leg's data at this rank; of the largest, if there are several.
    pub bytes: u64,
}

impl Explanation {
    /// Returns the selector's choice for the first stage; `None` if there is no stage inside the node.
    pub fn choice(&self) -> Option<Choice> {
        self.stages.first().map(|stage| stage.choice)
    }
}

impl WithoutNccl {
    /// Returns the reason as text.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Excluded => "the options exclude it",
            Self::NotOpen => "it is not open; call `Communicator::open_nccl` first",
            Self::UnevenNodes => "the nodes have different numbers of ranks",
            Self::OtherRails => "the rails of the group are not those of the communicator",
            Self::Elements => "it does not reduce these elements as symmem does",
            Self::Pairs => "parts go between ranks of different numbers within their nodes",
            Self::Operation => "it has no such operation",
            Self::Small => "UCX takes less time for legs of so few bytes",
        }
    }
}

impl fmt::Display for WithoutNccl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.reason())
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let operation = self.operation.name().to_lowercase();
        let algorithm = self.choice.algorithm().name().to_lowercase();
        write!(formatter, "{operation} by {algorithm}")?;
        match (self.choice.blocks, self.choice.threads) {
            // No kernel, or the host backend's one thread.
            (0, _) | (_, 1) => Ok(()),
            (blocks, threads) => write!(formatter, " ({blocks} blocks of {threads} threads)"),
        }
    }
}

impl fmt::Display for NodeLeg {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { members, bytes, .. } = self;
        let shape = self.shape.map_or("NCCL's choice", LegShape::name);
        write!(
            formatter,
            "{shape} among {members} ranks, at most {bytes} B each"
        )
    }
}

impl fmt::Display for Carrier {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nccl => formatter.write_str("NCCL or RCCL"),
            Self::Ucx {
                staged,
                without_nccl,
            } => {
                let bytes = match staged {
                    true => "staged through host memory",
                    false => "not staged",
                };
                write!(
                    formatter,
                    "UCX, bytes {bytes}, without NCCL or RCCL: {without_nccl}"
                )
            }
        }
    }
}

/// A line for each stage and leg.
impl fmt::Display for Explanation {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut lines: Vec<String> = self
            .stages
            .iter()
            .map(|stage| format!("inside the node: {stage}"))
            .collect();
        if let Some(between) = &self.between_nodes {
            if lines.is_empty() {
                lines.push("inside the node: nothing".into());
            }
            lines.push(format!("between nodes: {}", between.carrier));
            match between.legs.is_empty() {
                true => lines.push("legs: of another rank of the node".into()),
                false => lines.extend(between.legs.iter().map(|leg| format!("leg: {leg}"))),
            }
        }
        formatter.write_str(&lines.join("\n"))
    }
}
