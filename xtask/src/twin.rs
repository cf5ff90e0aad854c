//! `cargo xtask twin`: the device code's tests on the host, under sanitizers.

use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::tools::{self, Scratch};

/// A program of `device/tests`, built with sanitizers of its own.
struct Run {
    program: &'static str,
    sanitizers: &'static str,
    /// The part of its tests. Threads of the copies share nothing, and ThreadSanitizer would need
    /// minutes to say so.
    part: &'static str,
    /// The first of its [`SEEDS`].
    seed: u32,
}

/// Each sanitizer has schedules of its own, so that there are more of them.
const RUNS: [Run; 4] = [
    Run::new("collectives", "address,undefined", "all", 1),
    Run::new("collectives", "thread", "calls", 1 + SEEDS),
    Run::new("twin", "address,undefined", "all", 1),
    Run::new("twin", "thread", "protocol", 1),
];

/// Schedules of the collectives' tests; each decides its sizes, types and grids too.
const SEEDS: u32 = 12;

/// Builds `device/tests/*.cpp` and runs them, side by side.
pub fn run() -> Result<()> {
    let compiler = tools::cxx()?;
    let scratch = Scratch::new("twin")?;
    std::thread::scope(|scope| {
        let started = RUNS.map(|run| {
            let (compiler, folder) = (&compiler, scratch.path());
            scope.spawn(move || run.build_and_run(compiler, folder))
        });
        for run in started {
            let said = match run.join() {
                Ok(said) => said?,
                Err(panic) => std::panic::resume_unwind(panic),
            };
            print!("{said}");
        }
        Ok(())
    })
}

impl Run {
    const fn new(
        program: &'static str,
        sanitizers: &'static str,
        part: &'static str,
        seed: u32,
    ) -> Self {
        Self {
            program,
            sanitizers,
            part,
            seed,
        }
    }

    /// What it was, and what it said.
    fn build_and_run(&self, compiler: &Path, folder: &Path) -> Result<String> {
        let Self {
            program,
            sanitizers,
            part,
            seed,
        } = self;
        let root = tools::root();
        let built = folder.join(format!("{program}-{part}"));
        tools::output(
            Command::new(compiler)
                .args([
                    "-x",
                    "c++",
                    "-std=c++17",
                    "-O1",
                    "-g",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    // A world has members, which GCC does not know; clang does not know the warning.
                    "-Wno-maybe-uninitialized",
                    "-Wno-unknown-warning-option",
                    "-pthread",
                    "-DSYMMEM_HOST_SCHEDULES",
                ])
                .arg(format!("-fsanitize={sanitizers}"))
                .arg("-fno-sanitize-recover=all")
                .arg("-I")
                .arg(root.join("device/include"))
                .arg(root.join(format!("device/tests/{program}.cpp")))
                .arg("-o")
                .arg(&built),
        )?;
        let said = tools::output(
            Command::new(&built)
                .arg(part)
                .args([SEEDS.to_string(), seed.to_string()]),
        )?;
        Ok(format!("{program}, {sanitizers}: {said}"))
    }
}
