//! What happens in a run.

use std::fmt;
use std::time::Duration;

/// A run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// Number of ranks.
    pub world: u32,
    /// Whether `symmem run` starts the ranks, and not this test.
    pub launched: bool,
    /// Whether each rank runs behind a shell.
    pub wrapped: bool,
    /// What is done, in this order.
    pub acts: Vec<Act>,
}

/// A signal at a time.
#[derive(Clone, Copy, Debug)]
pub struct Act {
    pub how: How,
    pub whom: Whom,
    /// Since the start of the run.
    pub at: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    Kill,
    Stop,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Whom {
    Launcher,
    /// The rank itself, or the shell in front of it.
    Rank {
        number: u32,
        is_shell: bool,
    },
}

/// SplitMix64.
struct Random(u64);

impl Random {
    /// Returns a number below `limit`.
    fn below(&mut self, limit: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((word ^ (word >> 31)) % u64::from(limit)) as u32
    }

    /// Returns true in `percent` of 100 cases.
    fn happens(&mut self, percent: u32) -> bool {
        self.below(100) < percent
    }

    /// Returns a time at which ranks start and meet, or at which they work.
    fn time(&mut self) -> Duration {
        let most = if self.happens(60) { 150 } else { 1500 };
        Duration::from_millis(self.below(most).into())
    }
}

impl Plan {
    /// Draws the run of this seed.
    pub fn draw(seed: u64) -> Self {
        // Seeds that follow each other must not give runs that are alike.
        let mut random = Random(seed.wrapping_mul(0x2545_f491_4f6c_dd1d));
        let launched = random.happens(65);
        let wrapped = random.happens(50);
        let world = 2 + random.below(7);
        if launched && random.happens(18) {
            return Self {
                world,
                launched,
                wrapped,
                acts: on_launcher(&mut random),
            };
        }
        let hows: &[How] = match random.below(100) {
            0..45 => &[How::Kill],
            45..75 => &[How::Kill, How::Kill],
            75..92 => &[How::Stop, How::Kill],
            92..98 => &[How::Stop],
            _ if world > 2 => &[How::Stop, How::Stop],
            _ => &[How::Stop],
        };
        let first = random.below(world);
        let second = (first + 1 + random.below(world - 1)) % world;
        let mut at = random.time();
        let mut acts = Vec::new();
        for (&how, number) in hows.iter().zip([first, second]) {
            // Without a launcher nobody ends what a shell leaves, and a shell that is stopped stops no rank.
            let is_shell = launched && wrapped && how == How::Kill && random.happens(40);
            acts.push(Act {
                how,
                whom: Whom::Rank { number, is_shell },
                at,
            });
            at += Duration::from_millis(random.below(300).into());
        }
        // Without survivors there is nothing to see.
        if world == 2 && hows == [How::Kill, How::Kill] {
            acts.truncate(1);
        }
        Self {
            world,
            launched,
            wrapped,
            acts,
        }
    }

    /// Returns the numbers of the ranks to which this is done.
    pub fn ranks(&self, how: How) -> Vec<u32> {
        let acts = self.acts.iter().filter(|act| act.how == how);
        acts.filter_map(|act| match act.whom {
            Whom::Rank { number, .. } => Some(number),
            Whom::Launcher => None,
        })
        .collect()
    }

    /// Returns whether the launcher dies.
    pub fn ends_launcher(&self) -> bool {
        self.acts.iter().any(|act| act.whom == Whom::Launcher)
    }

    /// Returns the kind of run, for tables.
    pub fn kind(&self) -> String {
        let by = if self.launched {
            "symmem run"
        } else {
            "no launcher"
        };
        let behind = if self.wrapped { ", behind sh -c" } else { "" };
        let what = match (self.ends_launcher(), &*self.acts) {
            (true, _) => "launcher",
            (false, [one]) => one.how.name(),
            (false, [one, _]) if one.how == How::Stop => "stop, kill",
            (false, _) => "two kills",
        };
        format!("{by}{behind}: {what}")
    }
}

/// The launcher is killed, at once or after a stop.
fn on_launcher(random: &mut Random) -> Vec<Act> {
    let at = random.time();
    let act = |how, at| Act {
        how,
        whom: Whom::Launcher,
        at,
    };
    match random.happens(70) {
        true => vec![act(How::Kill, at)],
        false => vec![
            act(How::Stop, at),
            act(
                How::Kill,
                at + Duration::from_millis(random.below(300).into()),
            ),
        ],
    }
}

impl How {
    fn name(self) -> &'static str {
        match self {
            Self::Kill => "kill",
            Self::Stop => "stop",
        }
    }
}

impl fmt::Display for Plan {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acts: Vec<String> = self.acts.iter().map(Act::to_string).collect();
        let by = if self.launched {
            "symmem run"
        } else {
            "no launcher"
        };
        let behind = if self.wrapped { " behind sh" } else { "" };
        write!(
            formatter,
            "{by}, {} ranks{behind}, {}",
            self.world,
            acts.join(", ")
        )
    }
}

impl fmt::Display for Act {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whom = match self.whom {
            Whom::Launcher => "the launcher".to_owned(),
            Whom::Rank { number, is_shell } if is_shell => format!("the shell of rank {number}"),
            Whom::Rank { number, .. } => format!("rank {number}"),
        };
        write!(formatter, "{} {whom} at {:?}", self.how.name(), self.at)
    }
}
