//! Memory that the caller owns: its registration, and collectives on it without. If memory of this kind cannot be
//! shared, registration must fail with `NotShareable`, and a staged copy must work. Memory that a rank allocated alone
//! can always be made symmetric.

use super::buffers::{Buffers, Memory};
use super::context::Context;
use super::dtype::with_element;
use super::findings::Findings;
use super::pattern::{Tag, difference, elements};
use symmem::backend::abi::DeviceAddress;
use symmem::backend::{Backend, SymmetricMemory};
use symmem::{DeviceSlice, Error, Reducible, Result, SymmetricBuffer};

/// Length of the memory, in elements.
const LENGTH: usize = 1000;

/// Registers or stages memory of this process, then gets the next rank's memory and compares it.
pub fn check(context: &Context<'_>, memory: &dyn Memory) -> Result<Findings> {
    let mut findings = Findings::new();
    with_element!(context.case.dtype, T => {
        let buffers = memory.of::<T>();
        pageable(context, buffers, &mut findings)?;
        allocated(context, buffers, &mut findings)?;
        met_later(context, buffers, &mut findings)?;
    });
    Ok(findings)
}

/// Checks heap memory, which no backend can share: registration must fail. The host backend can read
/// it, and so stages it.
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
    // SAFETY: the backend is only matched by its kind; no call is made on it.
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

/// Checks device memory that the caller allocated.
fn allocated<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    // SAFETY: the backend only allocates one block here, and frees it after the barrier below, when no
    // rank uses it.
    let backend = unsafe { communicator.backend() };
    let bytes = (LENGTH * size_of::<T>()) as u64;
    let own = match backend.allocate(communicator.share_kind().into(), bytes) {
        Ok(own) => Ok(own),
        Err(failure) => Err(failure.to_string()),
    };
    // If one rank has no memory, all must skip the collective call, or the others would wait in it.
    let told = own.as_ref().err().cloned().unwrap_or_default();
    if communicator
        .host_all_gather(told.as_bytes())?
        .iter()
        .any(|told| !told.is_empty())
    {
        findings.push(format!("the backend allocated nothing: {told}"));
    } else if let Ok(own) = &own {
        unregistered(context, buffers, own.address, findings)?;
        // SAFETY: the memory was allocated above, and is freed only after every rank has freed the buffer.
        match unsafe { communicator.register::<T>(own.address, &[LENGTH]) } {
            Ok(buffer) => {
                write(context, &buffer, 1)?;
                look(context, buffers, &buffer, 1, "registered", findings)?;
                buffer.free()?;
            }
            // Memory of this kind cannot be shared after its allocation, but it can be copied.
            Err(Error::NotShareable { .. }) => {
                // SAFETY: the memory was allocated above and is freed below; `look` synchronizes the
                // stream, so the copy has finished by then.
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
        // SAFETY: the memory was allocated above, and after the barrier no rank maps it.
        if let Err(failure) = unsafe { backend.free(own.handle) } {
            findings.push(format!("freeing: {failure}"));
        }
    }
    Ok(())
}

/// Checks buffers in memory that each rank allocated alone: two at once, elsewhere on each rank, that keep the memory when
/// its handle is gone.
fn met_later<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    let rank = communicator.rank();
    let bytes = LENGTH * size_of::<T>();
    // Multiples of every element's alignment.
    let places = [
        (rank + 1) * 64,
        (rank + 1) * 128 + bytes.next_multiple_of(64),
    ];
    let memory = communicator.allocate_local(places[1] + bytes)?;
    let met = |place| communicator.rendezvous::<T>(&memory, place, &[LENGTH]);
    let [one, other] = [met(places[0])?, met(places[1])?];
    drop(memory);
    write(context, &one, 3)?;
    write(context, &other, 4)?;
    look(context, buffers, &one, 3, "allocated alone", findings)?;
    one.free()?;
    look(context, buffers, &other, 4, "allocated alone", findings)?;
    other.free()
}

/// Broadcasts from symmetric memory to the memory at `address`, which no peer knows, and on from there.
fn unregistered<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    address: DeviceAddress,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    let (rank, last) = (communicator.rank(), communicator.world_size() - 1);
    let stream = &context.streams[0];
    let data: Vec<T> = elements(tag(context, rank, 2), LENGTH);
    buffers.source.write(stream, 0, &data)?;
    // SAFETY: the caller allocated as many elements, and frees them after `read` below has waited for the stream.
    let own = unsafe { communicator.device_slice::<T>(address, LENGTH)? };
    stream.broadcast(0, own, buffers.source.slice(..LENGTH)?)?;
    let copy = buffers.destination.slice(..LENGTH)?;
    stream.broadcast(last, DeviceSlice::from(copy), own)?;
    let mut seen = vec![T::new_zeroed(); LENGTH];
    buffers.destination.read(stream, 0, &mut seen)?;
    if let Some(found) = difference(&seen, &elements(tag(context, 0, 2), LENGTH)) {
        findings.push(format!(
            "memory that no peer knows, broadcast twice: {found:?}"
        ));
    }
    put_and_got(context, buffers, own, findings)
}

/// Gets the next rank's source into memory that no peer knows, and puts it from there to that rank's destination.
fn put_and_got<T: Reducible>(
    context: &Context<'_>,
    buffers: &Buffers<T>,
    own: DeviceSlice<'_, T>,
    findings: &mut Findings,
) -> Result<()> {
    let communicator = context.communicator;
    let rank = communicator.rank();
    let next = (rank + 1) % communicator.world_size();
    let stream = &context.streams[0];
    let (source, destination) = (
        buffers.source.slice(..LENGTH)?,
        buffers.destination.slice(..LENGTH)?,
    );
    // Everybody has read what came before, and `unregistered` has written the source.
    stream.barrier()?;
    stream.get(next, own, source)?;
    stream.put(next, destination, own)?;
    stream.barrier()?;
    let mut seen = vec![T::new_zeroed(); LENGTH];
    buffers.destination.read(stream, 0, &mut seen)?;
    if let Some(found) = difference(&seen, &elements(tag(context, rank, 2), LENGTH)) {
        findings.push(format!(
            "memory that no peer knows, got from rank {next} and put back: {found:?}"
        ));
    }
    communicator.host_barrier()
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

/// Gets the next rank's copy of `buffer` and compares it with the data that this rank wrote.
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
            "the memory that rank {next} {how} differs: {found:?}"
        ));
    }
    communicator.host_barrier()
}
