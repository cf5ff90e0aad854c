//! Who is measured: ourselves, the vendor's library through our own calls, and programs beside us.

use super::external::Program;
use crate::report::collectives::OURS;

/// A library that takes its turn in each round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// Its name in the report.
    pub name: &'static str,
    pub by: By,
}

/// How it is called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum By {
    /// By this library.
    Us,
    /// The vendor's library through this one, with symmetric windows or without.
    Vendor { windows: bool },
    /// A program beside us, which knows the library by this name.
    Program(Program, &'static str),
}

/// Baselines by the names that a user gives, and the contenders that each brings.
const BASELINES: [(&str, &[Contender]); 6] = [
    ("nccl", &[vendor("nccl", false)]),
    ("nccl-windows", &[vendor("nccl windows", true)]),
    (
        "torch",
        &[
            torch("torch one-shot", "torch_one-shot"),
            torch("torch two-shot", "torch_two-shot"),
        ],
    ),
    ("nccl-torch", &[torch("nccl-torch", "nccl-torch")]),
    ("gloo", &[torch("gloo", "gloo")]),
    (
        "mpi",
        &[Contender {
            name: "mpi",
            by: By::Program(Program::Mpi, "mpi"),
        }],
    ),
];

const fn vendor(name: &'static str, windows: bool) -> Contender {
    Contender {
        name,
        by: By::Vendor { windows },
    }
}

const fn torch(name: &'static str, library: &'static str) -> Contender {
    Contender {
        name,
        by: By::Program(Program::Torch, library),
    }
}

/// Every baseline's name, for a message.
pub fn baseline_names() -> String {
    let names: Vec<&str> = BASELINES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Whether there is a baseline of that name.
pub fn is_baseline(name: &str) -> bool {
    BASELINES.iter().any(|(known, _)| *known == name)
}

/// The baselines of a backend where none is asked for: what can run beside it.
pub(super) fn usual(on_host: bool) -> &'static [&'static str] {
    match on_host {
        true => &["mpi", "gloo"],
        false => &["nccl", "nccl-windows", "torch"],
    }
}

/// Ourselves and the named baselines, each once, in the order of the names.
pub(super) fn contenders(baselines: &[&str]) -> Vec<Contender> {
    let mut all = vec![Contender {
        name: OURS,
        by: By::Us,
    }];
    for name in baselines {
        for (known, contenders) in BASELINES {
            for contender in contenders.iter().filter(|_| known == *name) {
                if !all.contains(contender) {
                    all.push(contender.clone());
                }
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn we_come_first_and_no_baseline_twice() {
        let names = |baselines: &[&str]| -> Vec<&str> {
            contenders(baselines).iter().map(|c| c.name).collect()
        };
        assert_eq!(names(&[]), ["symmem"]);
        assert_eq!(
            names(&["torch", "nccl", "torch"]),
            ["symmem", "torch one-shot", "torch two-shot", "nccl"]
        );
        for on_host in [true, false] {
            assert!(usual(on_host).iter().all(|name| is_baseline(name)));
        }
        assert!(!is_baseline("openmpi"));
    }
}
