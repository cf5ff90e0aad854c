//! What happens in a run.

use std::fmt;
use std::time::Duration;

/// Number of hosts.
const HOSTS: usize = 2;

/// A run.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    pub seed: u64,
    /// Number of hosts with ranks.
    pub hosts: usize,
    /// Number of ranks on each.
    pub ranks: usize,
    /// What carries collectives between nodes.
    pub legs: Legs,
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
    Kill {
        rank: usize,
    },
    /// Kills the ranks of this number on all hosts, so that the survivors' nodes stay equal, as NCCL's legs need.
    KillRail {
        local: usize,
    },
    Cut {
        host: usize,
    },
}

/// What carries collectives between nodes, where they can be either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Legs {
    Ucx,
    Nccl,
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
    /// Draws a run in which a rank is killed while all work.
    pub fn kill(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let ranks = Self::ranks(seed);
        let rank = random.below(HOSTS * ranks);
        Self::draw(seed, &mut random, Act::Kill { rank })
    }

    /// Draws a run in which a link is cut while all work.
    pub fn cut(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 1);
        let host = random.below(HOSTS);
        Self::draw(seed, &mut random, Act::Cut { host })
    }

    /// Draws a run on devices, in which a rank is killed while all work, or a rail if ranks go on by NCCL. Of two runs that
    /// follow each other one has NCCL's legs, of four two are rebuilt, and of eight four have 4 ranks on a device.
    pub fn on_devices(seed: u64) -> Self {
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d) ^ 2);
        let legs = [Legs::Ucx, Legs::Nccl][(seed % 2) as usize];
        let rebuild = (seed / 2).is_multiple_of(2);
        let ranks = [2, 4][(seed / 4 % 2) as usize];
        let act = match (legs, rebuild) {
            (Legs::Nccl, true) => Act::KillRail {
                local: random.below(ranks),
            },
            _ => Act::Kill {
                rank: random.below(HOSTS * ranks),
            },
        };
        Self {
            legs,
            ranks,
            rebuild,
            ..Self::draw(seed, &mut random, act)
        }
    }

    /// Draws a run in which either comes while ranks meet, or before.
    pub fn early(seed: u64) -> Self {
        let plan = match seed % 3 {
            2 => Self::cut(seed),
            _ => Self::kill(seed),
        };
        let at = plan.at / 5;
        Self {
            at,
            early: true,
            rebuild: false,
            ..plan
        }
    }

    /// Returns the ranks of each host: of four runs that follow each other, two have 2 and two have 4.
    fn ranks(seed: u64) -> usize {
        [2, 4][(seed % 2) as usize]
    }

    fn draw(seed: u64, random: &mut Random, act: Act) -> Self {
        Self {
            seed,
            hosts: HOSTS,
            ranks: Self::ranks(seed),
            legs: Legs::Ucx,
            act,
            at: Duration::from_millis(random.below(1500) as u64),
            early: false,
            // Of the runs of a placement, every other one is rebuilt.
            rebuild: seed / 2 % 2 == 1,
        }
    }

    /// Returns the placement, as in `2x4`: hosts, and ranks on each.
    pub fn placement(&self) -> String {
        format!("{}x{}", self.hosts, self.ranks)
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
        all.filter(|&rank| !self.is_killed(rank)).collect()
    }

    fn is_killed(&self, rank: usize) -> bool {
        match self.act {
            Act::Kill { rank: killed } => rank == killed,
            Act::KillRail { local } => rank % self.ranks == local,
            Act::Cut { .. } => false,
        }
    }

    /// Returns the ranks that are killed.
    pub fn killed(&self) -> Vec<usize> {
        let all = 0..self.world();
        all.filter(|&rank| self.is_killed(rank)).collect()
    }

    /// Returns the ranks that go on, if any do. After a cut those are on the host where all ranks have met: the others
    /// are dead for them, and must not go on by themselves.
    pub fn rebuilders(&self) -> Vec<usize> {
        let mut ranks = self.survivors();
        ranks.retain(|&rank| match self.act {
            Act::Kill { .. } | Act::KillRail { .. } => self.rebuild,
            Act::Cut { .. } => self.rebuild && self.host(rank) == 0,
        });
        ranks
    }

    /// Returns whether a rank is lost for another one.
    pub fn is_lost(&self, rank: usize, to: usize) -> bool {
        match self.act {
            Act::Kill { .. } | Act::KillRail { .. } => self.is_killed(rank),
            Act::Cut { .. } => self.host(rank) != self.host(to),
        }
    }

    /// Returns the kind of run.
    pub fn kind(&self) -> &'static str {
        match (self.act, self.early) {
            (Act::Kill { .. }, false) => "kill",
            (Act::KillRail { .. }, false) => "kill of a rail",
            (Act::KillRail { .. }, true) => "early kill of a rail",
            (Act::Cut { .. }, false) => "cut",
            (Act::Kill { .. }, true) => "early kill",
            (Act::Cut { .. }, true) => "early cut",
        }
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
        if self.legs == Legs::Nccl {
            formatter.write_str("legs by NCCL, ")?;
        }
        match self.act {
            Act::Kill { rank } => write!(formatter, "rank {rank} killed")?,
            Act::KillRail { local } => write!(formatter, "rank {local} of each host killed")?,
            Act::Cut { host } => write!(formatter, "host {host} cut off")?,
        }
        write!(formatter, " {:?} after {from}, then ", self.at)?;
        formatter.write_str(if self.rebuild { "rebuilt" } else { "ended" })
    }
}

#[test]
fn half_of_the_runs_of_each_placement_are_rebuilt() {
    for draw in [Plan::kill, Plan::cut] {
        for ranks in [2, 4] {
            let plans = (0..40).map(draw).filter(|plan| plan.ranks == ranks);
            let (rebuilt, left): (Vec<_>, Vec<_>) = plans.partition(|plan| plan.rebuild);
            assert_eq!((rebuilt.len(), left.len()), (10, 10));
        }
    }
}

#[test]
fn of_runs_on_devices_half_have_legs_by_nccl_and_half_are_rebuilt_without_uneven_nodes_in_nccl() {
    let plans: Vec<Plan> = (0..8).map(Plan::on_devices).collect();
    let count = |is: &dyn Fn(&Plan) -> bool| plans.iter().filter(|plan| is(plan)).count();
    assert_eq!(count(&|plan| plan.legs == Legs::Nccl), 4);
    assert_eq!(count(&|plan| plan.legs == Legs::Nccl && plan.rebuild), 2);
    assert_eq!(count(&|plan| plan.rebuild && plan.ranks == 4), 2);
    for plan in plans {
        let rails = plan.legs == Legs::Nccl && plan.rebuild;
        assert_eq!(plan.killed().len(), if rails { 2 } else { 1 }, "{plan}");
        assert_eq!(plan.killed().len() + plan.survivors().len(), plan.world());
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
