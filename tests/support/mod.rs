//! What tests need beside the library: the fake driver and the CUDA backend as a plugin, built once.

pub mod worlds;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::LazyLock;

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

/// A directory of this name with a link of each name to each file.
fn links(directory: &str, links: &[(&str, &Path)]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(directory);
    std::fs::create_dir_all(&directory).expect("the tests' directory can be written");
    for (name, file) in links {
        // There from an earlier run, and right as long as it names the file.
        let link = directory.join(name);
        if std::fs::read_link(&link).ok().as_deref() != Some(file) {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(file, &link).expect("a link can be made");
        }
    }
    directory
}

fn built_driver() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        build(
            &["build", "--quiet", "-p", "symmem-fake-cuda", "--lib"],
            "libsymmem_fake_cuda.so",
        )
    });
    &FILE
}

/// A directory that holds the fake driver under the driver's names, for `SYMMEM_LIBRARY_PATH`.
pub fn fake_driver() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let driver = built_driver();
        links(
            "fake-driver",
            &[("libcuda.so", driver), ("libcuda.so.1", driver)],
        )
    });
    &DIRECTORY
}

/// [`fake_driver`] with the fake NCCL beside it. `NCCL_NVLS_ENABLE=0` goes with it.
pub fn fake_driver_and_nccl() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let driver = built_driver();
        let nccl = build(
            &["build", "--quiet", "-p", "symmem-fake-nccl", "--lib"],
            "libsymmem_fake_nccl.so",
        );
        let files = [
            ("libcuda.so", driver),
            ("libcuda.so.1", driver),
            ("libnccl.so.2", &nccl),
        ];
        links("fake-driver-and-nccl", &files)
    });
    &DIRECTORY
}

/// The CUDA backend as a plugin file.
pub fn cuda_plugin() -> &'static Path {
    static FILE: LazyLock<PathBuf> = LazyLock::new(|| {
        let arguments = [
            "rustc",
            "--quiet",
            "-p",
            "symmem-cuda",
            "--lib",
            "--crate-type",
            "cdylib",
        ];
        build(&arguments, "libsymmem_cuda.so")
    });
    &FILE
}
