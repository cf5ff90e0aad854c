//! Finds and runs compilers and other tools.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::error::{Error, Result, at};

/// Returns the repository's root.
pub fn root() -> PathBuf {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest).to_owned()
}

/// A temporary directory, removed on drop.
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
        // Ignore a failure: the system clears its temporary directory.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Returns the variable's value, or the first candidate on `PATH`.
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

/// Finds clang for device code: `SYMMEM_CLANG`, or `clang-22` or `clang` on `PATH`.
pub fn clang() -> Result<PathBuf> {
    find("SYMMEM_CLANG", &["clang-22", "clang"]).ok_or(Error::ToolMissing {
        tool: "clang",
        advice: "install clang-22, or set SYMMEM_CLANG",
    })
}

/// Finds ptxas: `SYMMEM_PTXAS`, or on `PATH`.
pub fn ptxas() -> Result<PathBuf> {
    find("SYMMEM_PTXAS", &["ptxas"]).ok_or(Error::ToolMissing {
        tool: "ptxas",
        advice: "install the CUDA toolkit or the Python wheel nvidia-cuda-nvcc-cu12, and put ptxas on PATH or set SYMMEM_PTXAS",
    })
}

/// Finds every ptxas: that of [`ptxas`], and those in `SYMMEM_PTXAS_MORE`, separated by colons.
pub fn all_ptxas() -> Result<Vec<PathBuf>> {
    let more = std::env::var_os("SYMMEM_PTXAS_MORE").unwrap_or_default();
    let more = std::env::split_paths(&more).filter(|path| !path.as_os_str().is_empty());
    Ok(std::iter::once(ptxas()?).chain(more).collect())
}

/// Finds llvm-objdump for code objects: `SYMMEM_OBJDUMP`, or on `PATH`.
pub fn objdump() -> Result<PathBuf> {
    find("SYMMEM_OBJDUMP", &["llvm-objdump-22", "llvm-objdump"]).ok_or(Error::ToolMissing {
        tool: "llvm-objdump",
        advice: "install llvm-22, or set SYMMEM_OBJDUMP",
    })
}

/// Finds llvm-mca: `SYMMEM_MCA`, or on `PATH`.
pub fn mca() -> Result<PathBuf> {
    find("SYMMEM_MCA", &["llvm-mca-22", "llvm-mca"]).ok_or(Error::ToolMissing {
        tool: "llvm-mca",
        advice: "install llvm-22, or set SYMMEM_MCA",
    })
}

/// Finds the zstd command: `SYMMEM_ZSTD`, or on `PATH`.
pub fn zstd() -> Result<PathBuf> {
    find("SYMMEM_ZSTD", &["zstd"]).ok_or(Error::ToolMissing {
        tool: "zstd",
        advice: "install zstd, or set SYMMEM_ZSTD",
    })
}

/// Finds a host C++ compiler with sanitizers: `SYMMEM_CXX`, or one on `PATH`.
pub fn cxx() -> Result<PathBuf> {
    find("SYMMEM_CXX", &["clang++-22", "clang++", "g++"]).ok_or(Error::ToolMissing {
        tool: "C++ compiler",
        advice: "install clang-22 or g++, or set SYMMEM_CXX",
    })
}

/// Runs a command and returns its output, standard output before standard error. Blocks until it has ended.
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

/// Returns the line of `--version` that has the version.
pub fn version(tool: &Path) -> Result<String> {
    let text = output(Command::new(tool).arg("--version"))?;
    let line = text
        .lines()
        .find(|line| line.contains("release") || line.contains("version"));
    Ok(line.unwrap_or("unknown").trim().to_owned())
}

/// Does `work` with all items, as many at once as there are processors. Returns the results in the items' order, or the
/// first failure.
pub fn side_by_side<T: Sync, R: Send>(
    items: &[T],
    work: impl Fn(&T) -> Result<R> + Sync,
) -> Result<Vec<R>> {
    let next = AtomicUsize::new(0);
    let worker = || {
        let mut done = Vec::new();
        loop {
            let index = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(index) else {
                return done;
            };
            done.push((index, work(item)));
        }
    };
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let mut done: Vec<_> = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..processors.min(items.len()))
            .map(|_| scope.spawn(worker))
            .collect();
        let done = workers.into_iter().map(|worker| match worker.join() {
            Ok(done) => done,
            Err(panic) => std::panic::resume_unwind(panic),
        });
        done.flatten().collect()
    });
    done.sort_by_key(|&(index, _)| index);
    done.into_iter().map(|(_, result)| result).collect()
}
