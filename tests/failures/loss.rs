//! Loses a rank in a phase of a call: makes the calls, starts the world, waits for the phase, kills or stops the rank, and
//! checks what the others hear.

use crate::support::{Member, Plan, Random, Setting, World, system_driver};
use half::bf16;
use std::time::{Duration, Instant};
use symmem::{Communicator, Result, Stream, SymmetricBuffer};

/// When a rank is lost, as parts of the time that a call takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// Before its call: the others wait at the start barrier.
    Before,
    /// While data moves.
    Moving,
    /// While all multiply.
    Multiplying,
    /// About when the call ends.
    End,
}

impl Phase {
    pub const ALL: [Self; 4] = [Self::Before, Self::Moving, Self::Multiplying, Self::End];

    pub fn parse(name: &str) -> Self {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|phase| format!("{phase:?}") == name);
        found.expect("a phase")
    }

    /// Returns the range in percent of the call's time.
    fn percents(self) -> (u64, u64) {
        match self {
            Self::Before => (0, 0),
            Self::Moving => (0, 40),
            Self::Multiplying => (40, 90),
            Self::End => (90, 120),
        }
    }
}

/// Returns the number of ranks. On a machine's own driver this is `FAILURES_WORLD`, because some algorithms need a
/// device for each rank.
pub fn ranks(setting: Setting) -> usize {
    if !on_gpus(setting) {
        return 3;
    }
    std::env::var("FAILURES_WORLD").map_or(2, |ranks| ranks.parse().expect("a number of ranks"))
}

pub fn on_gpus(setting: Setting) -> bool {
    setting.is_device() && system_driver()
}

/// Calls before the one in which a rank is lost. NCCL and cuBLASLt connect ranks and load kernels in the first.
const CALLS_BEFORE: usize = 2;

/// Deadline of those calls, whatever the deadline under test is, because the machine may be busy.
pub const WARM_UP: Duration = Duration::from_secs(30);

/// The rank's side: calls of one kind, and the rank that is lost in one.
pub struct Calls<'a> {
    pub communicator: &'a Communicator,
    pub stream: &'a Stream,
    pub phase: Phase,
    pub victim: usize,
    /// What the calls write, in rows of `width` elements.
    pub c: &'a SymmetricBuffer<bf16>,
    pub width: usize,
    /// What each element is after a call.
    pub right: f64,
    /// Enqueues a call whose deadline is [`WARM_UP`].
    pub first: &'a dyn Fn() -> Result<()>,
    /// Enqueues a call whose deadline is the communicator's.
    pub then: &'a dyn Fn() -> Result<()>,
}

impl Calls<'_> {
    /// Makes calls repeatedly until one fails. Tells the test when the calls begin in one of which a rank is lost.
    pub fn repeat(&self, member: &Member) -> Result<()> {
        let mut lasts = Duration::ZERO;
        for _ in 0..CALLS_BEFORE {
            lasts = self.call(self.first, Some(WARM_UP), &|| ())?;
        }
        member.say("made", "ok");
        member.say("lasts", lasts.as_micros());
        member.ready();
        let last = || {
            if member.rank != self.victim {
                return;
            }
            member.say("here", "");
            while self.phase == Phase::Before && self.communicator.check().is_ok() {
                std::thread::sleep(Duration::from_millis(1));
            }
        };
        self.call(self.then, None, &last)?;
        loop {
            self.call(self.then, None, &|| ())?;
        }
    }

    fn call(
        &self,
        enqueue: &dyn Fn() -> Result<()>,
        limit: Option<Duration>,
        begin: &dyn Fn(),
    ) -> Result<Duration> {
        let (stream, c) = (self.stream, self.c);
        // Some rows are enough to check a large result.
        let all = c.len() / self.width;
        let rows = (0..all).step_by(all.div_ceil(8));
        let poison = vec![bf16::NAN; self.width];
        for row in rows.clone() {
            c.write(stream, row * self.width, &poison)?;
        }
        begin();
        let start = Instant::now();
        enqueue()?;
        match limit {
            Some(limit) => stream.synchronize_within(limit)?,
            None => stream.synchronize()?,
        }
        let lasts = start.elapsed();
        let (mut found, right) = (poison, bf16::from_f64(self.right));
        for row in rows {
            c.read(stream, row * self.width, &mut found)?;
            // A call that lost a rank ends in an error, not in a wrong result.
            assert!(found.iter().all(|&found| found == right), "row {row}");
        }
        Ok(lasts)
    }
}

/// The test's side: the loss of a rank.
pub struct Loss {
    /// The role of all ranks, which makes [`Calls`].
    pub role: &'static str,
    /// The argument of the role.
    pub scenario: String,
    pub phase: Phase,
    pub victim: usize,
    /// Whether the victim's GEMMs take long over the fakes, and those of the others no time: then the others wait for each other
    /// from the same time on.
    pub is_slow: bool,
}

impl Loss {
    /// Starts a world whose ranks are about to make the call in which one of them is lost. Returns `None` if the
    /// algorithm is unavailable.
    fn start(&self, setting: Setting, deadline: Option<Duration>) -> Option<World> {
        let mut plan = Plan::new(self.role, ranks(setting), setting)
            .argument(&self.scenario)
            // Multicast must not be used, by NCCL either.
            .env("NCCL_NVLS_ENABLE", 0)
            // Without these variables, the fakes' copies and GEMMs take no time.
            .env("FAKE_DEVICE_COPY_US", if self.is_slow { 0 } else { 2000 });
        plan = match self.is_slow {
            true => plan.env_of(self.victim, "FAKE_BLASLT_PRODUCT_US", 30_000),
            false => plan.env("FAKE_BLASLT_PRODUCT_US", 2000),
        };
        if let Some(libraries) = setting.libraries_with_collectives() {
            plan = plan.env("SYMMEM_LIBRARY_PATH", libraries.display());
        }
        if let Some(deadline) = deadline {
            plan = plan.deadline(deadline);
        }
        let mut world = plan.start();
        let made = world.expect("made");
        if let Some(why) = made.iter().find(|made| *made != "ok") {
            assert!(on_gpus(setting), "{}: {why}", self.scenario);
            crate::built::skipped(&format!("{}: {why}", self.scenario));
            world.expect("done");
            world.ends_well();
            return None;
        }
        Some(world)
    }

    /// Waits until the victim is in the phase.
    fn reach(&self, world: &mut World, random: &mut Random) {
        let lasts = world.expect("lasts")[self.victim].parse();
        let lasts = Duration::from_micros(lasts.expect("microseconds"));
        world.ready().go();
        let (begun, _) = world.ranks[self.victim].expect("here");
        let (first, last) = self.phase.percents();
        let percents = first + random.below(last - first + 1);
        let pause = match self.phase {
            // Time for the others to begin their wait.
            Phase::Before => Duration::from_millis(20),
            _ => lasts * percents as u32 / 100,
        };
        let scenario = &self.scenario;
        println!("{scenario}: a call lasts {lasts:?}; after {pause:?}");
        std::thread::sleep(pause.saturating_sub(begun.elapsed()));
    }

    /// Kills the victim, and checks that all others hear within the time for it that it died.
    pub fn kill(&self, setting: Setting, random: &mut Random) {
        let Some(mut world) = self.start(setting, None) else {
            return;
        };
        let (victim, scenario) = (self.victim, &self.scenario);
        self.reach(&mut world, random);
        let killed = world.ranks[victim].kill();
        let dead = world.ranks.remove(victim);
        for rank in &mut world.ranks {
            let (heard, error) = rank.expect("heard");
            let detection = heard.saturating_duration_since(killed);
            println!("rank {} heard after {detection:?}", rank.number);
            let named = error.contains("PeerDied") && error.contains(&format!("peer: {victim}"));
            assert!(named, "{scenario}: {error}");
            assert!(
                detection < crate::support::detection(),
                "{scenario}: detected after {detection:?}"
            );
        }
        for rank in &mut world.ranks {
            rank.expect("done");
        }
        world.ends_well();
        drop(dead);
    }

    /// Stops the victim, and checks that the others give up at the deadline; some name it, or with `is_named_by_all` all.
    pub fn stop(&self, setting: Setting, random: &mut Random, is_named_by_all: bool) {
        let deadline = Duration::from_millis(600);
        let Some(mut world) = self.start(setting, Some(deadline)) else {
            return;
        };
        let victim = self.victim;
        self.reach(&mut world, random);
        let stopped = world.ranks[victim].stop();
        let (mut timeouts, mut named) = (0, 0);
        let others = world.ranks.iter_mut();
        for rank in others.filter(|rank| rank.number != victim) {
            let (heard, error) = rank.expect("heard");
            let waited = heard.saturating_duration_since(stopped);
            println!("{error} after {waited:?}");
            // The first rank that gives up names the peer and the call; the other may learn it from that rank.
            let timeout = error.contains("Timeout");
            timeouts += usize::from(timeout);
            assert!(timeout || error.contains("PeerFailed"), "{error}");
            let is_named = error.contains(&format!("rank {victim}"));
            assert!(is_named || !is_named_by_all, "{error}");
            named += usize::from(is_named);
            // A rank may have begun to wait long before the victim was stopped.
            assert!(
                waited < deadline + crate::support::SLACK,
                "after {waited:?}: {error}"
            );
        }
        assert!(timeouts > 0, "no rank timed out");
        assert!(named > 0, "no rank named the victim");
        world.ranks[victim].resume();
        world.ranks[victim].expect("heard");
        world.expect("done");
        world.ends_well();
    }
}
