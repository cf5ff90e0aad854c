//! Libraries beside us that run in processes of their own.
//!
//! `torch_collectives.py` runs once for each rank (PyTorch's symmetric memory, its NCCL, its gloo),
//! `mpi_collectives.c` under `mpirun` from rank 0. Both are inside this program. The protocol, a line
//! each way, with sizes as nccl-tests has them:
//!
//! | we say | they say |
//! |---|---|
//! | (nothing: rank 0 of several processes) | `port N` |
//! | `port N` to the others | `ready VERSION`, or `absent REASON` |
//! | `check LIBRARY OPERATION TYPE BYTES PLACEMENT` | `wrong WRONG CHECKED`, or `absent REASON` |
//! | `time LIBRARY OPERATION TYPE BYTES PLACEMENT loop\|graph CALLS LAUNCHES` | `result NANOSECONDS` of a call |
//! | `single LIBRARY OPERATION TYPE BYTES PLACEMENT SAMPLES` | `samples NANOSECONDS …` |
//! | `quit` | |

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

/// A program that offers libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Program {
    /// One Python process a rank.
    Torch,
    /// One `mpirun` at rank 0.
    Mpi,
}

/// What is to be measured, in the protocol's words.
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

/// A program that is running, as one rank sees it.
pub(super) struct External {
    /// `None` at a rank without a process of its own.
    process: Option<Process>,
    pub version: String,
    /// Where the MPI program was built, to be removed.
    _directory: Option<Directory>,
}

impl External {
    /// Starts the processes of a program for sizes of at most `largest` bytes. Collective; where one
    /// rank cannot start it, none does, and all get the reason.
    pub(super) fn start(
        communicator: &Communicator,
        program: Program,
        largest: u64,
    ) -> Result<Outcome<Self>> {
        let started = match program {
            Program::Torch => Self::torch(communicator, largest)?,
            Program::Mpi => Self::mpi(communicator, largest),
        };
        agree(communicator, started)
    }

    fn torch(communicator: &Communicator, largest: u64) -> Result<Outcome<Self>> {
        let started = torch::start(communicator, TORCH, &[largest.to_string()])?;
        Ok(started.map(|(process, version)| Self {
            process: Some(process),
            version,
            _directory: None,
        }))
    }

    fn mpi(communicator: &Communicator, largest: u64) -> Outcome<Self> {
        let rank = communicator.rank();
        if rank != 0 {
            return Ok(Self {
                process: None,
                version: String::new(),
                _directory: None,
            });
        }
        let directory = Directory::new().map_err(|error| format!("no directory: {error}"))?;
        let program = build_mpi(&directory.0)?;
        let mut command = Command::new("mpirun");
        command
            .args([
                "-n",
                &communicator.world_size().to_string(),
                "--oversubscribe",
            ])
            .arg(program)
            .args(["serve", &largest.to_string()]);
        // Containers often have no other user, and no rank of ours runs beside a call of theirs.
        for name in ["OMPI_ALLOW_RUN_AS_ROOT", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM"] {
            command.env(name, "1");
        }
        let advice = "install Open MPI (openmpi-bin)";
        let process = Process::spawn(command, "mpirun".into(), advice, rank);
        let mut process = process.map_err(|error| error.to_string())?;
        let version = ready(&mut process)?;
        Ok(Self {
            process: Some(process),
            version,
            _directory: Some(directory),
        })
    }

    /// Calls once with random data: wrong elements and elements looked at, at this rank; or why the
    /// library does not do this.
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

    /// Nanoseconds of a call at this rank, 0 at a rank without a process; `None` if it cannot be
    /// replayed.
    pub(super) fn time(
        &mut self,
        what: &str,
        replay: bool,
        calls: u32,
        launches: u32,
    ) -> Result<Option<f64>> {
        let Some(process) = &mut self.process else {
            return Ok(Some(0.0));
        };
        let kind = if replay { "graph" } else { "loop" };
        process.tell(&format!("time {what} {kind} {calls} {launches}"))?;
        match process.answer()? {
            (word, rest) if word == "result" => {
                let [nanoseconds] = process.numbers(&rest)?;
                Ok(Some(nanoseconds))
            }
            (word, _) if word == "absent" => Ok(None),
            (word, rest) => Err(process.unexpected(&word, &rest, "result")),
        }
    }

    /// Nanoseconds of calls one at a time at this rank; nothing at a rank without a process.
    pub(super) fn single(&mut self, what: &str, samples: u32) -> Result<Vec<f64>> {
        let Some(process) = &mut self.process else {
            return Ok(Vec::new());
        };
        process.tell(&format!("single {what} {samples}"))?;
        let rest = process.expect("samples")?;
        let times = rest.split_whitespace().map(str::parse);
        times
            .collect::<std::result::Result<Vec<f64>, _>>()
            .map_err(|error| process.failed(format!("said `{rest}`: {error}")))
    }
}

/// A directory of this process's own, removed when dropped.
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
