//! Worlds of ranks that can be killed: each rank is this program, started again with a role.
//!
//! A rank and its test exchange lines: `@key text` on the rank's standard output, and any line on its standard input to
//! let it continue. `setting` has what worlds run on, `world` the test's side, `member` the rank's side.

mod member;
mod setting;
mod world;

pub use member::{Member, resources};
pub use setting::{Setting, full, system_driver};
pub(crate) use setting::{
    however_memory_is_shared, on_each_backend, on_each_device, wherever_signals_live,
};
pub use world::{Plan, Rank, World};

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

const ROLE: &str = "FAILURES_ROLE";
const RANK: &str = "SYMMEM_RANK";
const WORLD: &str = "SYMMEM_WORLD_SIZE";
const JOB: &str = "FAILURES_JOB";
const SETTING: &str = "FAILURES_SETTING";
const DEADLINE: &str = "FAILURES_DEADLINE_MS";
const SETUP_DEADLINE: &str = "FAILURES_SETUP_DEADLINE_MS";

/// Time limit of each step of a test, however busy the machine is. A hang ends here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Slack for whatever must happen at once, or at a deadline: a machine that runs many tests may keep a process waiting
/// for seconds. Still far below [`PATIENCE`] and the ranks' own deadlines, so what ends by those fails.
pub const SLACK: Duration = Duration::from_secs(8);

/// Returns the time within which the survivors of a death must know of it: a second, on devices or if all is asked for.
pub fn detection() -> Duration {
    match full() || system_driver() {
        true => Duration::from_secs(1),
        false => SLACK,
    }
}

/// A random number generator (SplitMix64) with a fixed seed, so that a failing run can be repeated.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// Returns a number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }
}

/// Returns a name that no other test uses.
pub fn fresh_name(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("failures-{what}-{}-{number}", std::process::id())
}
