//! `cargo xtask adversary`: runs generated safe programs over the host backend, under sanitizers, and over the fake
//! drivers.
//!
//! This command builds `tests/adversary`, starts one process for each backend, and watches it: the programs themselves,
//! the model of what they must do, and the search for a smaller failing program are that crate's.

use std::collections::BTreeMap;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crate::api;
use crate::error::{Error, Result, at};
use crate::fake_packages::FAKES;
use crate::tools::{self, root};

/// How long a process may go on behind its time: the last program ends, and a hang is noticed after 150 s.
const LATE: Duration = Duration::from_secs(300);
/// How long the search for a smaller program may take. Each of its attempts may be a hang.
const SHRINK: Duration = Duration::from_secs(1200);

/// The command's options.
#[derive(clap::Args)]
pub struct Options {
    /// How long to run, in minutes, divided among the backends; builds take longer.
    #[arg(long, default_value_t = 1.0)]
    minutes: f64,
    /// The first program's seed; the others follow. By default the time, which is printed.
    #[arg(long)]
    seed: Option<u64>,
    /// What to run over; all of them by default.
    #[arg(long, value_delimiter = ',', value_enum)]
    over: Vec<Over>,
}

/// A backend, and how the program is built.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Over {
    /// The host backend.
    Host,
    /// The host backend under AddressSanitizer.
    HostAsan,
    /// The host backend under ThreadSanitizer, with a standard library built for it.
    HostTsan,
    /// CUDA over the fake driver.
    FakeCuda,
    /// HIP over the fake runtime.
    FakeHip,
}

const ALL: [Over; 5] = [
    Over::Host,
    Over::HostAsan,
    Over::HostTsan,
    Over::FakeCuda,
    Over::FakeHip,
];

impl Over {
    fn name(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::HostAsan => "host-asan",
            Self::HostTsan => "host-tsan",
            Self::FakeCuda => "fake-cuda",
            Self::FakeHip => "fake-hip",
        }
    }

    /// Returns the fake driver's library, and the names by which a backend looks up that and cuBLASLt or hipBLASLt.
    fn driver(self) -> Option<(&'static str, &'static str, &'static str)> {
        let cuda = (
            "libsymmem_fake_cuda.so",
            "libcuda.so.1",
            "libcublasLt.so.12",
        );
        let hip = (
            "libsymmem_fake_hip.so",
            "libamdhip64.so.7",
            "libhipblaslt.so.1",
        );
        match self {
            Self::FakeCuda => Some(cuda),
            Self::FakeHip => Some(hip),
            _ => None,
        }
    }
}

/// Builds, runs, and prints the sums of all counts.
pub fn run(options: &Options) -> Result<()> {
    let over = if options.over.is_empty() {
        &ALL[..]
    } else {
        &options.over
    };
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    let seed = options
        .seed
        .unwrap_or_else(|| now.map_or(1, |time| time.as_secs()));
    let seconds = (options.minutes * 60.0 / over.len() as f64).ceil() as u64;
    println!("seed {seed}, {seconds} s over each of {}", names(over));
    let mut sums: BTreeMap<String, u64> = BTreeMap::new();
    let mut failed = Vec::new();
    for &over in over {
        let program = build(over)?;
        let counts = program.run(seed, seconds)?;
        let Some(counts) = counts else {
            failed.push(over.name().to_owned());
            continue;
        };
        println!("{}: {}", over.name(), brief(&counts));
        for (name, count) in counts {
            *sums.entry(name).or_default() += count;
        }
    }
    let pairs: Vec<String> = sums
        .iter()
        .map(|(name, count)| format!("{name}={count}"))
        .collect();
    println!("all: {}", pairs.join(" "));
    if failed.is_empty() {
        Ok(())
    } else {
        Err(Error::Adversary(failed))
    }
}

fn names(over: &[Over]) -> String {
    let names: Vec<&str> = over.iter().map(|over| over.name()).collect();
    names.join(", ")
}

/// Returns the counts that a reader wants first.
fn brief(counts: &BTreeMap<String, u64>) -> String {
    let of = |name: &str| counts.get(name).copied().unwrap_or(0);
    let sum = |prefix: &str| -> u64 {
        let matching = counts.iter().filter(|(name, _)| name.starts_with(prefix));
        matching.map(|(_, count)| count).sum()
    };
    format!(
        "{} programs, {} calls, {} other actions, {} expected errors, {} reads compared ({} bytes)",
        of("programs"),
        sum("call."),
        sum("action."),
        sum("error."),
        of("checks"),
        of("bytes"),
    )
}

/// A built adversary, and the environment that it runs in.
struct Program {
    over: Over,
    file: PathBuf,
    /// The fake driver, by the name that a backend looks up.
    driver: Option<PathBuf>,
}

fn build(over: Over) -> Result<Program> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let sanitizer = match over {
        Over::HostAsan => Some(("sanitizer", "-Zsanitizer=address")),
        // rustix's own system calls would hide from the sanitizer how sockets order the ranks.
        Over::HostTsan => Some((
            "thread-sanitizer",
            "-Zsanitizer=thread --cfg rustix_use_libc",
        )),
        _ => None,
    };
    let Some((target, flags)) = sanitizer else {
        // As CI's tests build them: features of dependencies are those of all packages that a command names, so the same
        // packages have to be named for one build to serve both.
        let programs = ["test", "--workspace", "--no-run", "--test", "adversary"];
        let fakes = FAKES.iter().flat_map(|package| ["-p", package]);
        let libraries = ["build", "--lib"].into_iter().chain(fakes);
        for arguments in [programs.to_vec(), libraries.collect()] {
            let mut command = Command::new(&cargo);
            command.args(arguments).arg("--quiet");
            tools::output(command.current_dir(root()))?;
        }
        let built = root().join("target/debug");
        let driver = over.driver().map(|(library, name, multiplies)| {
            let folder = root().join("target/adversary").join(over.name());
            link(
                &built.join("libsymmem_fake_blaslt.so"),
                &folder.join(multiplies),
            )?;
            link(&built.join(library), &folder.join(name))
        });
        return Ok(Program {
            over,
            file: built.join("symmem-adversary"),
            driver: driver.transpose()?,
        });
    };
    let toolchain = api::toolchain(&root())?;
    let host = host(&toolchain)?;
    // The variables are those of the cargo that runs this command.
    let mut command = Command::new("rustup");
    command.args(["run", &toolchain, "cargo", "build", "--quiet"]);
    command.args(["--target", &host, "--no-default-features"]);
    command.args(["-p", "symmem-adversary", "--bin", "symmem-adversary"]);
    match over {
        Over::HostTsan => command.arg("-Zbuild-std=std"),
        // Named too, so that both share what CI's step `sanitizer` has built: features of dependencies are those of
        // all packages that a command names.
        _ => command.args(["-p", "symmem-library-tests", "--test", "ownership"]),
    };
    let folder = root().join("target").join(target);
    command.env("CARGO_TARGET_DIR", &folder);
    command.env("RUSTFLAGS", flags);
    command.env_remove("RUSTC").env_remove("RUSTUP_TOOLCHAIN");
    tools::output(command.current_dir(root()))?;
    Ok(Program {
        over,
        file: folder.join(host).join("debug/symmem-adversary"),
        driver: None,
    })
}

/// Returns the target that a toolchain runs on.
fn host(toolchain: &str) -> Result<String> {
    let text = tools::output(Command::new("rustup").args(["run", toolchain, "rustc", "-vV"]))?;
    let line = text.lines().find_map(|line| line.strip_prefix("host: "));
    line.map(str::to_owned).ok_or(Error::ToolFailed {
        command: format!("rustup run {toolchain} rustc -vV"),
        output: text.clone(),
    })
}

/// Makes `to` a link to a library, and returns it.
fn link(library: &Path, to: &Path) -> Result<PathBuf> {
    if let Some(folder) = to.parent() {
        at(folder, std::fs::create_dir_all(folder))?;
    }
    if std::fs::read_link(to).ok().as_deref() != Some(library) {
        let _ = std::fs::remove_file(to);
        at(to, std::os::unix::fs::symlink(library, to))?;
    }
    Ok(to.to_owned())
}

impl Program {
    fn command(&self) -> Command {
        let mut command = Command::new(&self.file);
        command.stdin(Stdio::null());
        command.env("ASAN_OPTIONS", "detect_leaks=1");
        command.env("TSAN_OPTIONS", "halt_on_error=1");
        let backend = match self.over {
            Over::FakeCuda => "cuda",
            Over::FakeHip => "hip",
            _ => "host",
        };
        command.args(["--backend", backend]);
        if let Some(driver) = &self.driver {
            command.arg("--fake").arg(driver);
            command.env("SYMMEM_LIBRARY_PATH", driver.parent().unwrap_or(driver));
            command.env("FAKE_DEVICE_COUNT", "4");
            command.env("NCCL_NVLS_ENABLE", "0");
        }
        command
    }

    /// Runs programs for so many seconds. Returns the counts, or `None` after it has printed what failed.
    fn run(&self, seed: u64, seconds: u64) -> Result<Option<BTreeMap<String, u64>>> {
        let folder = root().join("target/adversary");
        at(&folder, std::fs::create_dir_all(&folder))?;
        let current = folder.join(format!("{}.json", self.over.name()));
        let mut command = self.command();
        command.args(["--seed", &seed.to_string()]);
        command.args(["--seconds", &seconds.to_string()]);
        command.arg("--current").arg(&current);
        let limit = Duration::from_secs(seconds) + LATE;
        let (status, text) = watched(&mut command, limit)?;
        let counts = text.lines().find_map(|line| line.strip_prefix("counts: "));
        if let (true, Some(counts)) = (status.success(), counts) {
            return Ok(Some(parse(counts)));
        }
        let last = std::fs::read_to_string(current.with_extension("seed"));
        let last = last.ok().and_then(|seed| seed.parse::<u64>().ok());
        println!(
            "{}: {status}, in the program of seed {}, which is in {}:\n{text}",
            self.over.name(),
            last.map_or("?".into(), |seed| seed.to_string()),
            current.display()
        );
        if let Some(last) = last {
            let mut command = self.command();
            command.args(["--shrink", "--times", "3", "--seed", &last.to_string()]);
            let (_, text) = watched(&mut command, SHRINK)?;
            println!("{text}");
        }
        Ok(None)
    }
}

fn parse(counts: &str) -> BTreeMap<String, u64> {
    let pairs = counts
        .split_whitespace()
        .filter_map(|pair| pair.split_once('='));
    pairs
        .filter_map(|(name, count)| Some((name.to_owned(), count.parse().ok()?)))
        .collect()
}

/// Runs a process, which is killed at the limit. Returns how it ended, and its output.
fn watched(command: &mut Command, limit: Duration) -> Result<(ExitStatus, String)> {
    let program = PathBuf::from(command.get_program());
    let child = command
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child: Child = at(&program, child)?;
    let readers = [
        child.stdout.take().map(|pipe| collect(Box::new(pipe))),
        child.stderr.take().map(|pipe| collect(Box::new(pipe))),
    ];
    let start = Instant::now();
    let status = loop {
        if let Some(status) = at(&program, child.try_wait())? {
            break status;
        }
        if start.elapsed() > limit {
            println!("killed after {limit:?}: a hang");
            at(&program, child.kill())?;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let texts = readers.into_iter().flatten().map(|reader| {
        let joined = reader.join();
        joined.unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    });
    Ok((status, texts.collect()))
}

/// Reads a pipe to its end on a thread, so that the process never waits for room in it.
fn collect(mut pipe: Box<dyn Read + Send>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}
