//! The fake runtimes and libraries, and the backends as plugin files, each built once.

#[path = "fake_packages.rs"]
mod fake_packages;

use fake_packages::FAKES;
use std::ffi::CStr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};

/// Returns a library that records the names that a process looks up, when it is preloaded.
#[allow(dead_code, reason = "few test binaries record look-ups")]
pub fn look_ups() -> PathBuf {
    fake("libsymmem_look_ups.so")
}

/// Returns a fake's file, after building all of them.
pub fn fake(file: &str) -> PathBuf {
    static BUILT: LazyLock<()> = LazyLock::new(|| {
        let packages = FAKES.iter().flat_map(|package| ["-p", package]);
        let arguments: Vec<&str> = ["build", "--quiet", "--lib"]
            .into_iter()
            .chain(packages)
            .collect();
        cargo(&arguments);
    });
    LazyLock::force(&BUILT);
    existing(file)
}

/// Returns the directory of this build's artifacts: `target/debug` or `target/release`.
fn profile_directory() -> PathBuf {
    let test = std::env::current_exe().expect("a test knows its own file");
    let directory = test.parent().and_then(Path::parent);
    directory.expect("tests lie in target/PROFILE/deps").into()
}

/// Runs cargo with these arguments, in the profile and the target directory of the test.
fn cargo(arguments: &[&str]) {
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
}

/// Returns the file of this name that cargo has built.
fn existing(file: &str) -> PathBuf {
    let built = profile_directory().join(file);
    assert!(built.is_file(), "cargo did not make {}", built.display());
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
        let nccl = fake("libsymmem_fake_nccl.so");
        let nccl = (nccl, &["libnccl.so.2"][..]);
        let products = (library_of_products(), &["libcublasLt.so.12"][..]);
        linked("fake-driver-and-libraries", &[driver(), nccl, products])
    });
    &DIRECTORY
}

/// Returns the fake of cuBLASLt and hipBLASLt.
pub(super) fn library_of_products() -> PathBuf {
    fake("libsymmem_fake_blaslt.so")
}

/// A file, and the names that it is looked up by.
type Library = (PathBuf, &'static [&'static str]);

pub(super) fn driver() -> Library {
    let built = fake("libsymmem_fake_cuda.so");
    (built, &["libcuda.so", "libcuda.so.1"])
}

/// Returns a directory for the tests' files.
pub(super) fn directory(name: &str) -> PathBuf {
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
pub(super) fn plugin(package: &str, file: &str) -> PathBuf {
    let arguments = [
        "rustc",
        "--quiet",
        "-p",
        package,
        "--lib",
        "--crate-type",
        "cdylib",
    ];
    cargo(&arguments);
    existing(file)
}

/// Puts a copy of a library without some functions at `to`, by overwriting their names.
pub(super) fn place_without(library: &Path, functions: &[&str], to: &Path) {
    let mut bytes = std::fs::read(library).expect("the library");
    let mut places = Vec::new();
    let mut at = 0;
    // By strings that end with zero, which the standard library finds quickly without optimization, too.
    while let Ok(string) = CStr::from_bytes_until_nul(&bytes[at..]) {
        let name = string.to_bytes();
        if functions.iter().any(|function| function.as_bytes() == name) {
            places.push(at);
        }
        at += name.len() + 1;
    }
    for function in functions {
        // A name in the dynamic symbols.
        let is_function = |at: &usize| {
            let rest = bytes[*at..].strip_prefix(function.as_bytes());
            rest.is_some_and(|rest| rest.starts_with(&[0]))
        };
        assert!(
            places.iter().any(is_function),
            "{} has no {function}",
            library.display()
        );
    }
    places.into_iter().for_each(|place| bytes[place] = b'x');
    // Other tests may have the file of an earlier run open, so it is replaced instead of changed. Tests of this process
    // may place the same file at once.
    static COPIES: AtomicU32 = AtomicU32::new(0);
    let copy = COPIES.fetch_add(1, Ordering::Relaxed);
    let fresh = to.with_extension(format!("{}-{copy}", std::process::id()));
    std::fs::write(&fresh, bytes).expect("a copy of the library");
    std::fs::rename(&fresh, to).expect("the copy's name");
}
