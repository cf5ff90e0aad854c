//! The launches of collectives: which kernel, and that its grid can wait for its peers' grids.
//!
//! A block waits for the same block of other devices. If some blocks of a grid were resident only
//! after others had ended, ranks could wait for each other's missing blocks for ever: so a grid that
//! is not resident at once is refused here, whoever planned it.

use crate::instance::CudaBackend;
use crate::kernels::WaitingKernel;
use crate::{tuning, vendor};
use symmem_core::backend::abi::*;
use symmem_core::backend::vendor_library::VendorLibrary;
use symmem_core::backend::{CallResult, Collectives, Failure};

/// Threads of the barrier's block: one for each peer, [`MAX_RANKS`] rounded up to whole warps.
const BARRIER_THREADS: u32 = 128;
const _: () = assert!(BARRIER_THREADS as usize >= MAX_RANKS && BARRIER_THREADS.is_multiple_of(32));

impl Collectives for CudaBackend {
    unsafe fn barrier(&self, barrier: &Barrier, on: RawStream) -> CallResult<()> {
        let kernel = self.kernels.barrier;
        // SAFETY: the kernel takes a barrier; all it names is live until the stream has passed.
        unsafe { self.launch_own(kernel, 1, BARRIER_THREADS, 0, barrier, on) }
    }

    fn collective_row(&self, index: u32) -> CallResult<CollectiveRow> {
        Ok(tuning::collective_row(index as usize))
    }

    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementType,
        threads: u32,
    ) -> CallResult<u32> {
        match self.kernels.collective(kernel, element) {
            Some(kernel) => self.resident(kernel, threads),
            None => Ok(0),
        }
    }

    unsafe fn collective_move(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let (call, kernel) = ("collective_move", &self.kernels.collective_move);
        // SAFETY: the kernel takes these arguments; the caller's word is the same.
        unsafe { self.launch_moves(call, kernel, arguments, geometry, on) }
    }

    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let (call, kernel) = ("collective_swap", &self.kernels.collective_swap);
        // SAFETY: as above.
        unsafe { self.launch_moves(call, kernel, arguments, geometry, on) }
    }

    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let grid = Grid {
            call: "collective_packets",
            kernel: &self.kernels.collective_packets,
            group: &arguments.group,
            geometry,
            most: PACKET_BLOCKS,
        };
        // SAFETY: as above.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = "collective_reduce";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let grid = Grid {
            call,
            kernel: self.reduction(call, CollectiveKernel::REDUCE, element, reduce)?,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        // SAFETY: as above.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = "collective_reduce_packets";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let grid = Grid {
            call,
            kernel: self.reduction(call, CollectiveKernel::REDUCE_PACKETS, element, reduce)?,
            group: &arguments.group,
            geometry,
            most: PACKET_BLOCKS,
        };
        // SAFETY: as above.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = "collective_reduce_push";
        let (element, reduce) = (arguments.reduce.element, arguments.reduce.reduce);
        let grid = Grid {
            call,
            kernel: self.reduction(call, CollectiveKernel::REDUCE_PUSH, element, reduce)?,
            group: &arguments.reduce.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        let (threads, blocks) = (geometry.threads[0], geometry.blocks[0]);
        let pairs = u64::from(threads / PUSH_PAIR_THREADS) * u64::from(blocks);
        if !threads.is_multiple_of(PUSH_THREAD_STEP) || pairs > u64::from(arguments.channels) {
            return Err(grid.refuse(format!(
                "{blocks} blocks of {threads} threads are {pairs} pairs of warps: threads have to be a \
                 multiple of {PUSH_THREAD_STEP}, and the inbox has {} channels",
                arguments.channels
            )));
        }
        let (slots, piece) = (arguments.slots, arguments.piece_bytes);
        if !slots.is_power_of_two() || piece == 0 || !piece.is_multiple_of(16) {
            return Err(grid.refuse(format!(
                "{slots} slots of {piece} bytes: they have to be a power of two and a multiple of 16"
            )));
        }
        // SAFETY: as above.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let grid = Grid {
            call: "collective_exchange",
            kernel: &self.kernels.collective_exchange,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        let (world, each) = (arguments.group.world, arguments.blocks_per_peer);
        // One more: the block that announces what this rank sends.
        let blocks = u64::from(world) * u64::from(each) + 1;
        if each == 0 || u64::from(geometry.blocks[0]) != blocks {
            return Err(grid.refuse(format!(
                "{each} blocks for each of {world} members and one more are {blocks}, not {}",
                geometry.blocks[0]
            )));
        }
        // SAFETY: as above.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    fn vendor_description(&self) -> CallResult<VendorDescription> {
        vendor::library().map(VendorLibrary::description)
    }

    fn vendor_identifier(&self) -> CallResult<VendorIdentifier> {
        let library = vendor::library()?;
        // No communicator yet; but the rank that makes the identifier is the first to know that there
        // will be none.
        vendor::check_permitted()?;
        let _entered = self.enter()?;
        library.identifier()
    }

    fn vendor_create(
        &self,
        identifier: &VendorIdentifier,
        rank: u32,
        world: u32,
    ) -> CallResult<RawVendor> {
        let communicators = self.vendor()?;
        vendor::check_permitted()?;
        let _entered = self.enter()?;
        communicators.create(identifier, rank, world)
    }

    unsafe fn vendor_ready(&self, vendor: RawVendor) -> CallResult<u32> {
        // SAFETY: the caller's word. So for all below.
        unsafe { self.vendor()?.ready(vendor) }
    }

    unsafe fn vendor_call(
        &self,
        vendor: RawVendor,
        call: &VendorCall,
        on: RawStream,
    ) -> CallResult<()> {
        let communicators = self.vendor()?;
        let _entered = self.enter()?;
        // SAFETY: as above.
        unsafe { communicators.call(vendor, call, on) }
    }

    fn vendor_group(&self, open: u32) -> CallResult<()> {
        let library = vendor::library()?;
        let _entered = self.enter()?;
        match open {
            0 => library.group_close(),
            _ => library.group_open(),
        }
    }

    unsafe fn vendor_register(
        &self,
        vendor: RawVendor,
        address: DeviceAddress,
        bytes: u64,
    ) -> CallResult<u64> {
        let communicators = self.vendor()?;
        let _entered = self.enter()?;
        // SAFETY: as above.
        unsafe { communicators.register(vendor, address, bytes) }
    }

    unsafe fn vendor_deregister(&self, vendor: RawVendor, window: u64) -> CallResult<()> {
        let communicators = self.vendor()?;
        let _entered = self.enter()?;
        // SAFETY: as above.
        unsafe { communicators.deregister(vendor, window) }
    }

    unsafe fn vendor_abort(&self, vendor: RawVendor) -> CallResult<()> {
        let communicators = self.vendor()?;
        // SAFETY: as above.
        self.give_back(|| unsafe { communicators.abort(vendor) })
    }

    unsafe fn vendor_destroy(&self, vendor: RawVendor) -> CallResult<()> {
        let communicators = self.vendor()?;
        // SAFETY: as above.
        self.give_back(|| unsafe { communicators.destroy(vendor) })
    }
}

/// A launch of a kernel whose blocks wait for their peers'.
struct Grid<'a> {
    call: &'static str,
    kernel: &'a WaitingKernel,
    group: &'a CollectiveGroup,
    geometry: &'a Geometry,
    /// Blocks that have a place in the members' slots.
    most: u32,
}

impl Grid<'_> {
    #[cold]
    fn refuse(&self, message: String) -> Failure {
        Failure::new(Status::INVALID_ARGUMENT, self.call, message)
    }
}

impl CudaBackend {
    fn resident(&self, kernel: &WaitingKernel, threads: u32) -> CallResult<u32> {
        if let Some(blocks) = kernel.known_resident_blocks(threads) {
            return Ok(blocks);
        }
        let _entered = self.enter()?;
        kernel.ask_resident_blocks(self.driver, self.description.compute_units, threads)
    }

    /// Launches copies or swaps.
    ///
    /// # Safety
    /// The kernel takes these arguments; all that they name is live until the stream has passed this point.
    unsafe fn launch_moves(
        &self,
        call: &'static str,
        kernel: &WaitingKernel,
        arguments: &MoveArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let grid = Grid {
            call,
            kernel,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        if arguments.copies as usize > MAX_RANKS || arguments.concurrent == 0 {
            return Err(grid.refuse(format!(
                "{} copies, {} at once: there can be {MAX_RANKS}, and at least 1 at once",
                arguments.copies, arguments.concurrent
            )));
        }
        // SAFETY: the caller's word.
        unsafe { self.launch_grid(&grid, arguments, on) }
    }

    /// The kernel of a reduction.
    fn reduction(
        &self,
        call: &'static str,
        family: CollectiveKernel,
        element: ElementType,
        reduce: ReduceOperation,
    ) -> CallResult<&WaitingKernel> {
        let known = (ReduceOperation::SUM..=ReduceOperation::PRODUCT).contains(&reduce);
        let kernel = self.kernels.collective(family, element);
        kernel.filter(|_| known).ok_or_else(|| {
            Failure::new(
                Status::INVALID_ARGUMENT,
                call,
                format!(
                    "there is no reduction {} of elements {} (numbers {} and {}); core and backend \
                     are of different releases",
                    reduce.name(),
                    element.name(),
                    reduce.0,
                    element.0
                ),
            )
        })
    }

    /// Checks that a grid can be resident at once and has its place in the slots, and launches it.
    ///
    /// # Safety
    /// The kernel takes `T`; all that it names is live until the stream has passed this point.
    unsafe fn launch_grid<T>(
        &self,
        grid: &Grid<'_>,
        arguments: &T,
        on: RawStream,
    ) -> CallResult<()> {
        let Geometry {
            blocks: [blocks, y, z],
            threads: [threads, thread_y, thread_z],
            shared_memory,
        } = *grid.geometry;
        if [y, z, thread_y, thread_z] != [1; 4] || shared_memory != 0 {
            return Err(grid.refuse(format!(
                "a grid of {:?} blocks of {:?} threads with {shared_memory} bytes: collectives have \
                 one dimension and no dynamic shared memory",
                grid.geometry.blocks, grid.geometry.threads
            )));
        }
        let (rank, world) = (grid.group.rank, grid.group.world);
        if rank >= world || world as usize > MAX_RANKS {
            return Err(grid.refuse(format!(
                "member {rank} of {world}: a group has 1 to {MAX_RANKS} members, counted from 0"
            )));
        }
        if threads == 0 || !threads.is_multiple_of(32) {
            return Err(grid.refuse(format!("{threads} threads are not whole warps of 32")));
        }
        let resident = self.resident(grid.kernel, threads)?;
        let most = resident.min(grid.most);
        if blocks == 0 || blocks > most {
            return Err(grid.refuse(format!(
                "{blocks} blocks of {threads} threads: this kernel can have 1 to {most}, since all \
                 wait for their peers at once ({resident} are resident on this device)"
            )));
        }
        // SAFETY: the caller's word.
        unsafe { self.launch_own(grid.kernel.kernel, blocks, threads, 0, arguments, on) }
    }
}
