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

/// A directory that holds the fake driver under the driver's names, for `SYMMEM_LIBRARY_PATH`.
pub fn fake_driver() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| links("fake-driver", &driver_links()));
    &DIRECTORY
}

/// The same with the fake NCCL beside it.
pub fn fake_driver_and_nccl() -> &'static Path {
    static DIRECTORY: LazyLock<PathBuf> = LazyLock::new(|| {
        let nccl = build(
            &["build", "--quiet", "-p", "symmem-fake-nccl", "--lib"],
            "libsymmem_fake_nccl.so",
        );
        let mut all = driver_links().to_vec();
        all.push(("libnccl.so.2", nccl));
        links("fake-driver-and-nccl", &all)
    });
    &DIRECTORY
}

fn driver_links() -> [(&'static str, PathBuf); 2] {
    let built = build(
        &["build", "--quiet", "-p", "symmem-fake-cuda", "--lib"],
        "libsymmem_fake_cuda.so",
    );
    [("libcuda.so", built.clone()), ("libcuda.so.1", built)]
}

/// A directory of the tests with these links in it.
fn links(name: &str, links: &[(&str, PathBuf)]) -> PathBuf {
    let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&directory).expect("the tests' directory can be written");
    for (name, built) in links {
        // There from an earlier run, and right as long as it names the file.
        let link = directory.join(name);
        if std::fs::read_link(&link).ok().as_ref() != Some(built) {
            let _ = std::fs::remove_file(&link);
            std::os::unix::fs::symlink(built, &link).expect("a link can be made");
        }
    }
    directory
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
