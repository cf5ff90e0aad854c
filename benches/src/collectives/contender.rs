//! The libraries that are measured: symmem with the selector's choice or a named algorithm, NCCL or RCCL through
//! symmem's calls, and external programs.

use super::external::Program;
use crate::report::collectives::OURS;
use symmem::Algorithm;

/// A library that takes its turn in each round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Contender {
    /// Its name in the report.
    pub name: &'static str,
    pub by: Implementation,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Implementation {
    /// symmem, with the requested options.
    Us,
    /// symmem, with this algorithm.
    Own(Algorithm),
    /// symmem, with the selector's choice for memory of the caller's own.
    OwnMemory,
    /// NCCL or RCCL through symmem's calls, with or without symmetric windows.
    Nccl { windows: bool },
    /// An external program, which knows the library by this name.
    Program(Program, &'static str),
}

/// NCCL and RCCL, without and with windows.
const NCCL: [Contender; 2] = [vendor("nccl", false), vendor("nccl windows", true)];
const RCCL: [Contender; 2] = [vendor("rccl", false), vendor("rccl windows", true)];

/// Baselines by the names that a user gives, and the contenders of each. `nccl` and `rccl` both mean the library of the
/// backend.
const BASELINES: [(&str, &[Contender]); 22] = [
    (
        "own_memory",
        &[Contender {
            name: "symmem own memory",
            by: Implementation::OwnMemory,
        }],
    ),
    ("packets", &[own("symmem packets", Algorithm::Ll)]),
    (
        "packets_two_shot",
        &[own("symmem packets_two_shot", Algorithm::LlTwoShot)],
    ),
    ("lamport", &[own("symmem lamport", Algorithm::Lamport)]),
    (
        "lamport_two_shot",
        &[own("symmem lamport_two_shot", Algorithm::LamportTwoShot)],
    ),
    ("one_shot", &[own("symmem one_shot", Algorithm::OneShot)]),
    ("two_shot", &[own("symmem two_shot", Algorithm::TwoShot)]),
    ("push", &[own("symmem push", Algorithm::Push)]),
    ("pull", &[own("symmem pull", Algorithm::Pull)]),
    (
        "copy_engine",
        &[own("symmem copy_engine", Algorithm::CopyEngine)],
    ),
    (
        "multicast",
        &[own("symmem multicast", Algorithm::Multicast)],
    ),
    (
        "multicast_one_shot",
        &[own(
            "symmem multicast_one_shot",
            Algorithm::MulticastOneShot,
        )],
    ),
    ("nccl", NCCL.split_at(1).0),
    ("nccl-windows", NCCL.split_at(1).1),
    ("rccl", RCCL.split_at(1).0),
    ("rccl-windows", RCCL.split_at(1).1),
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
            by: Implementation::Program(Program::Mpi, "mpi"),
        }],
    ),
    // The package launches its one-shot in three ways, between which its users choose.
    (
        "flashinfer",
        &[
            flashinfer("flashinfer one-shot", "one-shot"),
            flashinfer("flashinfer one-shot late", "one-shot-late"),
            flashinfer("flashinfer one-shot plain", "one-shot-plain"),
            flashinfer("flashinfer two-shot", "two-shot"),
        ],
    ),
    ("vllm", &[flashinfer("vllm", "vllm")]),
];

const fn own(name: &'static str, algorithm: Algorithm) -> Contender {
    Contender {
        name,
        by: Implementation::Own(algorithm),
    }
}

const fn vendor(name: &'static str, windows: bool) -> Contender {
    Contender {
        name,
        by: Implementation::Nccl { windows },
    }
}

const fn torch(name: &'static str, library: &'static str) -> Contender {
    Contender {
        name,
        by: Implementation::Program(Program::Torch, library),
    }
}

const fn flashinfer(name: &'static str, library: &'static str) -> Contender {
    Contender {
        name,
        by: Implementation::Program(Program::FlashInfer, library),
    }
}

/// Returns the names of all baselines, for a message.
pub fn baseline_names() -> String {
    let names: Vec<&str> = BASELINES.iter().map(|(name, _)| *name).collect();
    names.join(", ")
}

/// Whether a baseline has this name.
pub fn is_baseline(name: &str) -> bool {
    BASELINES.iter().any(|(known, _)| *known == name)
}

/// Returns the default baselines of a backend.
pub(super) fn usual(on_host: bool) -> &'static [&'static str] {
    match on_host {
        true => &["mpi", "gloo"],
        false => &["nccl", "nccl-windows", "torch"],
    }
}

/// Returns symmem and the named baselines, each once, in the order of the names. NCCL or RCCL has the name of the
/// backend's library.
pub(super) fn contenders(baselines: &[&str], backend: &str) -> Vec<Contender> {
    let vendors = match backend {
        "hip" => RCCL,
        _ => NCCL,
    };
    let mut all = vec![Contender {
        name: OURS,
        by: Implementation::Us,
    }];
    for name in baselines {
        for (known, contenders) in BASELINES {
            for contender in contenders.iter().filter(|_| known == *name) {
                let own = vendors.iter().find(|own| own.by == contender.by);
                let contender = own.unwrap_or(contender);
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
            contenders(baselines, "cuda")
                .iter()
                .map(|c| c.name)
                .collect()
        };
        assert_eq!(names(&[]), ["symmem"]);
        assert_eq!(
            names(&["torch", "nccl", "torch"]),
            ["symmem", "torch one-shot", "torch two-shot", "nccl"]
        );
        for on_host in [true, false] {
            assert!(usual(on_host).iter().all(|name| is_baseline(name)));
        }
        assert_eq!(
            names(&["two_shot", "nccl"]),
            ["symmem", "symmem two_shot", "nccl"]
        );
        assert!(!is_baseline("openmpi"));
    }

    #[test]
    fn the_vendors_library_has_its_own_name_on_each_backend() {
        let asked = ["nccl", "rccl-windows", "rccl"];
        let names = |backend| -> Vec<&str> {
            let found = contenders(&asked, backend);
            found
                .iter()
                .skip(1)
                .map(|contender| contender.name)
                .collect()
        };
        assert_eq!(names("cuda"), ["nccl", "nccl windows"]);
        assert_eq!(names("hip"), ["rccl", "rccl windows"]);
    }
}
