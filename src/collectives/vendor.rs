//! Collectives by the vendor's library, over the same buffers and streams.
//!
//! A communicator of the library is opened by an explicit call, never on the way to the device. It is
//! non-blocking: creating it is polled under the setup deadline, and once this communicator is poisoned
//! the watcher aborts it, which ends the kernels that wait in it. With windows buffers can be
//! registered, and the library then addresses peers' copies directly.

use super::launch::{Call, Extent};
use super::plan::Shape;
use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, Failure, VendorCollectives, read_text};
use crate::buffer::SymmetricBuffer;
use crate::communicator::allocation::Allocation;
use crate::communicator::{Communicator, Inner, Round};
use crate::element::Element;
use crate::error::{Error, Result};
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// How often a communicator that is being made is asked whether it is.
const ASK_INTERVAL: Duration = Duration::from_micros(200);

/// The vendor's library of collectives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VendorLibrary {
    /// The vendor's name for it.
    pub name: String,
    /// The file it was loaded from.
    pub file: String,
    /// As the library numbers it.
    pub version: u32,
    /// Whether it has symmetric windows.
    pub windows: bool,
}

/// The communicators of the vendor's library, each once it was opened.
#[derive(Default)]
pub struct Vendors {
    plain: OnceLock<RawVendor>,
    windows: OnceLock<RawVendor>,
}

impl Vendors {
    fn slot(&self, windows: bool) -> &OnceLock<RawVendor> {
        if windows { &self.windows } else { &self.plain }
    }

    /// The one that a provider names; for the selector's choice the one with windows if it is there and
    /// the call [`Call::starts_at_vectors`].
    pub fn of(&self, provider: super::Provider, aligned: bool) -> Option<RawVendor> {
        match provider {
            super::Provider::Automatic if !aligned => self.plain.get().copied(),
            super::Provider::Own => None,
            super::Provider::Vendor => self.plain.get().copied(),
            super::Provider::VendorWindows => self.windows.get().copied(),
            super::Provider::Automatic => self.windows.get().or(self.plain.get()).copied(),
        }
    }

    /// Gives them up together with all ranks, whose work is done.
    pub fn destroy(&self, backend: &Backend, rank: usize) {
        self.each(|vendor| {
            // SAFETY: it came from `open`; no work is left and nobody begins any.
            if let Err(failure) = unsafe { backend.vendor_destroy(vendor) } {
                tracing::warn!(rank, %failure, "vendor_destroy");
            }
        });
    }

    /// Ends them without waiting for other ranks. Nothing where they were given up before.
    pub fn abort(&self, backend: &Backend, rank: usize) {
        self.each(|vendor| abort(backend, rank, vendor));
    }

    fn each(&self, end: impl Fn(RawVendor)) {
        for slot in [&self.plain, &self.windows] {
            if let Some(&vendor) = slot.get() {
                end(vendor);
            }
        }
    }
}

fn abort(backend: &Backend, rank: usize, vendor: RawVendor) {
    // SAFETY: it came from `vendor_create`; the backend lets calls that come late find it ended.
    if let Err(failure) = unsafe { backend.vendor_abort(vendor) } {
        tracing::warn!(rank, %failure, "vendor_abort");
    }
}

/// A failed call, where a library that is not there is a capability that is missing.
fn failed(shared: &Inner, operation: &'static str, failure: Failure) -> Error {
    if failure.status == Status::LIBRARY_MISSING {
        return Error::Unsupported {
            rank: shared.rank,
            operation,
            message: failure.to_string(),
        };
    }
    shared.failed(operation, failure)
}

impl Communicator {
    /// Opens the vendor's library of collectives for these ranks: [`crate::Provider::Vendor`], or with
    /// `windows` [`crate::Provider::VendorWindows`], can be asked for from then on, and rows of the
    /// selector that name it hold. Collective. Blocks until the library has joined all ranks, at most
    /// the setup deadline. Where it is open already, says only what it is.
    ///
    /// # Errors
    /// [`Error::Unsupported`] names the library where it is missing, or too old for windows; as any
    /// collective call.
    pub fn open_vendor(&self, windows: bool) -> Result<VendorLibrary> {
        const NAME: &str = "open_vendor";
        let shared = self.shared();
        let mut round = shared.agreement.begin(NAME);
        let slot = shared.collectives().vendors.slot(windows);
        round.compare(&[
            ("whether it has windows", windows.to_string()),
            ("whether it is open", slot.get().is_some().to_string()),
        ])?;
        let description = shared
            .backend
            .vendor_description()
            .map_err(|failure| failed(shared, NAME, failure));
        let description = round.vote(description)?;
        let (name, version) = (read_text(&description.name), description.version);
        round.compare(&[
            ("the vendor's library", name.clone()),
            ("its version", version.to_string()),
            ("what it has", description.flags.to_string()),
        ])?;
        if windows && description.flags & VENDOR_WINDOWS == 0 {
            return Err(Error::Unsupported {
                rank: shared.rank,
                operation: NAME,
                message: format!("{name} (version {version}) has no symmetric windows"),
            });
        }
        let library = VendorLibrary {
            name,
            file: read_text(&description.file),
            version,
            windows: description.flags & VENDOR_WINDOWS != 0,
        };
        if slot.get().is_some() {
            return Ok(library);
        }
        let vendor = join(shared, &mut round, NAME)?;
        let (backend, rank) = ((*shared.backend).clone(), shared.rank);
        // Before it can be used, so that whatever goes wrong with it ends.
        shared
            .health
            .on_poison(Box::new(move || abort(&backend, rank, vendor)));
        // Set once, by whoever holds the round.
        let _ = slot.set(vendor);
        Ok(library)
    }
}

/// Makes a communicator of the library together with all ranks.
fn join(shared: &Inner, round: &mut Round<'_>, name: &'static str) -> Result<RawVendor> {
    let (backend, rank) = (&*shared.backend, shared.rank);
    let made = if rank == 0 {
        backend
            .vendor_identifier()
            .map(|identifier| identifier.bytes.to_vec())
            .map_err(|failure| failed(shared, name, failure))
    } else {
        Ok(Vec::new())
    };
    let made = round.vote(made)?;
    let answers = round.exchange(&made)?;
    let bytes = answers[0].as_slice().try_into();
    let identifier = bytes.map_err(|_| Error::InvalidArgument {
        rank,
        operation: name,
        message: "rank 0 sent an identifier of another version's form".into(),
    });
    let identifier = VendorIdentifier {
        bytes: round.vote(identifier)?,
    };
    let created = backend
        .vendor_create(&identifier, rank as u32, shared.world as u32)
        .map_err(|failure| failed(shared, name, failure));
    let mine = created.as_ref().ok().copied();
    let joined = round
        .vote(created)
        .and_then(|vendor| round.vote(await_ready(shared, name, vendor).map(|()| vendor)));
    if let (Err(_), Some(vendor)) = (&joined, mine) {
        abort(backend, rank, vendor);
    }
    joined
}

/// Waits until what was begun is done.
fn await_ready(shared: &Inner, name: &'static str, vendor: RawVendor) -> Result<()> {
    let start = Instant::now();
    // Shorter than the others' wait for this rank, so that they hear the reason.
    let limit = shared.options.setup_deadline - shared.options.setup_deadline / 8;
    loop {
        shared.health.look()?;
        // SAFETY: created by the caller, and not given up.
        match unsafe { shared.backend.vendor_ready(vendor) } {
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

impl<T: Element> SymmetricBuffer<T> {
    /// Makes the buffer a symmetric window of the vendor's library
    /// ([`Communicator::open_vendor`] with windows). Collective. It stays one until the buffer is given
    /// up.
    ///
    /// # Errors
    /// [`Error::InvalidArgument`] if there is no such communicator, or it is a window already;
    /// [`Error::Unsupported`] where the library cannot; as any collective call.
    pub fn register_with_vendor(&self) -> Result<()> {
        const NAME: &str = "register_with_vendor";
        let shared = self.shared();
        let allocation = self.allocation();
        let mut round = shared.agreement.begin(NAME);
        round.compare(&[(
            "the buffer (by order of allocation)",
            allocation.number.to_string(),
        )])?;
        let vendor = shared.collectives().vendors.windows.get();
        let ready = match vendor {
            Some(&vendor) if allocation.window.get().is_none() => Ok(vendor),
            _ => Err(Error::InvalidArgument {
                rank: shared.rank,
                operation: NAME,
                message: match vendor {
                    Some(_) => "the buffer is a window already".into(),
                    None => "the vendor's communicator with windows is not open; see `open_vendor`"
                        .into(),
                },
            }),
        };
        let vendor = round.vote(ready)?;
        let own = allocation.own;
        // SAFETY: the communicator is ready; the memory is live until `Allocation::unmap` has
        // deregistered it.
        let window = unsafe {
            shared
                .backend
                .vendor_register(vendor, own.address, own.bytes)
        };
        let window = window.map_err(|failure| failed(shared, NAME, failure));
        if let Ok(window) = &window {
            // Set once: the round is held, and it was empty.
            let _ = allocation.window.set((vendor, *window));
        }
        round.vote(window).map(drop)
    }
}

/// Ends an allocation's window, if it is one. Call once no work of this rank uses it.
pub fn deregister(shared: &Inner, allocation: &Allocation) {
    let Some(&(vendor, window)) = allocation.window.get() else {
        return;
    };
    // SAFETY: both come from `register_with_vendor`; no work uses the window. A communicator that has
    // been given up ended its windows with it.
    if let Err(failure) = unsafe { shared.backend.vendor_deregister(vendor, window) } {
        tracing::debug!(rank = shared.rank, %failure, "vendor_deregister");
    }
}

/// Runs calls as one group of the library's.
fn group(backend: &Backend, calls: impl FnOnce() -> CallResult<()>) -> CallResult<()> {
    backend.vendor_group(true)?;
    let made = calls();
    // Closed in any case: the group is this thread's.
    let closed = backend.vendor_group(false);
    made.and(closed)
}

/// Submits a collective.
///
/// # Safety
/// `vendor` is open; all ranges are live until the stream has passed this point, and every rank submits
/// the same.
pub unsafe fn submit(
    backend: &Backend,
    vendor: RawVendor,
    call: &Call<'_>,
    shape: &Shape<'_>,
    stream: RawStream,
) -> CallResult<()> {
    use CollectiveOperation as O;
    let rank = shape.rank;
    let size = call.element.bytes();
    let made = |operation, source, destination, bytes: u64, peer: usize| VendorCall {
        source,
        destination,
        count: bytes / size,
        operation,
        element: call.element,
        reduce: call.reduce,
        peer: peer as u32,
    };
    let destination = shape.destination.at(rank, 0);
    if call.operation == O::ALL_GATHER_V {
        return group(backend, || {
            for root in (0..shape.world).filter(|&root| shape.parts.bytes(root) > 0) {
                let part = shape.destination.at(rank, shape.parts.offset(root));
                // Only the root's is read; where this rank gives nothing it is no address of its own.
                let source = if rank == root {
                    shape.gathered_from(rank)
                } else {
                    part
                };
                let part = made(O::BROADCAST, source, part, shape.parts.bytes(root), root);
                // SAFETY: the caller's word.
                unsafe { backend.vendor_call(vendor, &part, stream) }?;
            }
            Ok(())
        });
    }
    let (source, destination) = match call.operation {
        O::ALL_GATHER | O::GATHER => (shape.gathered_from(rank), destination),
        O::REDUCE_SCATTER | O::SCATTER => (shape.source.at(rank, 0), shape.scattered_to(rank)),
        _ => (shape.source.at(rank, 0), destination),
    };
    let bytes = shape.parts.bytes(0);
    let whole = made(call.operation, source, destination, bytes, shape.root);
    // SAFETY: the caller's word.
    unsafe { backend.vendor_call(vendor, &whole, stream) }
}

/// Refuses windows for a call whose parts do not start at vectors ([`Call::starts_at_vectors`]): version 2.28.9
/// of such a library gathers wrong bytes there, without an error.
pub fn refuse_unaligned_windows(
    rank: usize,
    operation: &'static str,
    provider: super::Provider,
) -> Result<()> {
    if provider != super::Provider::VendorWindows {
        return Ok(());
    }
    Err(Error::Unsupported {
        rank,
        operation,
        message: "the vendor's windows take ranges, and members' parts of them, that start at a \
                  multiple of 16 bytes; use `Provider::Vendor` for others"
            .into(),
    })
}

/// Submits sends and receives, done at once: (peer, whether it sends, what).
///
/// # Safety
/// As [`submit`], but each pair agrees on what is sent.
pub unsafe fn exchange<'a>(
    backend: &Backend,
    vendor: RawVendor,
    rank: usize,
    entries: impl Iterator<Item = (usize, bool, Extent<'a>)>,
    stream: RawStream,
) -> CallResult<()> {
    let entries = entries.map(|(peer, sends, extent)| {
        let address = extent.address(rank);
        (peer, sends, address, extent.bytes)
    });
    // SAFETY: the caller's word.
    unsafe { messages(backend, vendor, entries, stream) }
}

/// As [`exchange`], of any memory: (peer, whether it sends, first byte, bytes).
///
/// # Safety
/// As [`exchange`].
pub unsafe fn messages(
    backend: &Backend,
    vendor: RawVendor,
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
            let call = VendorCall {
                source,
                destination,
                count: bytes,
                operation: CollectiveOperation::EXCHANGE,
                element: ElementType::U8,
                reduce: ReduceOperation::default(),
                peer: peer as u32,
            };
            // SAFETY: the caller's word.
            unsafe { backend.vendor_call(vendor, &call, stream) }?;
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use super::super::Provider;
    use super::*;

    #[test]
    fn ranges_that_windows_cannot_take_go_to_the_plain_communicator_or_to_none() {
        let vendors = Vendors::default();
        vendors.windows.set(RawVendor(2)).unwrap();
        assert_eq!(vendors.of(Provider::Automatic, true), Some(RawVendor(2)));
        assert_eq!(vendors.of(Provider::Automatic, false), None);
        vendors.plain.set(RawVendor(1)).unwrap();
        assert_eq!(vendors.of(Provider::Automatic, true), Some(RawVendor(2)));
        assert_eq!(vendors.of(Provider::Automatic, false), Some(RawVendor(1)));
    }
}
