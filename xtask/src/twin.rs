//! `cargo xtask twin`: the device code's tests on the host, under sanitizers.

use std::process::Command;

use crate::error::Result;
use crate::tools::{self, Scratch};

/// Programs, sanitizers, and the part of the tests they run on. Threads of the copies share nothing, and
/// ThreadSanitizer would need minutes to say so.
const RUNS: [(&str, &str, &str); 4] = [
    ("twin", "address,undefined", "all"),
    ("twin", "thread", "protocol"),
    ("collectives", "address,undefined", "all"),
    ("collectives", "thread", "calls"),
];

/// Schedules of the collectives' tests; each decides its sizes, types and grids too.
const SEEDS: u32 = 24;

/// Builds `device/tests/*.cpp` and runs them.
pub fn run() -> Result<()> {
    let compiler = tools::cxx()?;
    let root = tools::root();
    let scratch = Scratch::new("twin")?;
    for (name, sanitizers, part) in RUNS {
        let program = scratch.path().join(format!("{name}-{part}"));
        tools::output(
            Command::new(&compiler)
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
                .arg(root.join(format!("device/tests/{name}.cpp")))
                .arg("-o")
                .arg(&program),
        )?;
        print!(
            "{name}, {sanitizers}: {}",
            tools::output(Command::new(&program).arg(part).arg(SEEDS.to_string()))?
        );
    }
    Ok(())
}
