//! NCCL or RCCL itself, which does what symmem does not.

use crate::abi::{self, Code, Comm, Config, Stream, Team, UniqueId};
use crate::failure::Failure;
use std::ffi::{c_char, c_int, c_void};
use std::path::PathBuf;
use std::sync::OnceLock;
use symmem_gpu::library::{Library, file_of, python_packages};
use symmem_gpu::nccl::version_text;

/// A file of NCCL or RCCL to use, or `none`.
const VARIABLE: &str = "SYMMEM_NCCL_LIBRARY";

/// Names of NCCL and RCCL. A machine that has both has devices of one vendor only; the variable decides there.
const NAMES: [&str; 2] = ["libnccl.so.2", "librccl.so.1"];

/// The loader's own folders.
const SYSTEM: [&str; 5] = [
    "/usr/local/lib",
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
];

symmem_gpu::symbol_table! {
    /// Functions of NCCL or RCCL, as versions 2.18 to 2.32 declare them.
    pub struct Table {
        required {
            ncclGetUniqueId(identifier: *mut UniqueId) -> Code;
            ncclCommInitRank(comm: *mut Comm, world: c_int, identifier: UniqueId, rank: c_int) -> Code;
            ncclCommDestroy(comm: Comm) -> Code;
            ncclGroupStart() -> Code;
            ncclGroupEnd() -> Code;
        }
        optional {
            ncclGetVersion(version: *mut c_int) -> Code;
            ncclGetLastError(comm: Comm) -> *const c_char;
            ncclCommInitRankConfig(comm: *mut Comm, world: c_int, identifier: UniqueId, rank: c_int, config: *mut Config) -> Code;
            ncclCommInitRankScalable(comm: *mut Comm, world: c_int, rank: c_int, count: c_int, identifiers: *mut UniqueId, config: *mut Config) -> Code;
            ncclCommInitAll(comms: *mut Comm, count: c_int, devices: *const c_int) -> Code;
            ncclCommSplit(comm: Comm, color: c_int, key: c_int, made: *mut Comm, config: *mut Config) -> Code;
            ncclCommShrink(comm: Comm, left_out: *mut c_int, count: c_int, made: *mut Comm, config: *mut Config, flags: c_int) -> Code;
            ncclCommRevoke(comm: Comm, flags: c_int) -> Code;
            ncclCommFinalize(comm: Comm) -> Code;
            ncclCommAbort(comm: Comm) -> Code;
            ncclCommGetAsyncError(comm: Comm, code: *mut Code) -> Code;
            ncclCommCount(comm: Comm, count: *mut c_int) -> Code;
            ncclCommCuDevice(comm: Comm, device: *mut c_int) -> Code;
            ncclCommUserRank(comm: Comm, rank: *mut c_int) -> Code;
            ncclCommRegister(comm: Comm, address: *mut c_void, bytes: usize, handle: *mut *mut c_void) -> Code;
            ncclCommDeregister(comm: Comm, handle: *mut c_void) -> Code;
            ncclCommWindowRegister(comm: Comm, address: *mut c_void, bytes: usize, window: *mut *mut c_void, flags: c_int) -> Code;
            ncclCommWindowDeregister(comm: Comm, window: *mut c_void) -> Code;
            ncclMemAlloc(address: *mut *mut c_void, bytes: usize) -> Code;
            ncclMemFree(address: *mut c_void) -> Code;
            ncclRedOpCreatePreMulSum(operator: *mut c_int, factor: *mut c_void, element: c_int, residence: c_int, comm: Comm) -> Code;
            ncclRedOpDestroy(operator: c_int, comm: Comm) -> Code;
            ncclGroupSimulateEnd(information: *mut c_void) -> Code;
            ncclAllReduce(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, comm: Comm, stream: Stream) -> Code;
            ncclReduce(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclReduceScatter(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, reduce: c_int, comm: Comm, stream: Stream) -> Code;
            ncclAllGather(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, comm: Comm, stream: Stream) -> Code;
            ncclBroadcast(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclBcast(buffer: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            // NCCL spells it `ncclAlltoAll`, RCCL `ncclAllToAll`.
            ncclAlltoAll or "ncclAllToAll" (source: *const c_void, destination: *mut c_void, count: usize, element: c_int, comm: Comm, stream: Stream) -> Code;
            ncclGather(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclScatter(source: *const c_void, destination: *mut c_void, count: usize, element: c_int, root: c_int, comm: Comm, stream: Stream) -> Code;
            ncclSend(source: *const c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream) -> Code;
            ncclRecv(destination: *mut c_void, count: usize, element: c_int, peer: c_int, comm: Comm, stream: Stream) -> Code;
            // Of `nccl_device.h`.
            ncclDevCommCreate(comm: Comm, requirements: *const c_void, made: *mut c_void) -> Code;
            ncclDevCommDestroy(comm: Comm, made: *const c_void) -> Code;
            ncclLsaBarrierCreateRequirement(team: Team, count: c_int, handle: *mut c_void, requirement: *mut c_void) -> Code;
            ncclGinBarrierCreateRequirement(comm: Comm, team: Team, count: c_int, handle: *mut c_void, requirement: *mut c_void) -> Code;
            ncclLLA2ACreateRequirement(blocks: c_int, slots: c_int, handle: *mut c_void, requirement: *mut c_void) -> Code;
            ncclLLA2ACalcSlots(elements: c_int, element_bytes: c_int) -> c_int;
            ncclTeamWorld(comm: Comm) -> Team;
            ncclTeamLsa(comm: Comm) -> Team;
            ncclTeamRail(comm: Comm) -> Team;
            ncclTeamRankToWorld(comm: Comm, team: Team, rank: c_int) -> c_int;
            ncclTeamRankToLsa(comm: Comm, team: Team, rank: c_int) -> c_int;
            // RCCL's only.
            ncclAllToAllv(source: *const c_void, counts: *const usize, places: *const usize, destination: *mut c_void, more_counts: *const usize, more_places: *const usize, element: c_int, comm: Comm, stream: Stream) -> Code;
        }
    }
}

/// The library that was found.
pub struct Nccl {
    pub table: Table,
    /// Its version and file, for reports.
    pub name: String,
}

/// Returns NCCL, opened by the first call.
///
/// # Errors
/// If there is none: where it was looked for and why each attempt failed.
pub fn nccl() -> Result<&'static Nccl, Failure> {
    static NCCL: OnceLock<Result<Nccl, String>> = OnceLock::new();
    let opened = NCCL.get_or_init(open);
    let missing = |message: &String| Failure::new(abi::INVALID_USAGE, message.clone());
    opened.as_ref().map_err(missing)
}

/// Returns a function of NCCL's.
///
/// # Errors
/// If NCCL is not there, or lacks the function: `name` needs it.
pub fn function<F: Copy>(name: &str, find: impl FnOnce(&Table) -> Option<F>) -> Result<F, Failure> {
    let nccl = nccl().map_err(|missing| {
        let message = format!("{name} needs NCCL itself: {}", missing.message);
        Failure::new(missing.code, message)
    })?;
    find(&nccl.table).ok_or_else(|| {
        let message = format!("{} has no {name}", nccl.name);
        Failure::new(abi::INVALID_USAGE, message)
    })
}

/// Opens NCCL, whose calls of its own exported functions may come back to this library (`reentry`).
fn open() -> Result<Nccl, String> {
    let library = match std::env::var_os(VARIABLE).filter(|file| !file.is_empty()) {
        Some(none) if none == "none" => Err(format!("{VARIABLE}=none")),
        Some(file) => Library::open_file(&PathBuf::from(file)).map_err(|failure| failure.message),
        None => found(),
    }?;
    // In place of NCCL, this library may be what the loader finds under NCCL's name.
    if is_this(&library) {
        return Err(format!("{VARIABLE} names this library, not NCCL"));
    }
    // SAFETY: a library of this name, or one that the user named, is NCCL or RCCL.
    let table = unsafe { Table::load(&library) };
    let table = table.map_err(|symbol| format!("the NCCL that was found has no {symbol}"))?;
    let address = table.ncclGetUniqueId as *const c_void;
    let file = file_of(address).map(|file| file.display().to_string());
    let mut version = 0;
    if let Some(get) = table.ncclGetVersion {
        // SAFETY: the pointer is to a number on this stack.
        unsafe { get(&mut version) };
    }
    Ok(Nccl {
        table,
        name: format!(
            "NCCL {} ({})",
            version_text(u32::try_from(version).unwrap_or(0)),
            file.unwrap_or_default()
        ),
    })
}

/// Returns the first library of NCCL's names that is not this one.
fn found() -> Result<Library, String> {
    let packages = python_packages().into_iter().flat_map(|packages| {
        let nvidia = packages.join("nvidia/nccl/lib").join(NAMES[0]);
        [nvidia, packages.join("_rocm_sdk_core/lib").join(NAMES[1])]
    });
    let variable = |name, folder: &str, file| {
        let root = std::env::var_os(name).filter(|root| !root.is_empty())?;
        Some(PathBuf::from(root).join(folder).join(file))
    };
    // Where the loader looks too, but under a name of which it has loaded this library already.
    let path = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let loaders = std::env::split_paths(&path)
        .filter(|folder| !folder.as_os_str().is_empty())
        .chain(SYSTEM.map(PathBuf::from))
        .flat_map(|folder| NAMES.map(|name| folder.join(name)));
    let elsewhere: Vec<PathBuf> = variable("CUDA_HOME", "lib64", NAMES[0])
        .into_iter()
        .chain(variable("ROCM_PATH", "lib", NAMES[1]))
        .chain([PathBuf::from("/opt/rocm/lib").join(NAMES[1])])
        .chain(loaders)
        .chain(packages)
        .collect();
    let accepted = |library: &Library| !is_this(library);
    let advice = "install NCCL or RCCL, or name its file in SYMMEM_NCCL_LIBRARY";
    let found = Library::open_accepted(&NAMES, &elsewhere, advice, accepted);
    found.map_err(|failure| failure.message)
}

fn is_this(library: &Library) -> bool {
    library.symbol(c"symmem_nccl_serves").is_some()
}
