//! `cargo xtask twin`: the device code's tests on the host, under sanitizers.

use std::process::Command;

use crate::error::Result;
use crate::tools::{self, Scratch};

/// Sanitizers and the part of the tests they run on. Threads of the copies share nothing, and
/// ThreadSanitizer would need minutes to say so.
const RUNS: [(&str, &str); 2] = [("address,undefined", "all"), ("thread", "protocol")];

/// Builds `device/tests/twin.cpp` and runs it.
pub fn run() -> Result<()> {
    let compiler = tools::cxx()?;
    let root = tools::root();
    let scratch = Scratch::new("twin")?;
    for (sanitizers, part) in RUNS {
        let program = scratch.path().join(part);
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
                    "-pthread",
                ])
                .arg(format!("-fsanitize={sanitizers}"))
                .arg("-fno-sanitize-recover=all")
                .arg("-I")
                .arg(root.join("device/include"))
                .arg(root.join("device/tests/twin.cpp"))
                .arg("-o")
                .arg(&program),
        )?;
        print!(
            "{sanitizers}: {}",
            tools::output(Command::new(&program).arg(part))?
        );
    }
    Ok(())
}
