//! Communicators of NCCL or RCCL, on symmem's buffers and streams.
//!
//! A communicator is opened by an explicit call only, never while a collective is enqueued. It is non-blocking:
//! its creation is polled within the setup deadline, and if symmem's communicator is poisoned, the watcher
//! aborts it, which ends the kernels that wait in it. With windows, buffers can be registered, and NCCL then
//! addresses peers' copies directly.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Failure, NcclCollectives, read_text};
use crate::base::error::{Error, Result};
use crate::group::provider::Provider;
use crate::rank::agreement::Round;
use crate::rank::allocation::{Allocation, Attachment};
use crate::rank::context::{Closing, Context};
use crate::rank::driver::Driver;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// Interval at which the creation of a communicator is polled.
const ASK_INTERVAL: Duration = Duration::from_micros(200);

/// The loaded NCCL or RCCL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NcclLibrary {
    /// The library's name, such as `NCCL`.
    pub name: String,
    /// The file it was loaded from.
    pub file: String,
    /// The version, as the library numbers it.
    pub version: u32,
    /// Whether this version supports symmetric windows.
    pub windows: bool,
}

/// The communicators of NCCL, each once it was opened.
#[derive(Default)]
pub struct Communicators {
    plain: OnceLock<RawNccl>,
    windows: OnceLock<RawNccl>,
    /// Over nodes, the only one: of this rank's rail.
    rail: OnceLock<RawNccl>,
}

impl Communicators {
    fn slot(&self, windows: bool) -> &OnceLock<RawNccl> {
        if windows { &self.windows } else { &self.plain }
    }

    /// Returns the communicator that a provider names. For the selector's choice, returns the one with windows
    /// if it is open and the call's ranges start at multiples of 16 bytes (`aligned`), else the plain one.
    pub fn of(&self, provider: Provider, aligned: bool) -> Option<RawNccl> {
        match provider {
            Provider::Automatic if !aligned => self.plain.get().copied(),
            Provider::Symmem => None,
            Provider::Nccl => self.plain.get().copied(),
            Provider::NcclWindows => self.windows.get().copied(),
            Provider::Automatic => self.windows.get().or(self.plain.get()).copied(),
        }
    }

    /// Returns the communicator of this rank's rail, if the ranks are on several nodes and it is open.
    pub fn rail(&self) -> Option<RawNccl> {
        self.rail.get().copied()
    }

    /// Destroys the communicators together with all ranks, whose work is done.
    pub fn destroy(&self, backend: &Backend, rank: usize) {
        self.each(|nccl| {
            // SAFETY: it came from `open`; no work is left and nobody begins any.
            if let Err(failure) = unsafe { backend.nccl_destroy(nccl) } {
                tracing::warn!(rank, %failure, "nccl_destroy failed");
            }
        });
    }

    fn each(&self, end: impl Fn(RawNccl)) {
        for slot in [&self.plain, &self.windows, &self.rail] {
            if let Some(&nccl) = slot.get() {
                end(nccl);
            }
        }
    }
}

impl Closing for Communicators {
    /// Aborts the communicators without waiting for other ranks, which may be gone. Does nothing if they were
    /// destroyed before.
    fn close(&self, driver: &Driver) {
        self.each(|nccl| abort(&driver.backend, driver.rank, nccl));
    }
}

fn abort(backend: &Backend, rank: usize, nccl: RawNccl) {
    // SAFETY: it came from `nccl_create`; the backend lets calls that come late find it ended.
    if let Err(failure) = unsafe { backend.nccl_abort(nccl) } {
        tracing::warn!(rank, %failure, "nccl_abort failed");
    }
}

/// Returns the error of a failed call; a missing library is [`Error::Unsupported`].
fn failed(shared: &Driver, operation: &'static str, failure: Failure) -> Error {
    if failure.status == Status::LIBRARY_MISSING {
        return Error::Unsupported {
            rank: shared.rank,
            operation,
            message: failure.to_string(),
        };
    }
    shared.failed(operation, failure)
}

/// Opens NCCL or RCCL for all ranks, with windows or without. Over nodes, each rail gets a communicator. Collective; blocks
/// for at most the setup deadline.
///
/// # Errors
/// [`Error::Unsupported`], which names the library, if it is missing or too old for windows; over nodes, with windows or if
/// the nodes have different numbers of ranks; the errors of any collective call.
pub fn open(shared: &Context, communicators: &Communicators, windows: bool) -> Result<NcclLibrary> {
    const NAME: &str = "open_nccl";
    let placement = &*shared.placement;
    let spans_nodes = placement.spans_nodes();
    let mut round = shared.agreement.begin(NAME);
    let slot = match spans_nodes {
        true => &communicators.rail,
        false => communicators.slot(windows),
    };
    round.compare(&[
        (
            "whether symmetric windows are requested",
            windows.to_string(),
        ),
        (
            "whether it is already open",
            slot.get().is_some().to_string(),
        ),
    ])?;
    if spans_nodes && (windows || !placement.is_even()) {
        return Err(Error::Unsupported {
            rank: shared.rank,
            operation: NAME,
            message: match windows {
                true => "symmetric windows reach the ranks of one node only; open NCCL without them".into(),
                false => "NCCL has a communicator of each rail, and the nodes have different numbers of ranks; start as \
                    many ranks on each, or leave what goes between nodes to UCX"
                    .into(),
            },
        });
    }
    let description = shared
        .backend
        .nccl_description()
        .map_err(|failure| failed(shared, NAME, failure));
    let description = round.vote(description)?;
    let (name, version) = (read_text(&description.name), description.version);
    round.compare(&[
        ("the library (NCCL or RCCL)", name.clone()),
        ("the library's version", version.to_string()),
        ("the library's features", description.flags.to_string()),
    ])?;
    if windows && description.flags & NCCL_WINDOWS == 0 {
        return Err(Error::Unsupported {
            rank: shared.rank,
            operation: NAME,
            message: format!("{name} (version {version}) has no symmetric windows"),
        });
    }
    let library = NcclLibrary {
        name,
        file: read_text(&description.file),
        version,
        windows: description.flags & NCCL_WINDOWS != 0,
    };
    if slot.get().is_some() {
        return Ok(library);
    }
    let members = match spans_nodes {
        true => placement.rail(placement.local_rank(shared.rank)),
        false => (0..shared.world).collect(),
    };
    let nccl = join(shared, &mut round, NAME, &members)?;
    let (backend, rank) = ((*shared.backend).clone(), shared.rank);
    // Registered before its first use, so that it is aborted whatever goes wrong.
    shared
        .health
        .on_poison(Box::new(move || abort(&backend, rank, nccl)));
    // Set once, by the thread that holds the round.
    let _ = slot.set(nccl);
    Ok(library)
}

/// Makes a communicator of NCCL of the ranks in `members`, while all ranks make theirs.
fn join(
    shared: &Context,
    round: &mut Round<'_>,
    name: &'static str,
    members: &[usize],
) -> Result<RawNccl> {
    let (backend, rank) = (&*shared.backend, shared.rank);
    let first = members[0];
    let made = if rank == first {
        backend
            .nccl_unique_id()
            .map(|identifier| identifier.bytes.to_vec())
            .map_err(|failure| failed(shared, name, failure))
    } else {
        Ok(Vec::new())
    };
    let made = round.vote(made)?;
    let answers = round.exchange(&made)?;
    let bytes = answers[first].as_slice().try_into();
    let identifier = bytes.map_err(|_| Error::InvalidArgument {
        rank,
        operation: name,
        message: format!(
            "rank {first} sent an identifier in an unknown format; run the same build of symmem on all ranks"
        ),
    });
    let identifier = NcclUniqueId {
        bytes: round.vote(identifier)?,
    };
    // In the order of nodes, not of ranks.
    let before = members.iter().take_while(|&&member| member != rank);
    let number = before.count();
    let created = backend
        .nccl_create(&identifier, number as u32, members.len() as u32)
        .map_err(|failure| failed(shared, name, failure));
    let mine = created.as_ref().ok().copied();
    let joined = round
        .vote(created)
        .and_then(|nccl| round.vote(await_ready(shared, name, nccl).map(|()| nccl)));
    if let (Err(_), Some(nccl)) = (&joined, mine) {
        abort(backend, rank, nccl);
    }
    joined
}

/// Waits until the communicator is ready.
fn await_ready(shared: &Context, name: &'static str, nccl: RawNccl) -> Result<()> {
    let start = Instant::now();
    // Shorter than the other ranks' wait for this one, so that they receive the reason.
    let limit = shared.deadlines.setup - shared.deadlines.setup / 8;
    loop {
        shared.health.look()?;
        // SAFETY: created by the caller, and not given up.
        match unsafe { shared.backend.nccl_ready(nccl) } {
            Ok(false) if start.elapsed() < limit => std::thread::sleep(ASK_INTERVAL),
            Ok(false) => {
                return Err(Error::HostTimeout {
                    rank: shared.rank,
                    operation: name,
                    waited: start.elapsed(),
                });
            }
            Ok(true) => return Ok(()),
            Err(failure) => return Err(failed(shared, name, failure)),
        }
    }
}

/// Registers an allocation as a symmetric window of NCCL until it is given up. Collective.
///
/// # Errors
/// [`Error::InvalidArgument`] if no communicator with windows is open, or the allocation is registered already;
/// [`Error::Unsupported`] if the library cannot register it; the errors of any collective call.
pub fn register(
    context: &Context,
    communicators: &Communicators,
    allocation: &Allocation,
) -> Result<()> {
    const NAME: &str = "register_with_nccl";
    let mut round = context.agreement.begin(NAME);
    round.compare(&[(
        "the buffer (by order of allocation)",
        allocation.number.to_string(),
    )])?;
    let ready = match communicators.windows.get() {
        Some(&nccl) if !allocation.has(WINDOW) => Ok(nccl),
        Some(_) => Err(context.invalid(
            NAME,
            "the buffer is already registered as a symmetric window",
        )),
        None => Err(context.invalid(
            NAME,
            "NCCL is not open with symmetric windows; call `Communicator::open_nccl(true)` first",
        )),
    };
    let nccl = round.vote(ready)?;
    // SAFETY: the communicator is ready; the memory is live until `Window::detach` has deregistered it.
    let window = unsafe {
        context
            .backend
            .nccl_register(nccl, allocation.at(context.rank, 0), allocation.bytes())
    };
    let window = window.map_err(|failure| failed(context, NAME, failure));
    if let Ok(window) = window {
        allocation.attach(Box::new(Window { nccl, window }));
    }
    round.vote(window).map(drop)
}

/// The name of a [`Window`].
const WINDOW: &str = "symmetric window";

/// An allocation's window.
struct Window {
    nccl: RawNccl,
    window: u64,
}

impl Attachment for Window {
    fn name(&self) -> &'static str {
        WINDOW
    }

    fn detach(&self, driver: &Driver) {
        // SAFETY: both come from `register`; no work uses the window. A communicator that has been given up
        // ended its windows with it.
        let ended = unsafe { driver.backend.nccl_deregister(self.nccl, self.window) };
        if let Err(failure) = ended {
            tracing::debug!(rank = driver.rank, %failure, "nccl_deregister failed");
        }
    }
}

/// Runs calls as one group of NCCL (`ncclGroupStart` to `ncclGroupEnd`).
pub fn group(backend: &Backend, calls: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
    backend.nccl_group(true)?;
    let made = calls();
    // Closed even after a failure: the group is this thread's.
    let closed = backend.nccl_group(false);
    made.and(closed)
}

/// Submits sends and receives as one group: (peer, whether it sends, first byte, bytes).
///
/// # Safety
/// `nccl` is open; all ranges are live until the stream has passed this point, and each pair agrees on what is
/// sent.
pub unsafe fn messages(
    backend: &Backend,
    nccl: RawNccl,
    messages: impl Iterator<Item = (usize, bool, DeviceAddress, u64)>,
    stream: RawStream,
) -> CallResult<()> {
    group(backend, || {
        for (peer, sends, address, bytes) in messages {
            let (source, destination) = if sends {
                (address, DeviceAddress::NULL)
            } else {
                (DeviceAddress::NULL, address)
            };
            let call = NcclCall {
                source,
                destination,
                count: bytes,
                operation: CollectiveOperationCode::EXCHANGE,
                element: ElementTypeCode::U8,
                reduce: ReduceOpCode::default(),
                peer: peer as u32,
            };
            // SAFETY: guaranteed by the caller.
            unsafe { backend.nccl_call(nccl, &call, stream) }?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::Provider;
    use super::*;

    #[test]
    fn ranges_that_windows_cannot_take_go_to_the_plain_communicator_or_to_none() {
        let both = Communicators::default();
        both.windows.set(RawNccl(2)).unwrap();
        assert_eq!(both.of(Provider::Automatic, true), Some(RawNccl(2)));
        assert_eq!(both.of(Provider::Automatic, false), None);
        both.plain.set(RawNccl(1)).unwrap();
        assert_eq!(both.of(Provider::Automatic, true), Some(RawNccl(2)));
        assert_eq!(both.of(Provider::Automatic, false), Some(RawNccl(1)));
    }
}
