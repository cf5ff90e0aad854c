//! Compilers and the assembler: where they are, which version, and running them.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::error::{Error, Result, at};

/// The repository's root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// A directory that goes away with the value.
pub struct Scratch(PathBuf);

impl Scratch {
    pub fn new(name: &str) -> Result<Self> {
        let path = std::env::temp_dir().join(format!("symmem-{name}-{}", std::process::id()));
        at(&path, std::fs::create_dir_all(&path))?;
        Ok(Self(path))
    }

    pub fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        // What cannot be removed lies in the system's temporary directory, which is its job to clear.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// The first of: the variable's value, the candidates on `PATH`.
fn find(variable: &str, candidates: &[&str]) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH")?;
    candidates.iter().find_map(|candidate| {
        std::env::split_paths(&path)
            .map(|folder| folder.join(candidate))
            .find(|file| file.is_file())
    })
}

/// clang for device code: `SYMMEM_CLANG`, or `clang-22` or `clang` on `PATH`.
pub fn clang() -> Result<PathBuf> {
    find("SYMMEM_CLANG", &["clang-22", "clang"]).ok_or(Error::ToolMissing {
        tool: "clang",
        advice: "install clang-22, or name one in SYMMEM_CLANG",
    })
}

/// ptxas: `SYMMEM_PTXAS`, or on `PATH`.
pub fn ptxas() -> Result<PathBuf> {
    find("SYMMEM_PTXAS", &["ptxas"]).ok_or(Error::ToolMissing {
        tool: "ptxas",
        advice: "it is in CUDA's toolkit and in the Python wheel nvidia-cuda-nvcc-cu12; put it on PATH or name it in SYMMEM_PTXAS",
    })
}

/// Every ptxas that is named: that of [`ptxas`], and those in `SYMMEM_PTXAS_MORE`, between colons.
pub fn all_ptxas() -> Result<Vec<PathBuf>> {
    let more = std::env::var_os("SYMMEM_PTXAS_MORE").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    Ok(std::iter::once(ptxas()?).chain(more).collect())
}

/// llvm-objdump for code objects: `SYMMEM_OBJDUMP`, or on `PATH`.
pub fn objdump() -> Result<PathBuf> {
    find("SYMMEM_OBJDUMP", &["llvm-objdump-22", "llvm-objdump"]).ok_or(Error::ToolMissing {
        tool: "llvm-objdump",
        advice: "install llvm-22, or name one in SYMMEM_OBJDUMP",
    })
}

/// zstd's command: `SYMMEM_ZSTD`, or on `PATH`.
pub fn zstd() -> Result<PathBuf> {
    find("SYMMEM_ZSTD", &["zstd"]).ok_or(Error::ToolMissing {
        tool: "zstd",
        advice: "install zstd, or name one in SYMMEM_ZSTD",
    })
}

/// A host C++ compiler with sanitizers: `SYMMEM_CXX`, or one on `PATH`.
pub fn cxx() -> Result<PathBuf> {
    find("SYMMEM_CXX", &["clang++-22", "clang++", "g++"]).ok_or(Error::ToolMissing {
        tool: "C++ compiler",
        advice: "install clang-22 or g++, or name one in SYMMEM_CXX",
    })
}

/// Runs a command and returns what it wrote, standard output before standard error.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let result = command.output().map_err(|source| Error::File {
        path: command.get_program().into(),
        source,
    })?;
    let text = String::from_utf8_lossy(&result.stdout).into_owned()
        + &String::from_utf8_lossy(&result.stderr);
    if result.status.success() {
        Ok(text)
    } else {
        Err(Error::ToolFailed {
            command: shown,
            output: text,
        })
    }
}

/// The line of `--version` that has the version in it.
pub fn version(tool: &Path) -> Result<String> {
    let text = output(Command::new(tool).arg("--version"))?;
    let line = text
        .lines()
        .find(|line| line.contains("release") || line.contains("version"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}
