//! Collects the environment of a run: machine, time, versions and variables.

use crate::report::{Environment, Host, links};
use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};
use symmem::BackendSource;
use symmem::backends::Chosen;

/// Variables that influence measurements. Secrets and a rank's place in its job are left out.
const VARIABLES: [&str; 25] = [
    "CUDA_VISIBLE_DEVICES",
    "HIP_VISIBLE_DEVICES",
    "ROCR_VISIBLE_DEVICES",
    "CUDA_MODULE_LOADING",
    "CUDA_LAUNCH_BLOCKING",
    "SYMMEM_BACKEND",
    "SYMMEM_PLUGIN_PATH",
    "SYMMEM_PLUGIN_WORLD_WRITABLE",
    "SYMMEM_LIBRARY_PATH",
    "SYMMEM_CHECK",
    "SYMMEM_LOG",
    "SYMMEM_SHARE",
    "SYMMEM_SILENCE",
    "SYMMEM_UCX_LIBRARY",
    "SYMMEM_MULTICAST",
    "SYMMEM_MULTICAST_BYTES",
    "SYMMEM_TUNING",
    "UCX_TLS",
    "UCX_NET_DEVICES",
    "NCCL_ALGO",
    "NCCL_PROTO",
    "NCCL_NVLS_ENABLE",
    "NVSHMEM_DISABLE_NVLS",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST",
    "NVSHMEM_DISABLE_CUDA_VMM",
];

/// Time limit for another program to answer.
const PATIENCE: Duration = Duration::from_secs(5);

/// Returns the environment, except for the devices, which the ranks add. Blocks while `git` and, for the
/// CUDA backend, `nvidia-smi` run, at most 5 s each; leaves out what a program does not answer.
pub fn collect(chosen: &Chosen, command: String) -> Environment {
    let libraries = libraries(chosen);
    let multicast = libraries
        .iter()
        .find(|(name, _)| is_of_multicast(name))
        .map_or(
            "not used; this backend has no multicast".into(),
            |(_, state)| state.clone(),
        );
    Environment {
        commit: commit(),
        date: rfc3339(SystemTime::now()),
        command,
        host: host(),
        backend: chosen.name.clone(),
        devices: Vec::new(),
        network: None,
        links: links::text(chosen.devices as usize, |from, to| {
            libraries.get(&links::key(from, to)).map(String::as_str)
        }),
        driver: libraries.get("driver_version").cloned(),
        clocks: (chosen.name == "cuda").then(clocks).flatten(),
        multicast,
        variables: VARIABLES
            .iter()
            .filter_map(|&name| {
                let value = std::env::var_os(name)?;
                Some((name.to_owned(), value.to_string_lossy().into_owned()))
            })
            .collect(),
        libraries: libraries
            .into_iter()
            .filter(|(name, _)| name.contains(".so"))
            .collect(),
    }
}

/// Whether a line of the backend's description tells if a device has multicast. Lines about kernels end in the same
/// word.
fn is_of_multicast(name: &str) -> bool {
    name.starts_with("device_") && name.ends_with("_multicast") && !name.contains("_kernels_")
}

/// Returns the `key=value` lines of the backend's description.
pub fn libraries(chosen: &Chosen) -> BTreeMap<String, String> {
    let text = match &chosen.source {
        BackendSource::Tables(tables) => tables.describe_libraries().unwrap_or_default(),
        BackendSource::Host => String::new(),
    };
    text.lines()
        .filter_map(|line| line.split_once('='))
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
}

/// Returns the commit from `SYMMEM_COMMIT` at compile time, or else of the checkout that this was built in,
/// if it still exists.
fn commit() -> String {
    let built = option_env!("SYMMEM_COMMIT").map(str::to_owned);
    let checkout = || {
        let directory = env!("CARGO_MANIFEST_DIR");
        let describe = ["describe", "--always", "--dirty", "--abbrev=12"];
        output(Command::new("git").args(["-C", directory]).args(describe))
    };
    built.or_else(checkout).unwrap_or_else(|| "unknown".into())
}

fn clocks() -> Option<String> {
    let query = "--query-gpu=index,clocks.sm,clocks.max.sm,clocks.mem,power.limit,persistence_mode";
    let lines = output(Command::new("nvidia-smi").args([query, "--format=csv,noheader"]))?;
    let lines: Vec<&str> = lines.lines().collect();
    Some(format!(
        "index, SM, maximum SM, memory, power limit, persistence: {}",
        lines.join("; ")
    ))
}

fn host() -> Host {
    let cpu = symmem::host::HostBackend::describe_device(0)
        .map(|device| symmem::backend::read_text(&device.name))
        .unwrap_or_default();
    Host {
        cpu,
        cores: std::thread::available_parallelism().map_or(1, |count| count.get() as u32),
        kernel: std::fs::read_to_string("/proc/sys/kernel/osrelease")
            .map(|text| text.trim().to_owned())
            .unwrap_or_default(),
    }
}

/// Returns the standard output of a program that succeeds in time.
fn output(command: &mut Command) -> Option<String> {
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let start = Instant::now();
    // The output fits into the pipe, so the programs can end before it is read.
    let status = loop {
        match child.try_wait() {
            Ok(Some(status)) => break status,
            Ok(None) if start.elapsed() < PATIENCE => {
                std::thread::sleep(Duration::from_millis(5));
            }
            _ => {
                let _ = child.kill();
                let _ = child.wait();
                return None;
            }
        }
    };
    let text = std::io::read_to_string(child.stdout.take()?).ok()?;
    let text = text.trim();
    (status.success() && !text.is_empty()).then(|| text.to_owned())
}

/// Returns the time for a file name, in UTC: `2026-11-22T231906Z`.
pub fn file_time() -> String {
    rfc3339(SystemTime::now()).replace(':', "")
}

/// Formats a time by RFC 3339, in UTC, to the second.
fn rfc3339(time: SystemTime) -> String {
    let seconds = time
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_secs();
    let (year, month, day) = date_of(seconds / 86_400);
    let (hour, minute, second) = (seconds / 3600 % 24, seconds / 60 % 60, seconds % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Returns year, month and day of the given number of days after 1970-01-01: Howard Hinnant's
/// `civil_from_days`, for days that are not negative.
fn date_of(days: u64) -> (u64, u64, u64) {
    let days = days + 719_468;
    let era = days / 146_097;
    let of_era = days % 146_097;
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 {
        shifted + 3
    } else {
        shifted - 9
    };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_those_of_the_calendar() {
        let at = |seconds| rfc3339(UNIX_EPOCH + Duration::from_secs(seconds));
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(1_700_000_000), "2023-11-14T22:13:20Z");
        assert_eq!(at(4_107_542_399), "2100-02-28T23:59:59Z");
        assert_eq!(
            at(4_107_542_400),
            "2100-03-01T00:00:00Z",
            "2100 has no 29 February"
        );
    }

    #[test]
    fn a_program_that_is_missing_or_fails_is_left_out() {
        assert_eq!(output(&mut Command::new("/no/such/program")), None);
        assert_eq!(output(&mut Command::new("false")), None);
        assert_eq!(
            output(Command::new("echo").arg("yes")).as_deref(),
            Some("yes")
        );
    }

    #[test]
    fn a_device_and_not_its_kernels_says_whether_there_is_multicast() {
        assert!(is_of_multicast("device_0_multicast"));
        assert!(!is_of_multicast("device_0_kernels_multicast"));
        assert!(!is_of_multicast("device_0_kernels_multicast_emulated"));
    }

    #[test]
    fn of_our_own_variables_all_are_recorded_but_secrets_ranks_places_and_other_programs() {
        let others = [
            "SYMMEM_RANK",
            "SYMMEM_WORLD",
            "SYMMEM_LOCAL_RANK",
            "SYMMEM_LOCAL_WORLD",
            "SYMMEM_JOB",
            "SYMMEM_RENDEZVOUS",
            "SYMMEM_NODE",
            "SYMMEM_SECRET",
            "SYMMEM_GENERATION",
        ];
        let own = symmem::VARIABLES.iter().filter(|one| one.owner == "symmem");
        // Only the command reads `SYMMEM_LOG`.
        let named = own.map(|one| one.name).chain(["SYMMEM_LOG"]);
        for name in named {
            let (recorded, other) = (VARIABLES.contains(&name), others.contains(&name));
            assert!(recorded != other, "{name}");
        }
    }
}
