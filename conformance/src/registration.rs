//! Memory that the caller owns: made symmetric where its kind can be shared; else a typed error that
//! says why, and a staged copy.

use super::buffers::{Buffers, Memory};
use super::context::Context;
use super::dtype::with_element;
use super::findings::Findings;
use super::pattern::{Tag, difference, elements};
use symmem::backend::abi::DeviceAddress;
use symmem::backend::{Backend, SymmetricMemory};
use symmem::{Error, Reducible, Result, SymmetricBuffer};

/// Elements of the memory.
const LENGTH: usize = 1000;

/// Registers or stages memory of this process, and lets the next rank look at it.
pub fn check(context: &Context<'_>, memory: &dyn Memory) -> Result<Findings> {
    let mut findings = Findings::new();
    with_element!(context.case.dtype, T => {
        let buffers = memory.of::<T>();
        pageable(context, buffers, &mut findings)?;
        allocated(context, buffers, &mut findings)?;
    });
    Ok(findings)
}

/// Memory of the process's heap, which no backend can share: refused, then staged where the device
/// can read it.
fn pageable<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    let rank = communicator.rank();
    let mine: Vec<T> = elements(tag(context, rank, 0), LENGTH);
    let address = DeviceAddress(mine.as_ptr() as u64);
    // SAFETY: `mine` outlives the buffer, and nothing writes it.
    match unsafe { communicator.register::<T>(address, &[LENGTH]) } {
        Err(Error::NotShareable { .. }) => {}
        Err(error) => findings.push(format!(
            "heap memory was refused for another reason: {error}"
        )),
        Ok(buffer) => {
            findings.push("heap memory was registered as if peers could map it".into());
            buffer.free()?;
        }
    }
    // SAFETY: only asked which it is.
    let backend = unsafe { communicator.backend() };
    if matches!(backend, Backend::Host(_)) {
        // SAFETY: the host backend reads any memory of the process; `mine` outlives the copy, which
        // `look` waits for.
        let staged = unsafe { communicator.stage(address, &[LENGTH], &context.streams[0])? };
        look(context, buffers, &staged, 0, "staged", findings)?;
        staged.free()?;
    }
    Ok(())
}

/// Memory of the device that the caller allocated.
fn allocated<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    // SAFETY: it allocates memory of the caller's, and frees it once no rank uses it any more.
    let backend = unsafe { communicator.backend() };
    let bytes = (LENGTH * size_of::<T>()) as u64;
    let own = match backend.allocate(communicator.share_kind().into(), bytes) {
        Ok(own) => Ok(own),
        Err(failure) => Err(failure.to_string()),
    };
    // A rank that has no memory must not leave the others in the collective call.
    let told = own.as_ref().err().cloned().unwrap_or_default();
    if communicator
        .host_all_gather(told.as_bytes())?
        .iter()
        .any(|told| !told.is_empty())
    {
        findings.push(format!("the backend allocated nothing: {told}"));
    } else if let Ok(own) = &own {
        // SAFETY: allocated above, freed below once the buffer is gone from every rank.
        match unsafe { communicator.register::<T>(own.address, &[LENGTH]) } {
            Ok(buffer) => {
                write(context, &buffer, 1)?;
                look(context, buffers, &buffer, 1, "registered", findings)?;
                buffer.free()?;
            }
            // The kind cannot be shared once more: then it can be copied.
            Err(Error::NotShareable { .. }) => {
                // SAFETY: as above; the copy has passed when `look` has.
                let staged: SymmetricBuffer<T> =
                    unsafe { communicator.stage(own.address, &[LENGTH], &context.streams[0])? };
                write(context, &staged, 1)?;
                look(context, buffers, &staged, 1, "staged", findings)?;
                staged.free()?;
            }
            Err(error) => findings.push(format!("device memory: {error}")),
        }
    }
    communicator.host_barrier()?;
    if let Ok(own) = own {
        // SAFETY: allocated above; no rank maps it any more.
        if let Err(failure) = unsafe { backend.free(own.handle) } {
            findings.push(format!("freeing: {failure}"));
        }
    }
    Ok(())
}

fn tag(context: &Context<'_>, rank: usize, round: u32) -> Tag {
    Tag {
        seed: context.case.seed,
        rank,
        round: Some(round),
    }
}

fn write<T: Reducible>(
    context: &Context<'_>,
    buffer: &SymmetricBuffer<T>,
    round: u32,
) -> Result<()> {
    let rank = context.communicator.rank();
    buffer.write(
        &context.streams[0],
        0,
        &elements(tag(context, rank, round), LENGTH),
    )
}

/// Gets the next rank's copy of `buffer` and compares it with what that rank has.
fn look<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    buffer: &SymmetricBuffer<T>,
    round: u32,
    how: &str,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    let stream = &context.streams[0];
    let next = (communicator.rank() + 1) % communicator.world_size();
    stream.synchronize_within(context.deadline)?;
    communicator.host_barrier()?;
    stream.get(next, buffers.destination.slice(..LENGTH)?, buffer.all())?;
    let mut seen = vec![T::new_zeroed(); LENGTH];
    buffers.destination.read(stream, 0, &mut seen)?;
    if let Some(found) = difference(&seen, &elements(tag(context, next, round), LENGTH)) {
        findings.push(format!(
            "the memory that rank {next} {how} came out wrong: {found:?}"
        ));
    }
    communicator.host_barrier()
}
