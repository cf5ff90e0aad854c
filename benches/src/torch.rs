//! PyTorch as a baseline: one Python process per rank, controlled line by line.

use super::by_caller::is_by_caller;
use super::outcome::Outcome;
use super::process::Process;
use super::{Result, exchange};
use std::process::Command;
use symmem::Communicator;

/// Variables that disable multicast in a baseline's process, whatever this process's environment says. symmem does not
/// use multicast by default, so neither may a baseline; and a failed multicast setup can put the host's GPUs out of
/// service. Each library has its own switch, and some take an empty value for their default, which is to use multicast.
const WITHOUT_MULTICAST: [(&str, &str); 4] = [
    ("NCCL_NVLS_ENABLE", "0"),
    ("NVSHMEM_DISABLE_NVLS", "1"),
    ("TORCH_SYMM_MEM_DISABLE_MULTICAST", "1"),
    // Transformer Engine.
    ("UB_SKIPMC", "1"),
];

/// Starts a script once per rank, with the arguments rank, world size, device (a CUDA ordinal, or `cpu`) and
/// `arguments`, and lets the processes meet: that of rank 0 answers `port N`, which is sent to the others, and all
/// answer `ready VERSION` or `absent REASON`. Returns the process and its version. Collective; blocks.
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

/// Waits for a program's first answer: its version, or the reason why it is absent. Blocks.
pub(super) fn ready(process: &mut Process) -> Outcome<String> {
    match process.answer() {
        Ok((word, rest)) if word == "ready" => Ok(rest),
        Ok((_, rest)) => Err(rest),
        Err(error) => Err(error.to_string()),
    }
}
