//! What tests need beside the library: the fake runtimes and the backends as plugins, built once.

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

/// Says that this test did not do its work, or a part of it, and why: past the harness, which keeps to itself
/// what a test that passes says.
#[allow(
    dead_code,
    reason = "not every test binary has a test that can be skipped"
)]
pub fn skipped(why: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {why}");
}

/// Whether ranks over the fake driver may ask for multicast here; where not, that is said.
#[allow(dead_code, reason = "few test binaries ask for it")]
pub fn permitted() -> bool {
    let why = if std::env::var("SYMMEM_TEST_DRIVER").is_ok_and(|driver| driver == "system") {
        Some("SYMMEM_TEST_DRIVER=system is no fake driver".to_owned())
    } else {
        forbidden_here()
    };
    if let Some(why) = &why {
        skipped(&format!("multicast over the fake driver: {why}"));
    }
    why.is_none()
}

/// What forbids multicast in this process, if anything does.
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

/// A library that records what a process asks the dynamic loader for, when it is preloaded.
#[allow(dead_code, reason = "few test binaries record look-ups")]
pub fn look_ups() -> PathBuf {
    build(
        &["build", "--quiet", "-p", "symmem-look-ups", "--lib"],
        "libsymmem_look_ups.so",
    )
}

/// The names in such a record.
#[allow(dead_code, reason = "as above")]
pub fn looked_up(record: &Path) -> Vec<String> {
    let text = std::fs::read_to_string(record).unwrap_or_default();
    let names = text.lines().filter_map(|line| line.split_once(' '));
    names.map(|(_, name)| name.to_owned()).collect()
}

/// A job's name that no other has.
#[allow(dead_code, reason = "not every test binary has ranks of its own")]
pub fn job(name: &str) -> String {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    format!("{name}-{}-{number}", std::process::id())
}

/// A rank on the backend that the variable names; on the host's where it is not set.
#[allow(dead_code, reason = "as above")]
pub fn rank(variable: &str, rank: u32, world: u32, job: &str) -> Builder {
    let backend = std::env::var(variable).unwrap_or_else(|_| "host".into());
    Builder::new()
        .launch(LaunchEnvironment::local(rank, world, job).unwrap())
        .backend(Selection::Named(backend))
}

/// Where this build's artefacts are: `target/debug` or `target/release`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let directory = test.parent().and_then(Path::parent);
    directory.expect("tests lie in target/PROFILE/deps").into()
}

/// Builds a shared object of this workspace beside the test and returns it.
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
    assert!(built.is_file(), "{command:?} made no {}", built.display());
    built
}

/// A directory that holds the fake driver under the driver's names, for `SYMMEM_LIBRARY_PATH`.
pub fn fake_driver() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| linked("fake-driver", &[driver()]));
    &DIRECTORY
}

/// The same with a fake NCCL and a fake cuBLASLt beside it.
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

/// The fake of both vendors' libraries of products.
fn library_of_products() -> PathBuf {
    build(
        &["build", "--quiet", "-p", "symmem-fake-blaslt", "--lib"],
        "libsymmem_fake_blaslt.so",
    )
}

/// A file, and the names by which it is looked for.
type Library = (PathBuf, &'static [&'static str]);

fn driver() -> Library {
    let built = build(
        &["build", "--quiet", "-p", "symmem-fake-cuda", "--lib"],
        "libsymmem_fake_cuda.so",
    );
    (built, &["libcuda.so", "libcuda.so.1"])
}

/// A directory of the tests' own.
fn directory(name: &str) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the tests' directory can be written");
    directory
}

/// A directory of the tests' with links to libraries.
fn linked(name: &str, libraries: &[Library]) -> PathBuf {
    let directory = directory(name);
    for (built, names) in libraries {
        for name in *names {
            // There from an earlier run, and right as long as it names the file.
            let link = directory.join(name);
            if std::fs::read_link(&link).ok().as_ref() != Some(built) {
                let _ = std::fs::remove_file(&link);
                std::os::unix::fs::symlink(built, &link).expect("a link can be made");
            }
        }
    }
    directory
}

/// The CUDA backend as a plugin file.
pub fn cuda_plugin() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| plugin("symmem-cuda", "libsymmem_cuda.so"));
    &FILE
}

/// A backend as a plugin file.
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
