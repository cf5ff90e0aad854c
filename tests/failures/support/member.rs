//! The rank's side of a test.

use super::setting::Setting;
use super::{DEADLINE, JOB, PATIENCE, RANK, ROLE, SETTING, SETUP_DEADLINE, WORLD};
use rustix::process::Signal;
use std::io::Write;
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Builder, Communicator, LaunchEnvironment};

/// This rank, in its own process.
pub struct Member {
    pub rank: usize,
    pub world: usize,
    pub setting: Setting,
    pub argument: String,
}

impl Member {
    /// Returns the role of this process, if a test started it as a rank.
    pub fn find() -> Option<(String, Self)> {
        let role = std::env::var(ROLE).ok()?;
        // If the test is killed, its ranks are killed too.
        let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
        let number = |name: &str| variable(name).parse().expect("a number");
        let member = Self {
            rank: number(RANK),
            world: number(WORLD),
            setting: Setting::parse(&variable(SETTING)),
            argument: std::env::var("FAILURES_ARGUMENT").unwrap_or_default(),
        };
        Some((role, member))
    }

    /// Returns this rank's launch environment.
    pub fn launch(&self) -> LaunchEnvironment {
        let (rank, world) = (self.rank as u32, self.world as u32);
        LaunchEnvironment::local(rank, world, variable(JOB)).expect("a rank of the world")
    }

    pub fn builder(&self) -> Builder {
        let duration = |name: &str| {
            let text = std::env::var(name).ok()?;
            Some(Duration::from_millis(text.parse().expect("milliseconds")))
        };
        Builder::new()
            .launch(self.launch())
            .backend(Selection::Named(self.setting.backend().into()))
            .signal_placement(self.setting.placement())
            .share_kinds(self.setting.kinds())
            .deadline(duration(DEADLINE).unwrap_or(PATIENCE))
            .setup_deadline(duration(SETUP_DEADLINE).unwrap_or(PATIENCE))
    }

    pub fn join(&self) -> Communicator {
        self.builder().build().expect("all ranks come")
    }

    /// Sends a line to the test.
    pub fn say(&self, key: &str, text: impl std::fmt::Display) {
        let text = text.to_string().replace('\n', " | ");
        let mut output = std::io::stdout().lock();
        // The harness may have begun a line. A failure means that the test is gone, so it is ignored.
        let _ = write!(output, "\n@{key} {text}\n");
        let _ = output.flush();
    }

    /// Sends a result to the test.
    pub fn tell<T, E: std::fmt::Debug>(&self, key: &str, result: &Result<T, E>) {
        match result {
            Ok(_) => self.say(key, "ok"),
            // Variant and fields, on one line.
            Err(error) => self.say(key, format!("{error:#?}")),
        }
    }

    /// Waits until the test lets this rank continue.
    pub fn wait_for_go(&self) {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the test's word");
    }

    /// Tells the test that this rank is ready, and waits until it may continue.
    pub fn ready(&self) {
        self.say("ready", "");
        self.wait_for_go();
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by the test"))
}

/// Returns this process's open descriptors and mappings. Takes the fewest descriptors of several counts, because the
/// watcher opens a file of a peer for a moment from time to time.
pub fn resources() -> (usize, usize) {
    let descriptors = || std::fs::read_dir("/proc/self/fd").expect("/proc").count();
    let fewest = (0..5).map(|_| {
        std::thread::sleep(Duration::from_millis(2));
        descriptors()
    });
    let fewest = fewest.min().expect("looked at least once");
    let maps = std::fs::read_to_string("/proc/self/maps").expect("/proc");
    (fewest, maps.lines().count())
}
