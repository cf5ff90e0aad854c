//! Compiles device sources to code objects.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::Result;
use crate::kernels::family::EXAMPLES_FOLDER;
use crate::tools;

/// The targets with artefacts: MI200, MI300 and MI350.
pub const TARGETS: [&str; 3] = ["gfx90a", "gfx942", "gfx950"];

/// The modules of `kernels-hip`: `device/entries/<name>.h` becomes `<name>.<target>.co`.
pub const MODULES: [&str; 11] = [
    "base",
    "latency",
    "signals",
    "collective",
    "reduce",
    "reduce_push",
    "reduce_packets",
    "reduce_lamport",
    "reduce_norm",
    "gathered_gemm",
    "reduced_gemm",
];

/// Kernels that examples embed, compiled as users would: `examples/kernels/<name>.cu`.
pub const EXAMPLES: [&str; 1] = ["ring"];

/// clang's options without target and files. The host target is fixed and there is no compilation unit ID, so that the
/// output does not depend on the machine. The code object version is set because clang 22 defaults to version 6, which
/// older runtimes do not load.
pub const CLANG_OPTIONS: [&str; 13] = [
    "-x",
    "hip",
    "--target=x86_64-unknown-linux-gnu",
    "--cuda-device-only",
    "--no-gpu-bundle-output",
    "-nogpuinc",
    "-nogpulib",
    "-mcode-object-version=5",
    "-fuse-cuid=none",
    "-std=c++17",
    "-O3",
    "-Wall",
    "-Wextra",
];

/// symmem's own kernels take a `Launch` before their arguments (`arch_hip.h`).
pub const OWN: [&str; 1] = ["-DSYMMEM_LAUNCH_ARGUMENT"];

/// The compiler of one run.
pub struct Compiler {
    pub clang: PathBuf,
}

impl Compiler {
    pub fn find() -> Result<Self> {
        Ok(Self {
            clang: tools::clang()?,
        })
    }

    /// Writes `<name>.<target>.co` of a module into `folder`, and returns its path.
    pub fn module(&self, name: &str, target: &str, folder: &Path) -> Result<PathBuf> {
        let source = tools::root().join(format!("device/entries/{name}.h"));
        self.compile(
            &source,
            &OWN,
            target,
            folder.join(format!("{name}.{target}.co")),
        )
    }

    /// Writes `<name>.<target>.co` of an example's kernel into `folder`, and returns its path.
    pub fn example(&self, name: &str, target: &str, folder: &Path) -> Result<PathBuf> {
        let source = tools::root().join(format!("{EXAMPLES_FOLDER}/{name}.cu"));
        self.compile(
            &source,
            &[],
            target,
            folder.join(format!("{name}.{target}.co")),
        )
    }

    /// Compiles a source with the options of symmem's own kernels.
    #[cfg(test)]
    pub fn own(&self, source: &Path, target: &str, object: PathBuf) -> Result<PathBuf> {
        self.compile(source, &OWN, target, object)
    }

    /// Compiles a source with a folder of headers that take precedence, without warnings, and writes `object`.
    pub fn changed(
        &self,
        source: &Path,
        headers: &Path,
        target: &str,
        object: PathBuf,
    ) -> Result<PathBuf> {
        let mut command = self.command(&OWN, target);
        command.arg("-w").arg("-I").arg(headers);
        finish(command, source, object)
    }

    fn compile(
        &self,
        source: &Path,
        definitions: &[&str],
        target: &str,
        object: PathBuf,
    ) -> Result<PathBuf> {
        let mut command = self.command(definitions, target);
        command.arg("-Werror");
        finish(command, source, object)
    }

    fn command(&self, definitions: &[&str], target: &str) -> Command {
        let mut command = Command::new(&self.clang);
        command.args(CLANG_OPTIONS).args(definitions);
        command.arg(format!("--offload-arch={target}"));
        command
    }
}

/// Adds symmem's headers and the files to a command, and runs it.
fn finish(mut command: Command, source: &Path, object: PathBuf) -> Result<PathBuf> {
    command
        .arg("-I")
        .arg(tools::root().join("device/include"))
        .arg(source)
        .arg("-o")
        .arg(&object);
    tools::output(&mut command)?;
    Ok(object)
}
