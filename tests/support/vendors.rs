//! Both vendors, each with its fake runtime and fake libraries, and roles that run over them.

use super::fakes::place_without;
use super::hip::{Release, fake_hip, fake_hip_without_libraries};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};
use symmem::{Builder, Communicator};

/// A child process that runs longer has hung.
const LIMIT: Duration = Duration::from_secs(300);
/// Names the vendor to a role.
const VARIABLE: &str = "VENDOR_BACKEND";

/// The vendor of devices and libraries.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Vendor {
    Cuda,
    Hip,
}

impl Vendor {
    /// Returns the backend's name.
    pub fn backend(self) -> &'static str {
        match self {
            Self::Cuda => "cuda",
            Self::Hip => "hip",
        }
    }

    /// Returns the file name of NCCL or RCCL.
    pub fn library(self) -> &'static str {
        match self {
            Self::Cuda => "libnccl.so.2",
            Self::Hip => "librccl.so.1",
        }
    }

    /// Returns the file name of cuBLASLt or hipBLASLt.
    pub fn products(self) -> &'static str {
        match self {
            Self::Cuda => "libcublasLt.so.12",
            Self::Hip => "libhipblaslt.so.1",
        }
    }

    /// Returns a directory with the runtime and both libraries.
    pub fn libraries(self) -> &'static Path {
        match self {
            Self::Cuda => super::fake_driver_and_libraries(),
            Self::Hip => fake_hip(Release::Seven),
        }
    }

    /// Returns a directory with only the runtime.
    pub fn runtime(self) -> PathBuf {
        match self {
            Self::Cuda => super::fake_driver().into(),
            Self::Hip => fake_hip_without_libraries(),
        }
    }

    /// Returns a directory with the runtime and a cuBLASLt or hipBLASLt that lacks a function.
    pub fn without(self, function: &str) -> PathBuf {
        let directory = super::directory(&format!("without-{function}"));
        let (runtime, name) = match self {
            Self::Cuda => (super::driver().0, "libcuda.so.1"),
            Self::Hip => (super::hip::runtime(), "libamdhip64.so.7"),
        };
        place_without(&runtime, &[], &directory.join(name));
        let products = super::library_of_products();
        place_without(&products, &[function], &directory.join(self.products()));
        directory
    }

    /// Returns the vendor of the role that this process runs, as set by [`role`].
    pub fn of_role() -> Self {
        match std::env::var(VARIABLE).as_deref() {
            Ok("hip") => Self::Hip,
            _ => Self::Cuda,
        }
    }
}

/// Runs an ignored test of this file as a role in a child process, because an environment variable selects the
/// libraries. Returns the violations and leaks that the runtime reported.
pub fn role(
    vendor: Vendor,
    name: &str,
    libraries: &Path,
    environment: &[(&str, &str)],
) -> Vec<String> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let report = format!("role-{}-{number}.report", std::process::id());
    let report = Path::new(env!("CARGO_TARGET_TMPDIR")).join(report);
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([name, "--exact", "--ignored", "--nocapture"])
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("NCCL_NVLS_ENABLE", "0")
        .env(VARIABLE, vendor.backend())
        .env("FAKE_DEVICE_COUNT", "4")
        .env("FAKE_DEVICE_REPORT", &report)
        .envs(environment.iter().copied())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let start = Instant::now();
    while child.try_wait().unwrap().is_none() {
        if start.elapsed() > LIMIT {
            child.kill().unwrap();
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    let output = child.wait_with_output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{vendor:?} {name}: {text}");
    // A name that matches no test would pass.
    let told = String::from_utf8_lossy(&output.stdout);
    assert!(told.contains("1 passed"), "there is no role {name}: {told}");
    let told = std::fs::read_to_string(&report).unwrap_or_default();
    let _ = std::fs::remove_file(&report);
    let wrong = told.lines().filter(|line| !line.starts_with("process "));
    wrong.map(str::to_owned).collect()
}

/// Runs `body` as each rank of a world, within a role.
pub fn ranks<T: Send>(world: u32, body: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    ranks_with(world, |_, builder| builder, body)
}

/// Like [`ranks`], with builders that `choose` changes.
pub fn ranks_with<T: Send>(
    world: u32,
    choose: impl Fn(u32, Builder) -> Builder + Sync,
    body: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    let job = super::job("vendor");
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|rank| {
                let (job, choose, body) = (job.clone(), &choose, &body);
                scope.spawn(move || {
                    let builder = super::rank(VARIABLE, rank, world, &job)
                        .deadline(Duration::from_secs(10))
                        .setup_deadline(Duration::from_secs(8));
                    body(choose(rank, builder).build().unwrap())
                })
            })
            .collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    })
}
