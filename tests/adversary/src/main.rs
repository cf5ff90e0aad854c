//! Generated safe programs that try to crash symmem, to hang it, or to make it return wrong bytes.
//!
//! `cargo xtask adversary` starts this program; `AGENTS.md` says how to run it by hand.

mod buffer;
mod call;
mod counts;
mod ending;
mod enqueue;
mod fake;
mod generate;
mod place;
mod plan;
mod program;
mod rank;
mod reduce;
mod refused;
mod resolve;
mod scenes;
mod shrink;
mod sides;
mod usage;
mod world;

use crate::fake::Fake;
use crate::program::Program;
use crate::rank::PROGRESS;
use crate::world::Runner;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

/// A program that makes no step for so long hangs. Every wait of the library ends after 30 s.
const STILL: Duration = Duration::from_secs(150);

/// Options, from the command line.
struct Options {
    backend: String,
    /// The fake driver's file.
    fake: Option<PathBuf>,
    seed: u64,
    seconds: u64,
    /// Where the program that runs is written before it runs.
    current: Option<PathBuf>,
    replay: Option<PathBuf>,
    shrink: bool,
    /// How long to look for smaller programs, unless none is left.
    shrink_for: Duration,
    /// How often a program runs before it counts as one that passes: a race shows now and then.
    times: u32,
    wrong_model: bool,
}

const USAGE: &str = "usage: symmem-adversary [--backend NAME] [--fake FILE] [--seed S] [--seconds N] [--current FILE]
    runs the programs of seed S and after, for N seconds; 0 runs one
  symmem-adversary --replay FILE [--times N] ...   runs the program in FILE
  symmem-adversary --shrink --seed S [--shrink-seconds N] ...
    finds a smaller program that fails like that of seed S
  --wrong-model plants a fault in the model, to see that it is found";

fn options() -> Result<Options, String> {
    let mut options = Options {
        backend: "host".into(),
        fake: None,
        seed: 0,
        seconds: 0,
        current: None,
        replay: None,
        shrink: false,
        shrink_for: Duration::from_secs(240),
        times: 1,
        wrong_model: false,
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let mut value = || arguments.next().ok_or(format!("{name} needs a value"));
        let number = |text: String| {
            text.parse()
                .map_err(|_| format!("{name} needs a number, not {text}"))
        };
        match &name[..] {
            "--backend" => options.backend = value()?,
            "--fake" => options.fake = Some(value()?.into()),
            "--seed" => options.seed = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--times" => options.times = number(value()?)? as u32,
            "--current" => options.current = Some(value()?.into()),
            "--replay" => options.replay = Some(value()?.into()),
            "--shrink" => options.shrink = true,
            "--shrink-seconds" => options.shrink_for = Duration::from_secs(number(value()?)?),
            "--wrong-model" => options.wrong_model = true,
            _ => return Err(format!("no option {name}\n{USAGE}")),
        }
    }
    Ok(options)
}

fn main() -> ExitCode {
    match options().and_then(run) {
        Ok(code) => code,
        Err(reason) => {
            eprintln!("{reason}");
            ExitCode::from(2)
        }
    }
}

fn run(options: Options) -> Result<ExitCode, String> {
    if options.shrink {
        return shrink::shrink(&options);
    }
    call::WRONG.store(options.wrong_model, Ordering::Relaxed);
    world::note_panics();
    let fake = options.fake.as_deref().map(Fake::load).transpose()?;
    let runner = Runner::new(options.backend.clone(), fake);
    std::thread::spawn(watch);
    let code = match &options.replay {
        Some(file) => {
            let program = read(file)?;
            (0..options.times).all(|_| passes(&runner, &program, "replayed"))
        }
        None => seeds(&runner, &options)?,
    };
    println!("counts: {}", runner.counts);
    Ok(if code {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Runs the programs of one seed after the other.
fn seeds(runner: &Runner, options: &Options) -> Result<bool, String> {
    let start = Instant::now();
    let mut seed = options.seed;
    loop {
        let program = generate::tree(seed).current();
        if let Some(file) = &options.current {
            write(file, &program)?;
            // What runs when the process dies.
            let named = file.with_extension("seed");
            std::fs::write(&named, seed.to_string())
                .map_err(|error| format!("{}: {error}", named.display()))?;
        }
        if !passes(runner, &program, &format!("seed {seed}")) {
            return Ok(false);
        }
        seed += 1;
        if start.elapsed() >= Duration::from_secs(options.seconds) {
            return Ok(true);
        }
    }
}

fn passes(runner: &Runner, program: &Program, name: &str) -> bool {
    PROGRESS.fetch_add(1, Ordering::Relaxed);
    match runner.run(program) {
        Ok(()) => true,
        Err(failures) => {
            println!("failed: {name}");
            failures.iter().for_each(|failure| println!("  {failure}"));
            println!("{program}");
            false
        }
    }
}

/// Reads a program.
fn read(file: &Path) -> Result<Program, String> {
    let text = std::fs::read(file).map_err(|error| format!("{}: {error}", file.display()))?;
    serde_json::from_slice(&text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Writes a program.
fn write(file: &Path, program: &Program) -> Result<(), String> {
    let text = serde_json::to_vec(program).map_err(|error| error.to_string())?;
    std::fs::write(file, text).map_err(|error| format!("{}: {error}", file.display()))
}

/// Ends the process if no rank makes a step.
fn watch() {
    let mut last = (PROGRESS.load(Ordering::Relaxed), Instant::now());
    loop {
        std::thread::sleep(Duration::from_millis(500));
        let now = PROGRESS.load(Ordering::Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > STILL {
            println!("failed: no step for {STILL:?}: a hang");
            std::process::abort();
        }
    }
}
