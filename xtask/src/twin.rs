//! `cargo xtask twin`: runs the device code's tests on the host, under sanitizers.

use std::path::Path;
use std::process::Command;

use crate::error::Result;
use crate::tools::{self, Scratch};

/// A run of a program of `device/tests` under certain sanitizers.
#[derive(Clone, Copy)]
struct Run {
    program: &'static str,
    /// Additional compiler options.
    options: &'static [&'static str],
    sanitizers: &'static str,
    /// The part of its tests. ThreadSanitizer skips the copies, whose threads share nothing; they would take minutes.
    part: &'static str,
    /// The first seed, and the number of seeds.
    seed: u32,
    seeds: u32,
    /// The compiler's level of optimization.
    level: &'static str,
}

/// The runs. Each sanitizer uses different seeds, to cover more schedules.
const RUNS: [Run; 22] = [
    Run::new("collectives", "address,undefined", "all", 1),
    Run::new("collectives", "thread", "calls", 1 + SEEDS),
    Run::new("twin", "address,undefined", "all", 1),
    Run::new("twin", "thread", "protocol", 1),
    Run::new("gathered_gemm", "address,undefined", "all", 1),
    Run::new("gathered_gemm", "thread", "calls", 1 + SEEDS),
    Run::new("gathered_gemm", "address,undefined", "calls", 1 + 2 * SEEDS).few(&TO_SHARED),
    Run::new("gathered_gemm", "thread", "calls", 1 + 3 * SEEDS).few(&TO_SHARED),
    Run::new("reduced_gemm", "address,undefined", "all", 1),
    Run::new("reduced_gemm", "thread", "calls", 1 + SEEDS),
    Run::new("reduced_gemm", "address,undefined", "calls", 1 + 2 * SEEDS).few(&TO_SHARED),
    Run::new("reduced_gemm", "thread", "calls", 1 + 3 * SEEDS).few(&TO_SHARED),
    Run::new("gathered_at_once", "address,undefined", "all", 1),
    Run::new("gathered_at_once", "thread", "calls", 1 + SEEDS),
    Run::new("lamport", "address,undefined", "all", 1),
    Run::new("lamport", "thread", "calls", 1 + SEEDS),
    Run::new("norm", "address,undefined", "all", 1),
    Run::new("norm", "thread", "calls", 1 + SEEDS),
    Run::new("multicast", "address,undefined", "all", 1),
    Run::new("multicast", "thread", "calls", 1 + SEEDS),
    Run::new("multicast", "address,undefined", "switch", 1 + 2 * SEEDS).with(&SWITCH),
    Run::new("multicast", "thread", "switch", 1 + 3 * SEEDS).with(&SWITCH),
];

/// Uses multicast addresses, which the test's simulated switch handles.
const SWITCH: [&str; 1] = ["-DSYMMEM_MULTICAST_HARDWARE"];

/// Loads to shared memory without registers, as on gfx950.
const TO_SHARED: [&str; 1] = ["-DSYMMEM_HOST_LOADS_TO_SHARED"];

/// Seeds per run. A seed determines the schedule, sizes, types and grids.
const SEEDS: u32 = 12;

/// Builds and runs `device/tests/*.cpp`. A draw is of a sixth as many seeds, for runs that each draw their own.
pub fn run(draw: Option<u32>) -> Result<()> {
    let compiler = tools::cxx()?;
    let runs: Vec<Run> = match draw {
        None => RUNS.into(),
        Some(draw) => (RUNS.into_iter())
            .filter(|run| run.is_in(draw))
            .map(|run| run.drawn(draw))
            .collect(),
    };
    let scratch = Scratch::new("twin")?;
    let headers = tools::root().join("device/include");
    let said = tools::side_by_side(&runs, |run| {
        run.build_and_run(&compiler, &headers, scratch.path())
    })?;
    print!("{}", said.concat());
    Ok(())
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
            options: &[],
            sanitizers,
            part,
            seed,
            seeds: SEEDS,
            level: "-O1",
        }
    }

    const fn with(self, options: &'static [&'static str]) -> Self {
        Self { options, ..self }
    }

    /// The same with a third of the seeds, where what the options change is a small part of the code.
    const fn few(self, options: &'static [&'static str]) -> Self {
        Self {
            options,
            seeds: SEEDS / 3,
            ..self
        }
    }

    /// Whether a draw has it: code of which a small part is another one is built for one sanitizer in turn.
    fn is_in(&self, draw: u32) -> bool {
        self.options != TO_SHARED || (self.sanitizers == "thread") == (draw % 2 == 1)
    }

    /// The same with a sixth of the seeds, which depend on a number. So few run sooner than the code is optimized.
    fn drawn(self, draw: u32) -> Self {
        Self {
            // The programs read it as an `int`.
            seed: self.seed + draw % 10_000_000 * 100,
            seeds: self.seeds.div_ceil(6),
            level: "-O0",
            ..self
        }
    }

    /// Builds and runs the program with the device code in `headers`. Returns its name and output.
    fn build_and_run(&self, compiler: &Path, headers: &Path, folder: &Path) -> Result<String> {
        let Self {
            program,
            options,
            sanitizers,
            part,
            seed,
            seeds,
            level,
        } = self;
        let root = tools::root();
        // Several runs may share program and part; their seeds differ.
        let built = folder.join(format!("{program}-{part}-{seed}"));
        tools::output(
            Command::new(compiler)
                .args([
                    "-x",
                    "c++",
                    "-std=c++17",
                    level,
                    "-g1",
                    "-Wall",
                    "-Wextra",
                    "-Werror",
                    // GCC does not know that a world has members; clang does not know the warning.
                    "-Wno-maybe-uninitialized",
                    "-Wno-unknown-warning-option",
                    "-pthread",
                    "-DSYMMEM_HOST_SCHEDULES",
                ])
                .args(*options)
                .arg(format!("-fsanitize={sanitizers}"))
                .arg("-fno-sanitize-recover=all")
                .arg("-I")
                .arg(headers)
                .arg(root.join(format!("device/tests/{program}.cpp")))
                .arg("-o")
                .arg(&built),
        )?;
        let said = tools::output(
            Command::new(&built)
                // One race is enough; reporting all takes long.
                .env("TSAN_OPTIONS", "halt_on_error=1")
                .arg(part)
                .args([seeds.to_string(), seed.to_string()]),
        )?;
        Ok(format!("{program}, {sanitizers}: {said}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::amount;
    use crate::error::Error;
    use std::io::Write;

    /// Plants a fault in a header and checks that the tests fail with output that contains `word`.
    #[track_caller]
    fn finds(name: &str, run: Run, header: &str, right: &str, wrong: &str, word: &str) {
        if amount::too_long() {
            return;
        }
        let Ok(compiler) = tools::cxx() else {
            assert!(std::env::var_os("CI").is_none(), "CI installs clang-22");
            // Written directly, since the harness hides the output of passing tests.
            let _ = writeln!(std::io::stderr(), "skipped: {name}: no C++ compiler");
            return;
        };
        let scratch = Scratch::new(name).unwrap();
        let planted = scratch.path().join("symmem");
        std::fs::create_dir_all(&planted).unwrap();
        let headers = tools::root().join("device/include/symmem");
        for file in std::fs::read_dir(headers).unwrap() {
            let file = file.unwrap();
            let mut text = std::fs::read_to_string(file.path()).unwrap();
            if file.file_name() == header {
                assert!(text.contains(right), "{header} has no {right:?}");
                text = text.replace(right, wrong);
            }
            std::fs::write(planted.join(file.file_name()), text).unwrap();
        }
        // A race may not show in the first schedule. Compiling takes a fifth of the time without optimization.
        let run = Run {
            seeds: 2,
            level: "-O0",
            ..run
        };
        match run.build_and_run(&compiler, scratch.path(), scratch.path()) {
            Err(Error::ToolFailed { output, .. }) => {
                assert!(output.contains(word), "{word:?} in {output}")
            }
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_flag_that_publishes_nothing_is_a_race() {
        finds(
            "twin-race",
            Run::new("twin", "thread", "protocol", 1),
            "arch_host.h",
            "__atomic_store_n(word, value, __ATOMIC_RELEASE)",
            "__atomic_store_n(word, value, __ATOMIC_RELAXED)",
            "data race",
        );
    }

    #[test]
    fn a_signal_that_the_first_block_gives_is_found() {
        finds(
            "twin-signal",
            Run::new("twin", "address,undefined", "protocol", 1),
            "signal.h",
            "!= blocks - 1) return",
            "!= 0) return",
            "failed: a signal covers the stores of every block",
        );
    }

    #[test]
    fn a_norm_over_one_line_of_a_block_is_found() {
        finds(
            "twin-norm",
            Run::new("norm", "address,undefined", "all", 1),
            "block_sums.h",
            "return place < count ? lines[place] : 0;",
            "return place < 1 ? lines[place] : 0;",
            "failed: the results",
        );
    }

    #[test]
    fn sums_over_a_block_in_one_half_of_its_memory_are_a_race() {
        finds(
            "twin-norm-halves",
            Run::new("norm", "thread", "calls", 1),
            "block_sums.h",
            "half_ ^= 1;",
            "",
            "data race",
        );
    }

    #[test]
    fn a_multicast_barrier_that_releases_nothing_is_a_race() {
        finds(
            "twin-multicast",
            Run::new("multicast", "thread", "calls", 1),
            "arch_host.h",
            "__atomic_fetch_add(word, operand, __ATOMIC_ACQ_REL)",
            "__atomic_fetch_add(word, operand, __ATOMIC_RELAXED)",
            "data race",
        );
    }

    #[test]
    fn a_multicast_call_that_does_not_wait_for_its_peers_first_is_a_race() {
        finds(
            "twin-multicast-first",
            Run::new("multicast", "thread", "calls", 1),
            "multicast.h",
            "if (multicast_barrier(members, arguments, only_meets) && !only_meets) {",
            "if (!only_meets || (multicast_barrier(members, arguments, only_meets) && !only_meets)) {",
            "data race",
        );
    }

    #[test]
    fn a_multicast_access_where_addresses_do_not_agree_is_found() {
        finds(
            "twin-switch",
            Run::new("multicast", "address,undefined", "switch", 1).with(&SWITCH),
            "multicast.h",
            "return (differ & (unit - 1)) == 0;",
            "return (differ & (unit - 1)) <= 15;",
            "a multicast access is not aligned",
        );
    }

    #[test]
    fn a_multicast_release_of_too_small_a_scope_is_found() {
        finds(
            "twin-switch-scope",
            Run::new("multicast", "address,undefined", "switch", 1).with(&SWITCH),
            "multicast.h",
            "multicast_barrier(members, arguments, stores_to_all(arguments));",
            "multicast_barrier(members, arguments, !stores_to_all(arguments));",
            "failed: stores at peers are known to the barrier behind a call",
        );
    }
}
