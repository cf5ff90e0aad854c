//! How symmem does a call.

use crate::abi;
use crate::call::{Call, Kind};
use crate::failure::Failure;
use crate::member::Member;
use symmem::{CollectiveOptions, Communicator, DeviceAddress, DeviceSlice, Provider, with_element};

impl Member {
    /// Enqueues a call.
    ///
    /// # Errors
    /// What is wrong with the arguments, or failed.
    ///
    /// # Safety
    /// The memory is on the rank's device and has the elements that the call says, until the stream has passed the work.
    pub unsafe fn perform(&self, call: &Call) -> Result<(), Failure> {
        let wrong = |message: String| Failure::new(abi::INVALID_ARGUMENT, message);
        let name = call.kind.name();
        let (element, size, operator) = call.types().ok_or_else(|| {
            let (element, reduce) = (call.element, call.reduce);
            let message =
                format!("{name}: only NCCL has reduction {reduce} of element type {element}");
            Failure::new(abi::INVALID_USAGE, message)
        })?;
        let world = self.communicator.world_size();
        let root = usize::try_from(call.root).ok().filter(|root| *root < world);
        let root = root.ok_or_else(|| wrong(format!("{name}: there is no rank {}", call.root)))?;
        let is_root = root == self.communicator.rank();
        self.counts.add(call.kind, true);
        if call.count == 0 {
            return Ok(());
        }
        // Programs may pass anything where a rank has nothing to give or to get.
        let (mut source, mut destination) = (call.source.addr(), call.destination.addr());
        match call.kind {
            Kind::Reduce if !is_root => destination = source,
            Kind::Broadcast if !is_root => source = destination,
            _ => {}
        }
        let (to, from) = match call.kind {
            Kind::AllReduce | Kind::Reduce | Kind::Broadcast => (1, 1),
            Kind::ReduceScatter => (1, world),
            Kind::AllGather => (world, 1),
            Kind::AllToAll => (world, world),
        };
        let operands = Operands {
            communicator: &self.communicator,
            destination: (destination, to),
            source: (source, from),
        };
        let options = CollectiveOptions::new().provider(Provider::Symmem);
        // SAFETY: guaranteed by the caller.
        unsafe {
            match call.kind {
                Kind::AllReduce | Kind::Reduce | Kind::ReduceScatter => {
                    with_element!(element, T => {
                        let (to, from) = operands.of::<T>(call.count)?;
                        self.enqueue(call.stream, |queue| {
                            let on = queue.with(&options);
                            match call.kind {
                                Kind::Reduce => on.reduce(root, to, from, operator),
                                Kind::ReduceScatter => on.reduce_scatter(to, from, operator),
                                _ => on.all_reduce(to, from, operator),
                            }
                        })
                    })
                }
                Kind::AllGather | Kind::Broadcast | Kind::AllToAll => {
                    let bytes = call.count.checked_mul(size);
                    let too_many = || wrong(format!("{name}: {} elements", call.count));
                    let (to, from) = operands.of::<u8>(bytes.ok_or_else(too_many)?)?;
                    self.enqueue(call.stream, |queue| {
                        let on = queue.with(&options);
                        match call.kind {
                            Kind::Broadcast => on.broadcast(root, to, from),
                            Kind::AllToAll => on.all_to_all(to, from),
                            _ => on.all_gather(to, from),
                        }
                    })
                }
            }
        }
    }
}

/// Destination and source: each an address and its number of parts.
struct Operands<'a> {
    communicator: &'a Communicator,
    destination: (usize, usize),
    source: (usize, usize),
}

impl<'a> Operands<'a> {
    /// Returns destination and source, with `count` elements a part.
    ///
    /// # Safety
    /// As [`Member::perform`].
    unsafe fn of<T: symmem::Element>(
        &self,
        count: usize,
    ) -> Result<(DeviceSlice<'a, T>, DeviceSlice<'a, T>), Failure> {
        let slice = |(address, parts): (usize, usize)| {
            let length = count.checked_mul(parts).ok_or_else(|| {
                let message = format!("{parts} parts of {count} elements");
                Failure::new(abi::INVALID_ARGUMENT, message)
            })?;
            let address = DeviceAddress(address as u64);
            let communicator = self.communicator;
            // SAFETY: guaranteed by the caller.
            Ok::<_, Failure>(unsafe { communicator.device_slice::<T>(address, length) }?)
        };
        Ok((slice(self.destination)?, slice(self.source)?))
    }
}
