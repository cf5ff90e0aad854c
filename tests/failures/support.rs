//! Worlds of ranks that can be killed: each rank is this very program, started again with a role.
//!
//! A rank talks to its test by lines: `@key text` on its standard output, and any line on its
//! standard input to let it go on.

use rstest_reuse::template;
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use crate::built::hip::{Release, fake_hip};
use rustix::process::{Pid, Signal, kill_process};
use symmem::select::Selection;
use symmem::{Builder, Communicator, LaunchEnvironment, ShareKind, SignalPlacement};

const ROLE: &str = "FAILURES_ROLE";
const RANK: &str = "SYMMEM_RANK";
const WORLD: &str = "SYMMEM_WORLD_SIZE";
const JOB: &str = "FAILURES_JOB";
const SETTING: &str = "FAILURES_SETTING";
const DEADLINE: &str = "FAILURES_DEADLINE_MS";
const SETUP_DEADLINE: &str = "FAILURES_SETUP_DEADLINE_MS";

/// No step of a test takes longer than this, however busy the machine is; a hang ends here.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// Within this the survivors of a death have to know.
pub const DETECTION: Duration = Duration::from_secs(1);

/// A backend, where signals live and how memory is shared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setting {
    Host,
    HostWithHostSignals,
    Cuda,
    CudaWithHostSignals,
    CudaLegacy,
    Hip,
    HipWithHostSignals,
    HipVmm,
}

/// Every backend, in one setting.
#[template]
#[rstest]
pub fn on_each_backend(#[values(Setting::Host, Setting::Cuda, Setting::Hip)] setting: Setting) {}

/// Every way of sharing memory.
#[template]
#[rstest]
pub fn however_memory_is_shared(
    #[values(
        Setting::Host,
        Setting::Cuda,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipVmm
    )]
    setting: Setting,
) {
}

/// Every place of signals, beside each vendor's memory.
#[template]
#[rstest]
pub fn wherever_signals_live(
    #[values(
        Setting::Host,
        Setting::HostWithHostSignals,
        Setting::Cuda,
        Setting::CudaWithHostSignals,
        Setting::CudaLegacy,
        Setting::Hip,
        Setting::HipWithHostSignals
    )]
    setting: Setting,
) {
}

impl Setting {
    fn name(self) -> String {
        format!("{self:?}")
    }

    fn parse(name: &str) -> Self {
        use Setting::*;
        [
            Host,
            HostWithHostSignals,
            Cuda,
            CudaWithHostSignals,
            CudaLegacy,
            Hip,
            HipWithHostSignals,
            HipVmm,
        ]
        .into_iter()
        .find(|setting| setting.name() == name)
        .expect("a setting's name")
    }

    /// The backend's name.
    fn backend(self) -> &'static str {
        match self {
            Self::Host | Self::HostWithHostSignals => "host",
            Self::Cuda | Self::CudaWithHostSignals | Self::CudaLegacy => "cuda",
            Self::Hip | Self::HipWithHostSignals | Self::HipVmm => "hip",
        }
    }

    /// Whether ranks have a device's memory, streams and copy engines.
    pub fn is_device(self) -> bool {
        self.backend() != "host"
    }

    /// The directory of the fake libraries, if the vendor's runtime is a fake.
    fn libraries(self) -> Option<&'static Path> {
        match self.backend() {
            "cuda" if !system_driver() => Some(crate::built::fake_driver()),
            "hip" if !system_driver() => Some(fake_hip(Release::Seven)),
            _ => None,
        }
    }

    pub fn placement(self) -> SignalPlacement {
        match self {
            Self::HostWithHostSignals | Self::CudaWithHostSignals | Self::HipWithHostSignals => {
                SignalPlacement::HOST
            }
            _ => SignalPlacement::DEVICE,
        }
    }

    fn kinds(self) -> &'static [ShareKind] {
        match self {
            Self::Host | Self::HostWithHostSignals => &[ShareKind::MEMORY_FILE],
            Self::CudaLegacy | Self::Hip | Self::HipWithHostSignals => &[ShareKind::LEGACY_IPC],
            _ => &[ShareKind::VMM_FILE_DESCRIPTOR],
        }
    }
}

/// Whether everything is asked for, not a sample of it.
pub fn full() -> bool {
    std::env::var_os("SYMMEM_TEST_FULL").is_some_and(|value| value != "0" && !value.is_empty())
}

/// Whether a vendor's driver is the machine's own, with `SYMMEM_TEST_DRIVER=system`, and not the fake one:
/// for the themes that do not look into the driver (`waits`, `abort`, `exporter`, `rebuild`,
/// `collectives`).
pub fn system_driver() -> bool {
    std::env::var_os("SYMMEM_TEST_DRIVER").is_some_and(|value| value == "system")
}

/// The same choices each time (SplitMix64), so that a run that fails can be had again.
pub struct Random(u64);

impl Random {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below `limit`.
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = self.0;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word ^ (word >> 31)) % limit
    }
}

// ---- what the test sees ----

/// A rank, as the test sees it.
pub struct Rank {
    pub number: usize,
    child: Child,
    input: Option<ChildStdin>,
    lines: Receiver<(Instant, String)>,
    heard: Vec<String>,
    ended: bool,
}

/// The ranks of one job. Whoever still runs when it is dropped is killed.
pub struct World {
    pub ranks: Vec<Rank>,
    directory: PathBuf,
    setting: Setting,
}

/// How a world is started.
pub struct Plan {
    role: &'static str,
    world: usize,
    setting: Setting,
    environment: Vec<(String, String)>,
    special: Vec<(usize, String, String)>,
    absent: Vec<usize>,
    job: String,
}

impl Plan {
    pub fn new(role: &'static str, world: usize, setting: Setting) -> Self {
        Self {
            role,
            world,
            setting,
            environment: Vec::new(),
            special: Vec::new(),
            absent: Vec::new(),
            job: fresh_name("job"),
        }
    }

    /// A variable of all ranks.
    pub fn env(mut self, name: &str, value: impl ToString) -> Self {
        self.environment.push((name.into(), value.to_string()));
        self
    }

    /// A variable of one rank.
    pub fn env_of(mut self, rank: usize, name: &str, value: impl ToString) -> Self {
        self.special.push((rank, name.into(), value.to_string()));
        self
    }

    /// What the role is to do.
    pub fn argument(self, text: impl ToString) -> Self {
        self.env("FAILURES_ARGUMENT", text)
    }

    pub fn deadline(self, deadline: Duration) -> Self {
        self.env(DEADLINE, deadline.as_millis())
    }

    pub fn setup_deadline(self, deadline: Duration) -> Self {
        self.env(SETUP_DEADLINE, deadline.as_millis())
    }

    pub fn without_rank(mut self, rank: usize) -> Self {
        self.absent.push(rank);
        self
    }

    pub fn job(mut self, job: &str) -> Self {
        self.job = job.into();
        self
    }

    pub fn start(self) -> World {
        let built_here = Path::new(env!("CARGO_TARGET_TMPDIR"));
        // A test program that was carried to another machine has no target directory.
        let root = match built_here.is_dir() {
            true => built_here.to_path_buf(),
            false => std::env::temp_dir(),
        };
        let directory = root.join(fresh_name("world"));
        std::fs::create_dir_all(&directory).expect("a directory for the world");
        let mut world = World {
            ranks: Vec::new(),
            directory,
            setting: self.setting,
        };
        for rank in (0..self.world).filter(|rank| !self.absent.contains(rank)) {
            let child = self.spawn(rank, &world.directory);
            world.ranks.push(child);
        }
        world
    }

    fn spawn(&self, rank: usize, directory: &Path) -> Rank {
        let mut command = Command::new(std::env::current_exe().expect("this program's path"));
        command
            .args([
                "--exact",
                "rank",
                "--nocapture",
                "--test-threads=1",
                "--quiet",
            ])
            .env(ROLE, self.role)
            .env(RANK, rank.to_string())
            .env(WORLD, self.world.to_string())
            .env(JOB, &self.job)
            .env(SETTING, self.setting.name())
            .env("RUST_BACKTRACE", "0")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit());
        if let Some(libraries) = self.setting.libraries() {
            command
                .env("SYMMEM_LIBRARY_PATH", libraries)
                .env("FAKE_DEVICE_COUNT", "4")
                .env("FAKE_DEVICE_LEDGER", directory.join("ledger"))
                .env("FAKE_DEVICE_REPORT", directory.join("report"));
        }
        for (name, value) in &self.environment {
            command.env(name, value);
        }
        for (_, name, value) in self.special.iter().filter(|(who, ..)| *who == rank) {
            command.env(name, value);
        }
        let mut child = command.spawn().expect("this program starts");
        let output = child.stdout.take().expect("piped");
        let (give, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(output).lines() {
                let Ok(line) = line else { return };
                if let Some(line) = line.strip_prefix('@')
                    && give.send((Instant::now(), line.to_owned())).is_err()
                {
                    return;
                }
            }
        });
        Rank {
            number: rank,
            input: child.stdin.take(),
            child,
            lines,
            heard: Vec::new(),
            ended: false,
        }
    }
}

impl Rank {
    /// Waits for `@key text`: when it came, and the text.
    #[track_caller]
    pub fn expect(&mut self, key: &str) -> (Instant, String) {
        self.expect_within(key, PATIENCE)
    }

    #[track_caller]
    pub fn expect_within(&mut self, key: &str, limit: Duration) -> (Instant, String) {
        let until = Instant::now() + limit;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            match self.lines.recv_timeout(left) {
                Ok((at, line)) => {
                    let (found, text) = line.split_once(' ').unwrap_or((&line, ""));
                    if found == key {
                        return (at, text.to_owned());
                    }
                    self.heard.push(line);
                }
                Err(reason) => {
                    let why = match reason {
                        RecvTimeoutError::Timeout => format!("hangs: nothing for {limit:?}"),
                        RecvTimeoutError::Disconnected => "ended".into(),
                    };
                    panic!(
                        "rank {} {why}; awaited @{key}, heard {:?}",
                        self.number, self.heard
                    );
                }
            }
        }
    }

    /// Lets the rank go on.
    pub fn go(&mut self) {
        if let Some(input) = &mut self.input {
            // A rank that is gone is noticed when something is expected of it.
            let _ = input.write_all(b"go\n");
        }
    }

    fn signal(&self, signal: Signal) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, signal).expect("a child of ours that was not waited for");
    }

    /// Kills the rank; when that was.
    pub fn kill(&self) -> Instant {
        let now = Instant::now();
        self.signal(Signal::KILL);
        now
    }

    /// Stops the rank; it runs no more until [`Rank::resume`].
    pub fn stop(&self) -> Instant {
        let now = Instant::now();
        self.signal(Signal::STOP);
        now
    }

    pub fn resume(&self) {
        self.signal(Signal::CONT);
    }

    pub fn process(&self) -> u32 {
        self.child.id()
    }

    /// Waits for the end.
    #[track_caller]
    pub fn wait(&mut self) -> ExitStatus {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().expect("a child of ours") {
                self.ended = true;
                return status;
            }
            assert!(
                start.elapsed() < PATIENCE,
                "rank {} hangs at its end; heard {:?}",
                self.number,
                self.heard
            );
            std::thread::sleep(Duration::from_millis(2));
        }
    }

    /// Waits for a clean end.
    #[track_caller]
    pub fn ends_well(&mut self) {
        let status = self.wait();
        assert!(
            status.success(),
            "rank {}: {status}; heard {:?}",
            self.number,
            self.heard
        );
    }
}

impl Drop for Rank {
    fn drop(&mut self) {
        if !self.ended {
            // Also ends a stopped process. It was started here, and nobody else waits for it.
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

impl World {
    /// Waits until every rank is ready.
    #[track_caller]
    pub fn ready(&mut self) -> &mut Self {
        for rank in &mut self.ranks {
            rank.expect("ready");
        }
        self
    }

    /// Lets every rank go on.
    pub fn go(&mut self) {
        for rank in &mut self.ranks {
            rank.go();
        }
    }

    /// What every rank says under `key`.
    #[track_caller]
    pub fn expect(&mut self, key: &str) -> Vec<String> {
        self.ranks
            .iter_mut()
            .map(|rank| rank.expect(key).1)
            .collect()
    }

    /// Waits for every rank's clean end and looks at what they left behind.
    #[track_caller]
    pub fn ends_well(&mut self) {
        for rank in &mut self.ranks {
            rank.ends_well();
        }
        self.left_nothing();
    }

    /// That the fake driver has nothing to complain about.
    #[track_caller]
    pub fn left_nothing(&self) {
        let report = self.report();
        let bad: Vec<&str> = report
            .lines()
            .filter(|line| !line.starts_with("process "))
            .collect();
        assert!(bad.is_empty(), "the fake driver reports:\n{report}");
    }

    /// The fake driver's report of all processes that ended by themselves.
    pub fn report(&self) -> String {
        if !self.setting.is_device() {
            return String::new();
        }
        std::fs::read_to_string(self.directory.join("report")).unwrap_or_default()
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.ranks.clear();
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A name that no other test uses.
pub fn fresh_name(what: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("failures-{what}-{}-{number}", std::process::id())
}

// ---- what a rank sees ----

/// This rank, in its own process.
pub struct Member {
    pub rank: usize,
    pub world: usize,
    pub setting: Setting,
    pub argument: String,
}

impl Member {
    /// Which role this process has to play, if it was started by a test.
    pub fn find() -> Option<(String, Self)> {
        let role = std::env::var(ROLE).ok()?;
        // A test that is killed takes its ranks with it.
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

    /// This rank's place in the world.
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

    /// Says something to the test.
    pub fn say(&self, key: &str, text: impl std::fmt::Display) {
        let text = text.to_string().replace('\n', " | ");
        let mut output = std::io::stdout().lock();
        // The harness may have begun a line. A test that is gone needs no answer.
        let _ = write!(output, "\n@{key} {text}\n");
        let _ = output.flush();
    }

    /// Says what came of something.
    pub fn tell<T, E: std::fmt::Debug>(&self, key: &str, result: &Result<T, E>) {
        match result {
            Ok(_) => self.say(key, "ok"),
            Err(error) => self.say(key, format!("{error:?}")),
        }
    }

    /// Waits until the test lets this rank go on.
    pub fn wait_for_go(&self) {
        let mut line = String::new();
        std::io::stdin()
            .read_line(&mut line)
            .expect("the test's word");
    }

    /// Says that this rank is ready and waits until it may go on.
    pub fn ready(&self) {
        self.say("ready", "");
        self.wait_for_go();
    }
}

fn variable(name: &str) -> String {
    std::env::var(name).unwrap_or_else(|_| panic!("{name} is set by the test"))
}

/// How many descriptors this process has open, and how many mappings: the fewest of some looks, since the
/// watcher has a file of a peer's open for a moment now and then.
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
