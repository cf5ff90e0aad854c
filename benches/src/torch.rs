//! PyTorch beside us: a Python process for each rank, driven line by line.

use super::by_caller::is_by_caller;
use super::outcome::Outcome;
use super::process::Process;
use super::{Result, exchange};
use std::process::Command;
use symmem::Communicator;

/// Keeps multicast from a process of others', whatever our own environment says: nobody compares with what we do
/// not use, and a set-up of theirs that fails can put the host's GPUs out of service. Each library has its own
/// switch, and some take an empty value for their default, which is to use it.
const WITHOUT_MULTICAST: [(&str, &str); 4] = [
    ("NCCL_NVLS_ENABLE", "0"),
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
    // Transformer Engine's.
    ("UB_SKIPMC", "1"),
];

/// Starts a script once for each rank, with rank, world, device (a CUDA ordinal, or `cpu`) and `arguments`,
/// and has the processes meet: the one of rank 0 says `port N`, the others are told, and all say
/// `ready VERSION`, or `absent REASON`. Collective.
pub(super) fn start(
    communicator: &Communicator,
    script: &str,
    arguments: &[String],
) -> Result<Outcome<(Process, String)>> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let python = std::env::var_os("SYMMEM_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = Command::new(&python);
    command
        .args(["-u", "-c", script, &rank.to_string(), &world.to_string()])
        .arg(match is_by_caller(communicator) {
            true => "cpu".to_owned(),
            false => communicator.device().ordinal.to_string(),
        })
        .args(arguments);
    command.envs(WITHOUT_MULTICAST);
    let name = python.to_string_lossy().into_owned();
    let advice = "install Python with PyTorch, or name it in SYMMEM_PYTHON";
    let mut started = Process::spawn(command, name, advice, rank).map_err(|e| e.to_string());
    let mut port = Ok(String::new());
    if rank == 0 {
        port = started
            .as_mut()
            .map_err(|error| error.clone())
            .and_then(|process| match process.answer() {
                Ok((word, rest)) if word == "port" => Ok(rest),
                Ok((_, rest)) => Err(rest),
                Err(error) => Err(error.to_string()),
            });
    }
    let ports = exchange::all_gather(communicator, &port)?;
    Ok(started.and_then(|mut process| {
        let port = ports[0].clone()?;
        if rank != 0 {
            let told = process.tell(&format!("port {port}"));
            told.map_err(|error| error.to_string())?;
        }
        let version = ready(&mut process)?;
        Ok((process, version))
    }))
}

/// What a program says when it has come up: its version, or why it cannot take part.
pub(super) fn ready(process: &mut Process) -> Outcome<String> {
    match process.answer() {
        Ok((word, rest)) if word == "ready" => Ok(rest),
        Ok((_, rest)) => Err(rest),
        Err(error) => Err(error.to_string()),
    }
}
