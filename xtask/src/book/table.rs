//! Generates the book's table of environment variables.

use super::variables::{FROM_LAUNCHER, SYMMEM, VARIABLES, Variable};
use std::fmt::Write;

/// Variables that only the command and the benchmarks read: name, values, default, effect.
const OF_THE_COMMAND: [[&str; 4]; 5] = [
    [
        "SYMMEM_LOG",
        "a level such as debug, or target=level pairs separated by commas",
        "warnings and errors",
        "Selects what the command logs to standard error",
    ],
    [
        "SYMMEM_PYTHON",
        "a Python interpreter",
        "python3",
        "Names the Python whose PyTorch the benchmarks run as a baseline",
    ],
    [
        "SYMMEM_NVSHMEM_BASELINE",
        "a program",
        "NVSHMEM is not measured",
        "Names the program that benches/baselines/build.sh made, for `symmem bench p2p`",
    ],
    [
        "SYMMEM_FLASHINFER_BASELINE",
        "a program",
        "FlashInfer and vLLM are not measured",
        "Names the program that benches/baselines/build_flashinfer.sh made, for `symmem bench collectives`",
    ],
    [
        "SYMMEM_COMMIT",
        "a commit, when the command is compiled",
        "the commit of the checkout",
        "Names the commit that reports of this build record",
    ],
];

/// Returns the four tables: variables of symmem, of other libraries, of launchers, and of the command.
pub fn all() -> String {
    let own = |variable: &&Variable| variable.owner == SYMMEM;
    let launcher = |variable: &&Variable| variable.default == FROM_LAUNCHER && !own(variable);
    let mut text = String::new();
    section(&mut text, "symmem", VARIABLES.iter().filter(own));
    let others = VARIABLES.iter().filter(|one| !own(one) && !launcher(one));
    section(&mut text, "Other libraries and tools", others);
    section(&mut text, "Launchers", VARIABLES.iter().filter(launcher));
    text.push_str("\n## The `symmem` command\n\n");
    text.push_str("| variable | values | default | what it does |\n|---|---|---|---|\n");
    for [name, accepts, default, about] in OF_THE_COMMAND {
        let _ = writeln!(text, "| `{name}` | {accepts} | {default} | {about} |");
    }
    text.push('\n');
    text
}

fn section<'a>(text: &mut String, heading: &str, variables: impl Iterator<Item = &'a Variable>) {
    let _ = writeln!(text, "\n## {heading}\n");
    text.push_str("| variable | values | default | what it does |\n|---|---|---|---|\n");
    for variable in variables {
        let owner = match variable.owner {
            SYMMEM => String::new(),
            owner => format!(" ({owner})"),
        };
        let _ = writeln!(
            text,
            "| `{}`{owner} | {} | {} | {} |",
            variable.name, variable.accepts, variable.default, variable.about
        );
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use std::path::Path;

    /// Returns the names of symmem's variables among the literals of a crate's sources.
    fn named(folder: &Path, found: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                named(&path, found);
            } else if path.extension().is_some_and(|end| end == "rs") {
                let text = std::fs::read_to_string(&path).unwrap();
                let literals = text.split('"').filter(|text| {
                    text.starts_with("SYMMEM_")
                        && text.chars().all(|c| c.is_ascii_uppercase() || c == '_')
                });
                found.extend(literals.map(str::to_owned));
            }
        }
    }

    // The library has the same test for itself and the backends.
    #[test]
    fn the_variables_that_command_and_benchmarks_name_are_in_the_tables_and_no_others() {
        let mut found = BTreeSet::new();
        for folder in ["cli/src", "benches/src", "conformance/src"] {
            named(&crate::tools::root().join(folder), &mut found);
        }
        let known: BTreeSet<&str> = VARIABLES.iter().map(|one| one.name).collect();
        let more: BTreeSet<&str> = found
            .iter()
            .map(String::as_str)
            .filter(|name| !known.contains(name))
            .collect();
        assert_eq!(more, OF_THE_COMMAND.iter().map(|row| row[0]).collect());
    }

    #[test]
    fn every_variable_is_in_one_row() {
        let text = all();
        for name in VARIABLES
            .iter()
            .map(|one| one.name)
            .chain(OF_THE_COMMAND.iter().map(|row| row[0]))
        {
            let rows = text
                .lines()
                .filter(|line| line.starts_with(&format!("| `{name}`")))
                .count();
            assert_eq!(rows, 1, "{name}");
        }
    }
}
