//! What happens in a run.

use std::fmt;
use std::time::Duration;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    /// Number of hosts with ranks. One host is a control: the same work without a wire.
    pub hosts: usize,
    /// Number of ranks on each.
    pub ranks: usize,
    pub act: Act,
    /// Since the time from which the act is counted.
    pub at: Duration,
    /// Whether the act may come before the ranks have met.
    pub early: bool,
    /// Whether the survivors rebuild their world, or end.
    pub rebuild: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Act {
    Kill { rank: usize },
    Cut { host: usize },
}

/// SplitMix64.
pub struct Random(pub u64);

impl Random {
    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % limit as u64) as usize
    }
}

impl Plan {
    /// Draws a run in which a rank is killed.
    pub fn kill(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let (hosts, ranks) = [(2, 2), (2, 4), (2, 2), (2, 4), (1, 4)][random.below(5)];
        let rank = random.below(hosts * ranks);
        Self::draw(seed, &mut random, (hosts, ranks), Act::Kill { rank })
    }

    /// Draws a run in which a link is cut.
    pub fn cut(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 1);
        let ranks = [2, 4][random.below(2)];
        let host = random.below(2);
        Self::draw(seed, &mut random, (2, ranks), Act::Cut { host })
    }

    fn draw(seed: u64, random: &mut Random, (hosts, ranks): (usize, usize), act: Act) -> Self {
        let early = random.below(8) == 0;
        let most = if early { 300 } else { 1500 };
        Self {
            seed,
            hosts,
            ranks,
            act,
            at: Duration::from_millis(random.below(most) as u64),
            early,
            rebuild: !early && random.below(2) == 1,
        }
    }

    pub fn world(&self) -> usize {
        self.hosts * self.ranks
    }

    /// Returns the host of a rank.
    pub fn host(&self, rank: usize) -> usize {
        rank / self.ranks
    }

    /// Returns the ranks that are not killed.
    pub fn survivors(&self) -> Vec<usize> {
        let all = 0..self.world();
        all.filter(|&rank| self.act != Act::Kill { rank }).collect()
    }

    /// Returns the ranks that go on, if any do. After a cut those are on the host where all ranks have met: the others
    /// are dead for them, and must not go on by themselves.
    pub fn rebuilders(&self) -> Vec<usize> {
        let mut ranks = self.survivors();
        ranks.retain(|&rank| match self.act {
            Act::Kill { .. } => self.rebuild,
            Act::Cut { .. } => self.rebuild && self.host(rank) == 0,
        });
        ranks
    }

    /// Returns whether a rank is lost for another one.
    pub fn is_lost(&self, rank: usize, to: usize) -> bool {
        match self.act {
            Act::Kill { rank: killed } => rank == killed,
            Act::Cut { .. } => self.host(rank) != self.host(to),
        }
    }

    /// Returns the kind of run, for tables.
    pub fn kind(&self) -> String {
        let what = match self.act {
            Act::Kill { .. } => "kill",
            Act::Cut { .. } => "cut",
        };
        let when = if self.early { " as ranks meet" } else { "" };
        format!("{what}{when}, {} x {} ranks", self.hosts, self.ranks)
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = if self.early {
            "the start"
        } else {
            "the first lap"
        };
        write!(
            formatter,
            "{}: {} x {} ranks, ",
            self.seed, self.hosts, self.ranks
        )?;
        match self.act {
            Act::Kill { rank } => write!(formatter, "rank {rank} killed")?,
            Act::Cut { host } => write!(formatter, "host {host} cut off")?,
        }
        write!(formatter, " {:?} after {from}, then ", self.at)?;
        formatter.write_str(if self.rebuild { "rebuilt" } else { "ended" })
    }
}

#[test]
fn a_cut_loses_the_other_host_and_a_kill_one_rank() {
    let mut plan = Plan::cut(0);
    plan.ranks = 2;
    assert!(plan.is_lost(2, 1) && plan.is_lost(0, 3) && !plan.is_lost(0, 1));
    plan.act = Act::Kill { rank: 2 };
    assert!(plan.is_lost(2, 3) && !plan.is_lost(1, 3));
    assert_eq!(plan.survivors(), [0, 1, 3]);
}

#[test]
fn after_a_cut_one_side_goes_on_and_after_a_kill_all_others() {
    let mut plan = Plan::cut(0);
    (plan.ranks, plan.rebuild) = (2, true);
    assert_eq!(plan.rebuilders(), [0, 1]);
    plan.act = Act::Kill { rank: 2 };
    assert_eq!(plan.rebuilders(), [0, 1, 3]);
    plan.rebuild = false;
    assert_eq!(plan.rebuilders(), [0; 0]);
}
