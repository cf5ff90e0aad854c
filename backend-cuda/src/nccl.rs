//! Finds NCCL, and decides when it may be used.
//!
//! A communicator of NCCL sets up multicast by itself if the hardware has it. The only switch that all its
//! versions know is the variable `NCCL_NVLS_ENABLE`, which NCCL reads when it creates its first communicator,
//! and which a program with threads cannot set safely. symmem therefore creates a communicator only if the
//! variable says 0, or if multicast was asked for and nothing forbids it.

use crate::driver::Driver;
use crate::multicast;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::library::{Library, python_packages};
use symmem_gpu::nccl::NcclApi;

/// The library's file name.
pub const SONAME: &str = "libnccl.so.2";

static LIBRARY: OnceLock<CallResult<NcclApi>> = OnceLock::new();

/// Returns NCCL; the first call opens it, and later calls return the same result.
///
/// # Errors
/// `LIBRARY_MISSING`, with the places searched and what to do.
pub fn library() -> CallResult<&'static NcclApi> {
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// Requirements of NCCL's symmetric windows, for errors.
const WINDOWS_NEED: &str = "they need NCCL 2.27 or newer, and NVLink between the devices";

fn open() -> CallResult<NcclApi> {
    // Without a driver NCCL is of no use, and the driver's failure is the reason to report.
    Driver::get()?;
    let elsewhere = elsewhere(
        &[SONAME],
        toolkit().as_deref(),
        &python_packages(),
        &["nvidia/nccl/lib"],
    );
    let library = Library::open(
        SONAME,
        &elsewhere,
        "install NCCL (NVIDIA's packages, or pip's nvidia-nccl)",
    )?;
    // SAFETY: a library of this name is NCCL.
    unsafe { NcclApi::new("NCCL", WINDOWS_NEED, &library) }
}

/// Returns the toolkit's directory if `CUDA_HOME` names it.
pub fn toolkit() -> Option<PathBuf> {
    std::env::var_os("CUDA_HOME").map(PathBuf::from)
}

/// Returns the files to try after the loader's directories, for a library with these names, best first: in the
/// toolkit, then `within` Python packages.
pub fn elsewhere(
    sonames: &[&str],
    toolkit: Option<&Path>,
    packages: &[PathBuf],
    within: &[&str],
) -> Vec<PathBuf> {
    let toolkit = toolkit.filter(|path| !path.as_os_str().is_empty());
    let in_toolkit = toolkit
        .into_iter()
        .flat_map(|path| ["lib64", "lib"].map(|directory| path.join(directory)));
    let in_packages = packages
        .iter()
        .flat_map(|path| within.iter().map(move |directory| path.join(directory)));
    in_toolkit
        .chain(in_packages)
        .flat_map(|directory| sonames.iter().map(move |soname| directory.join(soname)))
        .collect()
}

/// Refuses a communicator that might use multicast unasked.
pub fn check_permitted() -> CallResult<()> {
    match multicast::permitted_to_nccl() {
        Ok(()) => Ok(()),
        Err(reason) => Err(Failure::new(
            Status::UNSUPPORTED,
            "ncclCommInitRankConfig",
            format!(
                "NCCL might use multicast, but {reason}; to use NCCL without multicast, set NCCL_NVLS_ENABLE=0 on all \
                 ranks"
            ),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_toolkit_comes_before_packages_and_an_empty_variable_names_nothing() {
        let packages = ["/venv/site-packages".into()];
        let within = ["nvidia/nccl/lib"];
        assert_eq!(
            elsewhere(&[SONAME], Some(Path::new("/cuda")), &packages, &within),
            [
                PathBuf::from("/cuda/lib64/libnccl.so.2"),
                PathBuf::from("/cuda/lib/libnccl.so.2"),
                PathBuf::from("/venv/site-packages/nvidia/nccl/lib/libnccl.so.2"),
            ]
        );
        assert!(elsewhere(&[SONAME], Some(Path::new("")), &[], &within).is_empty());
    }
}
