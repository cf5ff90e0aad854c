//! Joining and leaving a world.

use crate::handles::{Rank, optional, out, rank_of, symmem_communicator, take_rank};
use crate::status::{Failure, invalid, run, symmem_status};
use std::ffi::{CStr, c_char};
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{Builder, Communicator, DeviceChoice, LaunchEnvironment};

/// How a rank joins its world. Set `size` to `sizeof(struct symmem_options)` and the rest to 0; 0 stands for the default.
#[repr(C)]
pub struct symmem_options {
    /// The size of this struct, in bytes.
    pub size: u32,
    /// The number of ranks, if no launcher's variables say it; 0: the variables say it.
    pub world: u32,
    /// This rank, from 0; used if `world` is not 0.
    pub rank: u32,
    /// 0, or 1 more than the number of the device.
    pub device_plus_1: u32,
    /// A name that the ranks of a job share, and no other job on this machine; used if `world` is not 0, and needed if it is
    /// more than 1.
    pub job: *const c_char,
    /// The backend ("cuda", "hip", "host" or a plugin); null: SYMMEM_BACKEND's, or the first that has a device.
    pub backend: *const c_char,
    /// The deadline of a wait for a peer, in milliseconds; 0: 10 seconds, or SYMMEM_DEADLINE's.
    pub deadline_ms: u64,
    /// The deadline of each step of the setup, in milliseconds; 0: 60 seconds, or SYMMEM_SETUP_DEADLINE's.
    pub setup_deadline_ms: u64,
}

/// Returns a text of the caller; `None` for null.
///
/// # Safety
/// The pointer is null or a text that ends with a zero and lives as long as the result.
unsafe fn text<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: guaranteed by the caller.
    let text = unsafe { CStr::from_ptr(pointer) }.to_str();
    text.map(Some)
        .map_err(|_| invalid(format!("{name} is not UTF-8")))
}

/// Joins the world. Blocks until all ranks have joined, for at most the setup deadline in each step.
///
/// @param options How to join; null for the launcher's variables and SYMMEM_BACKEND.
/// @param communicator Where to store the communicator. End it by symmem_finalize.
///
/// # Safety
/// `options` is null or a struct of at least `size` bytes, whose texts end with a zero; `communicator` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_init(
    options: *const symmem_options,
    communicator: *mut *mut symmem_communicator,
) -> symmem_status {
    run("symmem_init", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(communicator, "communicator") }?;
        // SAFETY: guaranteed by the caller; every version has `size` first.
        let builder = unsafe { builder(options) }?;
        let communicator = builder.build()?;
        place.write(Rank { communicator }.into());
        Ok(())
    })
}

/// Returns the builder that the options describe.
///
/// # Safety
/// As [`symmem_init`].
unsafe fn builder(options: *const symmem_options) -> Result<Builder, Failure> {
    let mut builder = Communicator::builder();
    // SAFETY: guaranteed by the caller: every version of the struct begins with its size.
    let Some(size) = (unsafe { options.cast::<u32>().as_ref() }) else {
        return Ok(builder);
    };
    if (*size as usize) < size_of::<symmem_options>() {
        return Err(invalid(format!(
            "options.size is {size}, but the struct has {} bytes; set it to sizeof(struct symmem_options)",
            size_of::<symmem_options>()
        )));
    }
    // SAFETY: the struct is as large as this version's, and the caller guarantees its contents.
    let options = unsafe { &*options };
    // SAFETY: guaranteed by the caller.
    let (job, backend) = unsafe { (text(options.job, "job")?, text(options.backend, "backend")?) };
    if options.world != 0 {
        let job = match job {
            Some(job) => job,
            None if options.world == 1 => "alone",
            None => {
                return Err(invalid(
                    "options.job is null; give the ranks of a job a name that they share",
                ));
            }
        };
        let launch = LaunchEnvironment::local(options.rank, options.world, job);
        builder = builder.launch(launch.map_err(symmem::Error::from)?);
    }
    if let Some(backend) = backend {
        builder = builder.backend(Selection::named(backend));
    }
    if let Some(device) = options.device_plus_1.checked_sub(1) {
        builder = builder.device(DeviceChoice::Ordinal(device));
    }
    if options.deadline_ms != 0 {
        builder = builder.deadline(Duration::from_millis(options.deadline_ms));
    }
    if options.setup_deadline_ms != 0 {
        builder = builder.setup_deadline(Duration::from_millis(options.setup_deadline_ms));
    }
    Ok(builder)
}

/// Leaves in good order. Blocks until this rank's work is done and every rank has called it. The handle is gone then, even
/// after a failure, unless another thread was in a call on it. Free buffers and memory of symmem_alloc, and destroy
/// streams and symmem_gemms, before.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_finalize(communicator: *mut symmem_communicator) -> symmem_status {
    run("symmem_finalize", || {
        take_rank(communicator)?.communicator.finalize()?;
        Ok(())
    })
}

/// Ends all waits of all ranks: every waiting kernel and stream leaves, and every later call fails. May be called from any
/// thread, but not during symmem_finalize or symmem_rebuild, whose waits have deadlines. Does not block. symmem_finalize or symmem_rebuild comes after it.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_abort(communicator: *mut symmem_communicator) -> symmem_status {
    run("symmem_abort", || {
        rank_of(communicator)?.communicator.abort();
        Ok(())
    })
}

/// Checks whether the communicator can still be used. Returns the failure that ended it otherwise, and says the rank by
/// symmem_last_error_peer. Does not block.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_check(communicator: *mut symmem_communicator) -> symmem_status {
    run("symmem_check", || {
        Ok(rank_of(communicator)?.communicator.check()?)
    })
}

/// Makes a new communicator of the ranks that live, renumbered from 0 in the old order. Every one of them calls it. Blocks
/// for seconds. The old handle is gone, even after a failure, unless an argument was invalid or another thread was in a call on it. Its streams and buffers
/// cannot be used any more: destroy and symmem_buffer_drop them before.
///
/// # Safety
/// `rebuilt` is null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_rebuild(
    communicator: *mut symmem_communicator,
    rebuilt: *mut *mut symmem_communicator,
) -> symmem_status {
    run("symmem_rebuild", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(rebuilt, "rebuilt") }?;
        let communicator = take_rank(communicator)?.communicator.rebuild()?;
        place.write(Rank { communicator }.into());
        Ok(())
    })
}

/// Stores this rank's number, from 0, and the number of ranks. Either pointer may be null.
///
/// # Safety
/// The pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_rank(
    communicator: *mut symmem_communicator,
    rank: *mut u32,
    world: *mut u32,
) -> symmem_status {
    run("symmem_rank", || {
        let found = rank_of(communicator)?;
        // SAFETY: guaranteed by the caller.
        if let Some(rank) = unsafe { optional(rank) } {
            rank.write(found.communicator.rank() as u32);
        }
        // SAFETY: guaranteed by the caller.
        if let Some(world) = unsafe { optional(world) } {
            world.write(found.communicator.world_size() as u32);
        }
        Ok(())
    })
}

/// Blocks until every rank has called it. Does not wait for work of the device.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_host_barrier(communicator: *mut symmem_communicator) -> symmem_status {
    run("symmem_host_barrier", || {
        Ok(rank_of(communicator)?.communicator.host_barrier()?)
    })
}

/// Returns the library's version, such as "0.2.0".
#[unsafe(no_mangle)]
pub extern "C" fn symmem_version() -> *const c_char {
    const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\0");
    VERSION.as_ptr().cast()
}
