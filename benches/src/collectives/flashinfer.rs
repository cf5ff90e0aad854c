//! FlashInfer's and vLLM's all-reduces as baselines: one process per rank, of the program that
//! `benches/baselines/build_flashinfer.sh` builds. The head of `flashinfer_collectives.cu` describes how the processes
//! meet: each tells the handle of its memory, and gets those of all.

use crate::outcome::Outcome;
use crate::process::Process;
use crate::torch::ready;
use crate::{Result, exchange};
use std::process::Command;
use symmem::Communicator;

/// Names the program.
const VARIABLE: &str = "SYMMEM_FLASHINFER_BASELINE";

/// Starts the program once per rank, for calls of at most `largest` bytes of an element type (nccl-tests' name), with
/// more options. Returns the process and its version, or the reason why this rank has none. Collective; blocks.
pub(super) fn start(
    communicator: &Communicator,
    element: &str,
    largest: u64,
    options: &[String],
) -> Result<Outcome<(Process, String)>> {
    let mut started = spawn(communicator, element, largest, options);
    let handle = match &mut started {
        Ok(process) => match process.answer() {
            Ok((word, rest)) if word == "shared" => Ok(rest),
            Ok((_, rest)) => Err(rest),
            Err(error) => Err(error.to_string()),
        },
        Err(reason) => Err(reason.clone()),
    };
    let handles: Outcome<Vec<String>> = exchange::all_gather(communicator, &handle)?
        .into_iter()
        .collect();
    Ok(started.and_then(|mut process| {
        let told = process.tell(&format!("shared {}", handles?.join(" ")));
        told.map_err(|error| error.to_string())?;
        let version = ready(&mut process)?;
        Ok((process, version))
    }))
}

fn spawn(
    communicator: &Communicator,
    element: &str,
    largest: u64,
    options: &[String],
) -> Outcome<Process> {
    const ADVICE: &str = "build the program with benches/baselines/build_flashinfer.sh";
    let Some(program) = std::env::var_os(VARIABLE).filter(|name| !name.is_empty()) else {
        return Err(format!(
            "{VARIABLE} is not set; {ADVICE}, and name it there"
        ));
    };
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let ordinal = communicator.device().ordinal;
    let name = program.to_string_lossy().into_owned();
    let mut command = Command::new(program);
    command
        .args([rank.to_string(), world.to_string(), ordinal.to_string()])
        .args([&largest.to_string(), element])
        .args(options);
    Process::spawn(command, name, ADVICE, rank).map_err(|error| error.to_string())
}
