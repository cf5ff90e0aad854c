//! Support for tests: the fake runtimes and the backends as plugins, each built once.

#[allow(dead_code, reason = "not every test binary samples its cases")]
pub mod amount;
#[allow(dead_code, reason = "not every test binary has a use for HIP")]
pub mod hip;
#[allow(dead_code, reason = "not every test binary runs roles over both")]
pub mod vendors;
pub mod worlds;

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use symmem::backends::Selection;
use symmem::{Builder, LaunchEnvironment};

/// Reports that this test skipped its work, or a part of it, and why. Writes to stderr itself, because the harness
/// hides the output of tests that pass.
#[allow(
    dead_code,
    reason = "not every test binary has a test that can be skipped"
)]
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// Whether ranks over the fake driver may ask for multicast here; reports the reason if not.
#[allow(dead_code, reason = "few test binaries ask for it")]
pub fn permitted() -> bool {
    let why = if std::env::var("SYMMEM_TEST_DRIVER").is_ok_and(|driver| driver == "system") {
        Some("SYMMEM_TEST_DRIVER=system is not a fake driver".to_owned())
    } else {
        forbidden_here()
    };
    if let Some(why) = &why {
        skipped(&format!("multicast over the fake driver: {why}"));
    }
    why.is_none()
}

/// Returns what forbids multicast in this process, if anything.
#[cfg(feature = "cuda")]
fn forbidden_here() -> Option<String> {
    let switches = symmem_cli::doctor::Machine::switches();
    let forbids = switches.into_iter().find(|switch| switch.forbids);
    forbids.map(|switch| format!("{} forbids it here", switch.name))
}

#[cfg(not(feature = "cuda"))]
fn forbidden_here() -> Option<String> {
    Some("the CUDA backend is not built".into())
}

/// Returns a library that records the names that a process looks up, when it is preloaded.
#[allow(dead_code, reason = "few test binaries record look-ups")]
pub fn look_ups() -> PathBuf {
    build(
        &["build", "--quiet", "-p", "symmem-look-ups", "--lib"],
        "libsymmem_look_ups.so",
    )
}

/// Returns the names in such a record.
#[allow(dead_code, reason = "as above")]
pub fn looked_up(record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(' '));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// Returns a unique job name.
#[allow(dead_code, reason = "not every test binary has ranks of its own")]
pub fn job(name: &str) -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// Returns the builder of a rank on the backend that the variable names, or on the host if it is not set.
#[allow(dead_code, reason = "as above")]
pub fn rank(variable: &str, rank: u32, world: u32, job: &str) -> Builder {
    let backend = std::env::var(variable).unwrap_or_else(|_| "host".into());
    Builder::new()
        .launch(LaunchEnvironment::local(rank, world, job).unwrap())
        .backend(Selection::Named(backend))
}

/// Returns the directory of this build's artifacts: `target/debug` or `target/release`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let directory = test.parent().and_then(Path::parent);
    directory.expect("tests lie in target/PROFILE/deps").into()
}

/// Builds a shared object of this workspace beside the test and returns its path.
pub fn build(arguments: &[&str], file: &str) -> PathBuf {
    let profile = profile_directory();
    let target = profile
        .parent()
        .expect("a profile's directory lies in the target directory");
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).arg("--target-dir").arg(target);
    command.current_dir(env!("CARGO_MANIFEST_DIR"));
    if profile.ends_with("release") {
        command.arg("--release");
    }
    let output = command.output().expect("cargo runs");
    let text = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{command:?}:\n{text}");
    let built = profile.join(file);
    assert!(
        built.is_file(),
        "{command:?} did not make {}",
        built.display()
    );
    built
}

/// Returns a directory with the fake driver under the driver's names, for `SYMMEM_LIBRARY_PATH`.
pub fn fake_driver() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| linked("fake-driver", &[driver()]));
    &DIRECTORY
}

/// Returns a directory with the fake driver, the fake NCCL and the fake cuBLASLt.
#[allow(dead_code, reason = "not every test binary has a use for them")]
pub fn fake_driver_and_libraries() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let nccl = build(
            &["build", "--quiet", "-p", "symmem-fake-nccl", "--lib"],
            "libsymmem_fake_nccl.so",
        );
        let nccl = (nccl, &["libnccl.so.2"][..]);
        let products = (library_of_products(), &["libcublasLt.so.12"][..]);
        linked("fake-driver-and-libraries", &[driver(), nccl, products])
    });
    &DIRECTORY
}

/// Returns the fake of cuBLASLt and hipBLASLt.
fn library_of_products() -> PathBuf {
    build(
        &["build", "--quiet", "-p", "symmem-fake-blaslt", "--lib"],
        "libsymmem_fake_blaslt.so",
    )
}

/// A file, and the names that it is looked up by.
type Library = (PathBuf, &'static [&'static str]);

fn driver() -> Library {
    let built = build(
        &["build", "--quiet", "-p", "symmem-fake-cuda", "--lib"],
        "libsymmem_fake_cuda.so",
    );
    (built, &["libcuda.so", "libcuda.so.1"])
}

/// Returns a directory for the tests' files.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the tests' directory can be written");
    directory
}

/// Returns a directory with links to libraries.
fn linked(name: &str, libraries: &[Library]) -> PathBuf {
    let directory = directory(name);
    for (built, names) in libraries {
        for name in *names {
            // The link may exist from an earlier run; it is right if it names the file.
            let link = directory.join(name);
            if std::fs::read_link(&link).ok().as_ref() != Some(built) {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(built, &link).expect("a link can be made");
            }
        }
    }
    directory
}

/// Returns the CUDA backend as a plugin file.
pub fn cuda_plugin() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| plugin("symmem-cuda", "libsymmem_cuda.so"));
    &FILE
}

/// Returns a backend as a plugin file.
fn plugin(package: &str, file: &str) -> PathBuf {
    let arguments = [
        "rustc",
        "--quiet",
        "-p",
        package,
        "--lib",
        "--crate-type",
        "cdylib",
    ];
    build(&arguments, file)
}
