//! A machine as the formula sees it: numbers of nodes, ranks and rails, and seven constants.

/// Constants of one class of links.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Link {
    /// Time of a message without bytes, in seconds.
    pub latency: f64,
    /// Bytes per second in one direction.
    pub bandwidth: f64,
    /// Time in seconds for which one more message in the same step occupies its sender.
    pub gap: f64,
}

/// Most nodes, ranks of a node, and ranks of [`super::traffic()`]; larger counts are taken as this one.
pub const MOST: u32 = 1 << 16;

/// Nodes with equally many ranks. A count of 0 is taken as 1, one above [`MOST`] as [`MOST`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Number of nodes.
    pub nodes: u32,
    /// Ranks of each node.
    pub ranks_per_node: u32,
    /// Network links of each node; ranks share them evenly. Links beyond one per rank stay unused.
    pub rails: u32,
    /// From a rank to the other ranks of its node, all of them together.
    pub inside: Link,
    /// One rail.
    pub between: Link,
    /// Bytes of arrived data per second that a rank reduces.
    pub reduction: f64,
}

/// A constant of a [`Machine`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Constant {
    /// Latency inside the node.
    InsideLatency,
    /// Bandwidth inside the node.
    InsideBandwidth,
    /// Gap inside the node.
    InsideGap,
    /// Latency between nodes.
    BetweenLatency,
    /// Bandwidth of a rail.
    BetweenBandwidth,
    /// Gap between nodes.
    BetweenGap,
    /// Rate of the reduction.
    Reduction,
}

/// Number of constants.
pub const CONSTANTS: usize = 7;

impl Constant {
    /// All of them, in the order of [`Machine::factors`].
    pub const ALL: [Self; CONSTANTS] = [
        Self::InsideLatency,
        Self::InsideBandwidth,
        Self::InsideGap,
        Self::BetweenLatency,
        Self::BetweenBandwidth,
        Self::BetweenGap,
        Self::Reduction,
    ];

    /// Returns the name in tables and JSON.
    pub const fn name(self) -> &'static str {
        match self {
            Self::InsideLatency => "latency inside",
            Self::InsideBandwidth => "bandwidth inside",
            Self::InsideGap => "gap inside",
            Self::BetweenLatency => "latency between",
            Self::BetweenBandwidth => "bandwidth between",
            Self::BetweenGap => "gap between",
            Self::Reduction => "reduction",
        }
    }

    /// Whether the constant is a rate in bytes per second; the others are times in seconds.
    pub const fn is_rate(self) -> bool {
        matches!(
            self,
            Self::InsideBandwidth | Self::BetweenBandwidth | Self::Reduction
        )
    }
}

impl Machine {
    /// Returns a constant, in seconds or bytes per second.
    pub fn constant(&self, constant: Constant) -> f64 {
        match constant {
            Constant::InsideLatency => self.inside.latency,
            Constant::InsideBandwidth => self.inside.bandwidth,
            Constant::InsideGap => self.inside.gap,
            Constant::BetweenLatency => self.between.latency,
            Constant::BetweenBandwidth => self.between.bandwidth,
            Constant::BetweenGap => self.between.gap,
            Constant::Reduction => self.reduction,
        }
    }

    /// Sets a constant, in seconds or bytes per second.
    pub fn set(&mut self, constant: Constant, value: f64) {
        let field = match constant {
            Constant::InsideLatency => &mut self.inside.latency,
            Constant::InsideBandwidth => &mut self.inside.bandwidth,
            Constant::InsideGap => &mut self.inside.gap,
            Constant::BetweenLatency => &mut self.between.latency,
            Constant::BetweenBandwidth => &mut self.between.bandwidth,
            Constant::BetweenGap => &mut self.between.gap,
            Constant::Reduction => &mut self.reduction,
        };
        *field = value;
    }

    /// Returns what one step, message or byte of each kind takes, in seconds: the constants, and 1 over the rates.
    pub fn factors(&self) -> [f64; CONSTANTS] {
        Constant::ALL.map(|constant| match constant.is_rate() {
            true => 1.0 / self.constant(constant),
            false => self.constant(constant),
        })
    }

    /// Returns the numbers of nodes and of ranks of a node, in their range.
    pub(super) fn shape(&self) -> (u32, u32) {
        (
            self.nodes.clamp(1, MOST),
            self.ranks_per_node.clamp(1, MOST),
        )
    }

    /// Returns how many ranks of a node share a rail, if all of them use it.
    pub fn ranks_per_rail(&self) -> u32 {
        self.shape().1.div_ceil(self.rails.max(1))
    }
}
