//! NCCL: finding it, and when it may be used.
//!
//! A communicator of NCCL sets up multicast by itself where the hardware has it. The only switch that
//! all of its versions know is the variable `NCCL_NVLS_ENABLE`, which it reads when its first
//! communicator is made; and a program with threads cannot set a variable safely. So a communicator is
//! refused unless the variable says 0, or multicast was asked for and nothing forbids it.

use crate::driver::Driver;
use crate::multicast;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};
use symmem_gpu::library::{Library, python_packages};
use symmem_gpu::vendor_library::VendorLibrary;

/// The library's name for the loader.
pub const SONAME: &str = "libnccl.so.2";

static LIBRARY: OnceLock<CallResult<VendorLibrary>> = OnceLock::new();

/// The library, opened by the first call; later calls return what that one found.
///
/// # Errors
/// `LIBRARY_MISSING`, with where it was looked for and what to do.
pub fn library() -> CallResult<&'static VendorLibrary> {
    LIBRARY.get_or_init(open).as_ref().map_err(Clone::clone)
}

/// What NCCL's symmetric windows take.
const WINDOWS_NEED: &str = "2.27 or newer has them, on devices that NVLink joins";

fn open() -> CallResult<VendorLibrary> {
    // Where there is no driver there is no use for it, and the reason is the driver's.
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
    // SAFETY: a file of this name is NCCL.
    unsafe { VendorLibrary::new("NCCL", WINDOWS_NEED, &library) }
}

/// Where the toolkit is, if the environment says so.
pub fn toolkit() -> Option<PathBuf> {
    std::env::var_os("CUDA_HOME").map(PathBuf::from)
}

/// Where a library of these names, best first, is looked for behind the loader's directories: in the
/// toolkit, then `within` Python's packages.
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

/// Refuses a communicator that might use multicast where that was not asked for.
pub fn check_permitted() -> CallResult<()> {
    match multicast::permitted_to_nccl() {
        Ok(()) => Ok(()),
        Err(reason) => Err(Failure::new(
            Status::UNSUPPORTED,
            "ncclCommInitRankConfig",
            format!(
                "NCCL might use multicast here, and {reason}; set NCCL_NVLS_ENABLE=0 for all ranks"
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
