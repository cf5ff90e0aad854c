//! Baselines that run in processes of their own.
//!
//! `torch_collectives.py` runs once per rank (PyTorch's symmetric memory, NCCL and gloo), and
//! `mpi_collectives.c` under one `mpirun` started by rank 0. Both are embedded in this program.
//! `flashinfer_collectives.cu` (FlashInfer's and vLLM's kernels) runs once per rank, too; users build it. Each
//! request and answer is one line, with nccl-tests' sizes; `torch` and `flashinfer` say how the processes meet:
//!
//! | request | answer |
//! |---|---|
//! | (after the processes have met) | `ready VERSION`, or `absent REASON` |
//! | `check LIBRARY OPERATION TYPE BYTES PLACEMENT` | `wrong WRONG CHECKED`, or `absent REASON` |
//! | `time LIBRARY OPERATION TYPE BYTES PLACEMENT loop\|graph CALLS LAUNCHES` | `result NANOSECONDS` or `absent` |
//! | `single LIBRARY OPERATION TYPE BYTES PLACEMENT SAMPLES` | `samples NANOSECONDS …` |
//! | `between loop\|graph CALLS LAUNCHES` (FlashInfer only) | `result NANOSECONDS` of the kernel between calls |
//! | `quit` | |

use super::flashinfer;
use super::shape::Shape;
use crate::Result;
use crate::outcome::{Outcome, agree};
use crate::process::Process;
use crate::report::Placement;
use crate::torch::{self, ready};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use symmem::Communicator;

const TORCH: &str = include_str!("../../baselines/torch_collectives.py");
const MPI: &str = include_str!("../../baselines/mpi_collectives.c");

/// An external program with one or more libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// One Python process per rank.
    Torch,
    /// One `mpirun`, started by rank 0.
    Mpi,
    /// One process per rank, of a program that the user has built.
    FlashInfer,
}

/// Formats the library, operation, type, size and placement of a request.
pub(super) fn what(
    library: &str,
    shape: &Shape,
    element: &str,
    bytes: u64,
    placement: Placement,
) -> String {
    let placement = match placement {
        Placement::OutOfPlace => "out",
        Placement::InPlace => "in",
    };
    format!(
        "{library} {} {element} {bytes} {placement}",
        shape.collective.name()
    )
}

/// A running program, from one rank's view.
pub(super) struct External {
    /// `None` at a rank without its own process.
    process: Option<Process>,
    pub version: String,
    /// The directory in which the MPI program was built; removed on drop.
    _directory: Option<Directory>,
}

impl External {
    /// Starts the processes of a program for sizes of at most `largest` bytes of an element type. `options` are those
    /// of FlashInfer's program, `mpirun` is the command that starts Open MPI's ranks. Collective; if one rank cannot start it, all get the reason.
    pub(super) fn start(
        communicator: &Communicator,
        program: Program,
        element: &str,
        largest: u64,
        options: &[String],
        mpirun: Option<&str>,
    ) -> Result<Outcome<Self>> {
        let started = match program {
            Program::Torch => {
                torch::start(communicator, TORCH, &[largest.to_string()])?.map(Self::of_rank)
            }
            Program::Mpi => Self::mpi(communicator, largest, mpirun),
            Program::FlashInfer => {
                flashinfer::start(communicator, element, largest, options)?.map(Self::of_rank)
            }
        };
        agree(communicator, started)
    }

    /// A program with a process at each rank.
    fn of_rank((process, version): (Process, String)) -> Self {
        Self {
            process: Some(process),
            version,
            _directory: None,
        }
    }

    fn mpi(communicator: &Communicator, largest: u64, mpirun: Option<&str>) -> Outcome<Self> {
        let rank = communicator.rank();
        if rank != 0 {
            return Ok(Self {
                process: None,
                version: String::new(),
                _directory: None,
            });
        }
        let words = match (mpirun, communicator.nodes()) {
            (Some(command), _) => command,
            (None, 1) => "mpirun --oversubscribe",
            (None, _) => {
                return Err("mpirun must be told the hosts; name it with --mpirun 'mpirun --host HOST:N,HOST:N'".into());
            }
        };
        let mut words = words.split_whitespace();
        let first = words.next().ok_or("--mpirun names no command")?;
        let directory =
            Directory::new().map_err(|error| format!("cannot create a directory: {error}"))?;
        let program = build_mpi(&directory.0)?;
        let mut command = Command::new(first);
        command
            .args(words)
            .args(["-n", &communicator.world_size().to_string()])
            .arg(program)
            .args(["serve", &largest.to_string()]);
        // Containers often have no user but root.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        let advice = "install Open MPI (openmpi-bin)";
        let process = Process::spawn(command, first.into(), advice, rank);
        let mut process = process.map_err(|error| error.to_string())?;
        let version = ready(&mut process)?;
        Ok(Self {
            process: Some(process),
            version,
            _directory: Some(directory),
        })
    }

    /// Calls once with random data. Returns the numbers of wrong and of checked elements at this rank, or
    /// the reason why the library does not support the call.
    pub(super) fn check(&mut self, what: &str) -> Result<Outcome<(u64, u64)>> {
        let Some(process) = &mut self.process else {
            return Ok(Ok((0, 0)));
        };
        process.tell(&format!("check {what}"))?;
        match process.answer()? {
            (word, rest) if word == "wrong" => {
                let [wrong, checked] = process.numbers(&rest)?;
                Ok(Ok((wrong as u64, checked as u64)))
            }
            (word, rest) if word == "absent" => Ok(Err(rest)),
            (word, rest) => Err(process.unexpected(&word, &rest, "wrong")),
        }
    }

    /// Returns nanoseconds per call at this rank, 0 at a rank without a process; `None` if the library does
    /// not support replays.
    pub(super) fn time(
        &mut self,
        what: &str,
        replay: bool,
        calls: u32,
        launches: u32,
    ) -> Result<Option<f64>> {
        self.timed(&format!("time {what}"), replay, calls, launches)
    }

    /// Returns nanoseconds of the kernel between calls alone, as [`External::time`] does for calls.
    pub(super) fn between(
        &mut self,
        replay: bool,
        calls: u32,
        launches: u32,
    ) -> Result<Option<f64>> {
        self.timed("between", replay, calls, launches)
    }

    fn timed(
        &mut self,
        request: &str,
        replay: bool,
        calls: u32,
        launches: u32,
    ) -> Result<Option<f64>> {
        let Some(process) = &mut self.process else {
            return Ok(Some(0.0));
        };
        let kind = if replay { "graph" } else { "loop" };
        process.tell(&format!("{request} {kind} {calls} {launches}"))?;
        match process.answer()? {
            (word, rest) if word == "result" => {
                let [nanoseconds] = process.numbers(&rest)?;
                Ok(Some(nanoseconds))
            }
            (word, _) if word == "absent" => Ok(None),
            (word, rest) => Err(process.unexpected(&word, &rest, "result")),
        }
    }

    /// Returns nanoseconds of single calls at this rank; empty at a rank without a process.
    pub(super) fn single(&mut self, what: &str, samples: u32) -> Result<Vec<f64>> {
        let Some(process) = &mut self.process else {
            return Ok(Vec::new());
        };
        process.tell(&format!("single {what} {samples}"))?;
        let rest = process.expect("samples")?;
        let times = rest.split_whitespace().map(str::parse);
        times
            .collect::<std::result::Result<Vec<f64>, _>>()
            .map_err(|error| process.failed(format!("it answered `{rest}`: {error}")))
    }
}

/// A temporary directory of this process, removed when dropped.
struct Directory(PathBuf);

impl Directory {
    fn new() -> std::io::Result<Self> {
        let path = std::env::temp_dir().join(format!("symmem-mpi-{}", std::process::id()));
        std::fs::create_dir(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn build_mpi(directory: &Path) -> Outcome<PathBuf> {
    let (source, program) = (directory.join("mpi.c"), directory.join("mpi"));
    std::fs::write(&source, MPI).map_err(|error| format!("{}: {error}", source.display()))?;
    let output = Command::new("mpicc")
        .args(["-O3", "-march=native", "-o"])
        .arg(&program)
        .arg(&source)
        .stdin(Stdio::null())
        .output();
    match output {
        Ok(output) if output.status.success() => Ok(program),
        Ok(output) => Err(format!(
            "mpicc failed: {}",
            String::from_utf8_lossy(&output.stderr).trim()
        )),
        Err(error) => Err(format!("mpicc: {error}; install Open MPI (libopenmpi-dev)")),
    }
}
