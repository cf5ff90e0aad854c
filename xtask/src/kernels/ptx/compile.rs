//! Compiles device sources to PTX, and PTX to cubins.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Result, at};
use crate::kernels::family::EXAMPLES_FOLDER;
use crate::tools;

/// A module of `kernels-ptx`.
pub struct Module {
    /// The name: artefacts are `<name>.ptx` and `<name>.sm_<architecture>.cubin`.
    pub name: &'static str,
    /// The source, relative to the repository's root.
    pub source: &'static str,
    /// The PTX's architecture, as compilers name it. Later ones can run it too, unless the name ends in `a`.
    pub architecture: &'static str,
    /// The architectures with cubins, on which the driver need not compile the PTX.
    pub cubins: &'static [&'static str],
    /// Additional options for clang.
    pub options: &'static [&'static str],
}

const fn module(
    name: &'static str,
    source: &'static str,
    architecture: &'static str,
    cubins: &'static [&'static str],
) -> Module {
    Module {
        name,
        source,
        architecture,
        cubins,
        options: &[],
    }
}

impl Module {
    /// Returns whether its PTX can be assembled for a target.
    pub fn runs_on(&self, target: &str) -> bool {
        let number = |name: &str| name.parse::<u32>().ok();
        match number(self.architecture) {
            Some(least) => number(target.trim_end_matches('a')).is_some_and(|one| one >= least),
            None => target == self.architecture,
        }
    }

    /// Sets the options for multicast instructions, which need a later PTX version. Every driver with the functions that
    /// create multicast addresses accepts that version.
    const fn multicast(self, options: &'static [&'static str; 2]) -> Self {
        Self { options, ..self }
    }
}

/// Multicast sums in a wider type need PTX 8.2 (CUDA 12.2).
const MULTICAST: [&str; 2] = ["--cuda-feature=+ptx82", "-DSYMMEM_MULTICAST_HARDWARE"];
/// Multicast sums of fp8 need PTX 8.6 (CUDA 12.7).
const MULTICAST_F8: [&str; 2] = ["--cuda-feature=+ptx86", "-DSYMMEM_MULTICAST_HARDWARE"];

/// The modules. There are several because one bulk instruction makes a whole sm_80 module fail to load. Kernels with
/// dependent launch, from sm_90 on, are compiled for sm_80 and sm_90.
pub const MODULES: [Module; 26] = [
    module("base", "device/entries/base.h", "80", &["80", "90"]),
    module("latency", "device/entries/latency.h", "80", &["80", "90"]),
    module("bulk", "kernels-ptx/src/bulk.cu", "90", &["90"]),
    module("signals", "device/entries/signals.h", "90", &["90"]),
    module("signals_sm_80", "device/entries/signals.h", "80", &["80"]),
    module("collective", "device/entries/collective.h", "90", &["90"]),
    module(
        "collective_sm_80",
        "device/entries/collective.h",
        "80",
        &["80"],
    ),
    module("reduce", "device/entries/reduce.h", "90", &["90"]),
    module("reduce_sm_80", "device/entries/reduce.h", "80", &["80"]),
    module("reduce_push", "device/entries/reduce_push.h", "90", &["90"]),
    module(
        "reduce_push_sm_80",
        "device/entries/reduce_push.h",
        "80",
        &["80"],
    ),
    module(
        "reduce_packets",
        "device/entries/reduce_packets.h",
        "90",
        &["90"],
    ),
    module(
        "reduce_packets_sm_80",
        "device/entries/reduce_packets.h",
        "80",
        &["80"],
    ),
    module(
        "reduce_lamport",
        "device/entries/reduce_lamport.h",
        "90",
        &["90"],
    ),
    module(
        "reduce_lamport_sm_80",
        "device/entries/reduce_lamport.h",
        "80",
        &["80"],
    ),
    module("reduce_norm", "device/entries/reduce_norm.h", "90", &["90"]),
    module(
        "reduce_norm_sm_80",
        "device/entries/reduce_norm.h",
        "80",
        &["80"],
    ),
    // No cubin, since the ptxas here is 12.4 and NCCL omits its multicast barrier when compiled by a toolkit before
    // 12.6, because of an unexplained problem of ptxas. The driver's assembler compiles the PTX instead.
    module("multicast", "device/entries/multicast.h", "90", &[]).multicast(&MULTICAST),
    module("multicast_f8", "device/entries/multicast_f8.h", "100a", &[]).multicast(&MULTICAST_F8),
    module(
        "multicast_emulated",
        "device/entries/multicast.h",
        "90",
        &["90"],
    ),
    module(
        "multicast_emulated_sm_80",
        "device/entries/multicast.h",
        "80",
        &["80"],
    ),
    module(
        "gathered_gemm",
        "kernels-ptx/src/gathered_gemm/gathered_gemm.cu",
        "90a",
        &["90a"],
    ),
    module(
        "reduced_gemm",
        "kernels-ptx/src/reduced_gemm/reduced_gemm.cu",
        "90a",
        &["90a"],
    ),
    module(
        "split_gemm",
        "kernels-ptx/src/gathered_gemm/split_gemm.cu",
        "90a",
        &["90a"],
    ),
    module(
        "cluster_gemm",
        "kernels-ptx/src/gathered_gemm/cluster_gemm.cu",
        "90a",
        &["90a"],
    ),
    module(
        "split_reduce",
        "kernels-ptx/src/gathered_gemm/split_reduce.cu",
        "90a",
        &["90a"],
    ),
];

/// Kernels that examples embed as PTX for the driver to compile: `examples/kernels/<name>.cu`.
pub const EXAMPLES: [&str; 1] = ["ring"];

/// The lowest PTX version with bulk copies; drivers from CUDA 12.0 on accept it. Without the feature, clang's back end
/// crashes.
const PTX_FEATURE: &str = "--cuda-feature=+ptx80";

/// clang's options without architecture and files. The host target is fixed, so that the output does not depend on the
/// machine.
pub const CLANG_OPTIONS: [&str; 14] = [
    "-x",
    "cuda",
    "--target=x86_64-unknown-linux-gnu",
    "--cuda-device-only",
    "-nocudainc",
    "-nocudalib",
    "-nogpulib",
    PTX_FEATURE,
    "-std=c++17",
    "-O3",
    "-Wall",
    "-Wextra",
    "-Werror",
    "-S",
];

/// The compilers of one run.
pub struct Compilers {
    pub clang: PathBuf,
    pub ptxas: PathBuf,
}

impl Compilers {
    pub fn find() -> Result<Self> {
        Ok(Self {
            clang: tools::clang()?,
            ptxas: tools::ptxas()?,
        })
    }

    /// Writes `<name>.ptx` and `<name>.sm_<architecture>.cubin` of a module into `folder`. Returns the assembler's output.
    pub fn module(&self, module: &Module, folder: &Path) -> Result<String> {
        let ptx = folder.join(format!("{}.ptx", module.name));
        self.compile(module.source, module.architecture, module.options, &ptx)?;
        let mut said = String::new();
        for architecture in module.cubins {
            let cubin = folder.join(format!("{}.sm_{architecture}.cubin", module.name));
            said += &assemble(&self.ptxas, &ptx, architecture, &cubin)?;
        }
        Ok(said)
    }

    /// Writes the PTX of an example's kernel into `folder`. Returns the assembler's output.
    pub fn example(&self, name: &str, folder: &Path) -> Result<String> {
        let ptx = folder.join(format!("{name}.ptx"));
        // The lowest architecture that symmem supports.
        self.compile(&format!("{EXAMPLES_FOLDER}/{name}.cu"), "80", &[], &ptx)?;
        assemble(&self.ptxas, &ptx, "80", &folder.join("unused"))
    }

    fn compile(
        &self,
        source: &str,
        architecture: &str,
        options: &[&str],
        ptx: &Path,
    ) -> Result<()> {
        let root = tools::root();
        let mut clang = Command::new(&self.clang);
        clang
            .args(CLANG_OPTIONS)
            .args(options)
            .arg(format!("--cuda-gpu-arch=sm_{architecture}"))
            .arg("-I")
            .arg(root.join("device/include"))
            .arg("-I")
            .arg(root.join("kernels-ptx/src"))
            .arg(root.join(source))
            .arg("-o")
            .arg(ptx);
        tools::output(&mut clang)?;
        let text = at(ptx, std::fs::read_to_string(ptx))?;
        at(ptx, std::fs::write(ptx, without_comments(&text)))
    }
}

/// Removes the compiler's comments, a third of the bytes, since programs embed the PTX. Tags of the sources are comments
/// of the other kind and stay.
fn without_comments(ptx: &str) -> String {
    let mut short = String::with_capacity(ptx.len());
    for line in ptx.lines() {
        let code = line.split("//").next().unwrap_or_default().trim_end();
        if !code.is_empty() {
            short.push_str(code);
            short.push('\n');
        }
    }
    short
}

/// Assembles PTX. Returns the assembler's output, including resource use.
pub fn assemble(ptxas: &Path, ptx: &Path, architecture: &str, cubin: &Path) -> Result<String> {
    tools::output(
        Command::new(ptxas)
            .arg("-v")
            .arg(format!("-arch=sm_{architecture}"))
            .arg(ptx)
            .arg("-o")
            .arg(cubin),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_go_and_tags_stay() {
        let ptx = "//\n\tmov.u32 %r1, %r2;  // why\n\t// begin inline asm\n\tfence; /* arrivals */\n\n}\n";
        assert_eq!(
            without_comments(ptx),
            "\tmov.u32 %r1, %r2;\n\tfence; /* arrivals */\n}\n"
        );
    }
}
