//! Finds a smaller program that fails. Each attempt is a process of its own, since it may crash or hang.

use crate::Options;
use crate::generate::{self, Tree};
use crate::program::Program;
use std::process::{Command, ExitCode, Stdio};
use std::time::Instant;

/// Prints the smallest failing program found from a seed's.
pub fn shrink(options: &Options) -> Result<ExitCode, String> {
    let seed = options.seed;
    let file = std::env::temp_dir().join(format!("symmem-adversary-{}.json", std::process::id()));
    let tree = generate::tree(seed);
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
    let original = tree.current();
    let Some(reason) = fails(&original)? else {
        println!(
            "the program of seed {seed} passed {} times; it fails only now and then:\n{original}",
            options.times,
        );
        let _ = std::fs::remove_file(&file);
        return Ok(ExitCode::FAILURE);
    };
    let start = Instant::now();
    let goes_on = || start.elapsed() < options.shrink_for;
    let smaller = smallest(tree, goes_on, fails)?;
    let _ = std::fs::remove_file(&file);
    let (smallest, reason) = smaller.found.unwrap_or((original, reason));
    let attempts = smaller.attempts;
    let kept = std::env::temp_dir().join(format!("symmem-adversary-seed-{seed}.json"));
    crate::write(&kept, &smallest)?;
    println!(
        "shrunk in {attempts} attempts, to {}:\n{smallest}\n{reason}",
        kept.display()
    );
    Ok(ExitCode::FAILURE)
}

/// What a search has found.
struct Smaller<T> {
    /// The smallest program that fails, and how; `None` if that is the first one.
    found: Option<(Program, T)>,
    /// Programs tried.
    attempts: usize,
}

/// Tries smaller programs while `goes_on`, and until none is left. The tree's own program fails.
fn smallest<T>(
    mut tree: Tree,
    goes_on: impl Fn() -> bool,
    fails: impl Fn(&Program) -> Result<Option<T>, String>,
) -> Result<Smaller<T>, String> {
    let mut smaller = Smaller {
        found: None,
        attempts: 0,
    };
    let mut left = tree.simplify();
    while left && goes_on() {
        let program = tree.current();
        smaller.attempts += 1;
        left = match fails(&program)? {
            Some(how) => {
                smaller.found = Some((program, how));
                tree.simplify()
            }
            None => tree.complicate(),
        };
    }
    Ok(smaller)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Action, plan};
    use crate::program::Kind;

    /// Returns the number of broadcasts among more than one rank that a program enqueues, and of all its actions.
    fn count(program: &Program) -> (usize, usize) {
        let phases = plan(program);
        let actions = phases.iter().flat_map(|phase| &phase.actions);
        let broadcasts = actions.clone().filter(|(_, action)| {
            matches!(action, Action::Enqueue { call, .. }
                if call.kind == Kind::Broadcast && call.members.iter().any(|group| group.len() > 1))
        });
        (broadcasts.count(), actions.count())
    }

    #[test]
    fn a_program_shrinks_to_the_call_that_fails() {
        let broadcasts = |seed: &u64| count(&generate::tree(*seed).current()).0 > 0;
        let seed = (0..100).find(broadcasts).expect("programs broadcast");
        let fails = |program: &Program| Ok((count(program).0 > 0).then_some(()));
        let smaller = smallest(generate::tree(seed), || true, fails).unwrap();
        let (program, ()) = smaller.found.expect("a smaller program");
        let (broadcasts, actions) = count(&program);
        assert_eq!(broadcasts, 1, "{program}");
        // It also needs buffers and a stream. The steps that bring them may go only together.
        assert!(actions <= 20, "{actions} actions are left:\n{program}");
    }
}
