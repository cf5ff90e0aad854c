//! Finds a smaller program that fails. Each attempt is a process of its own, since it may crash or hang.

use crate::Options;
use crate::generate;
use crate::program::Program;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

/// How long to go on, unless nothing smaller is left.
const BUDGET: Duration = Duration::from_secs(240);

/// Prints the smallest failing program found from a seed's.
pub fn shrink(options: &Options) -> Result<ExitCode, String> {
    let seed = options.seed;
    let file = std::env::temp_dir().join(format!("symmem-adversary-{}.json", std::process::id()));
    let mut tree = generate::tree(seed);
    let fails = |program: &Program| -> Result<Option<String>, String> {
        crate::write(&file, program)?;
        let mut command = Command::new(std::env::current_exe().map_err(|error| error.to_string())?);
        command
            .arg("--replay")
            .arg(&file)
            .args(["--backend", &options.backend]);
        command.args(["--times", &options.times.to_string()]);
        if options.wrong_model {
            command.arg("--wrong-model");
        }
        if let Some(fake) = &options.fake {
            command.arg("--fake").arg(fake);
        }
        let output = command.stdin(Stdio::null()).output();
        let output = output.map_err(|error| error.to_string())?;
        if output.status.success() {
            return Ok(None);
        }
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        text += &String::from_utf8_lossy(&output.stderr);
        Ok(Some(format!("{}\n{text}", output.status)))
    };
    let Some(mut reason) = fails(&tree.current())? else {
        println!(
            "the program of seed {seed} passed {} times; it fails only now and then:\n{}",
            options.times,
            tree.current()
        );
        let _ = std::fs::remove_file(&file);
        return Ok(ExitCode::FAILURE);
    };
    let (start, mut smallest, mut attempts) = (Instant::now(), tree.current(), 0);
    let mut smaller = tree.simplify();
    while smaller && start.elapsed() < BUDGET {
        attempts += 1;
        smaller = match fails(&tree.current())? {
            Some(now) => {
                (reason, smallest) = (now, tree.current());
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    let _ = std::fs::remove_file(&file);
    let kept = std::env::temp_dir().join(format!("symmem-adversary-seed-{seed}.json"));
    crate::write(&kept, &smallest)?;
    println!(
        "shrunk in {attempts} attempts, to {}:\n{smallest}\n{reason}",
        kept.display()
    );
    Ok(ExitCode::FAILURE)
}
