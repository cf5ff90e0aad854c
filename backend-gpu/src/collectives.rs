//! Launches of the collective kernels.
//!
//! Block `i` of a collective waits for block `i` on the other devices. If some blocks of a grid started only
//! after others had ended, ranks could wait forever for each other's missing blocks. This module therefore
//! refuses every grid that cannot be co-resident, no matter who planned it.

use crate::gpu::{Gpu, Grid, launch};
use crate::kernels::{KernelsBySize, LamportKernels, NormKernels, WaitingKernel};
use crate::open::OpenGpu;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, CollectiveKernels, Failure};

/// Bytes of data in an LL packet, and of the packet (`device/include/symmem/packets.h`).
const LL_UNIT_BYTES: u64 = 8;
const LL_PACKET_BYTES: u64 = 16;
/// Most members of a group that the small kernel for LL packets serves (`peers_at_once` of the same header).
const LL_PEERS: usize = 8;
/// Peers whose messages a small kernel for moves in Lamport packets takes (`lamport_peers` in `lamport.h`).
const LAMPORT_PEERS: usize = 7;

impl<G: Gpu> CollectiveKernels for OpenGpu<G> {
    unsafe fn barrier(&self, barrier: &Barrier, on: RawStream) -> CallResult<()> {
        let kernel = self.state().kernels.barrier;
        // A block has a thread for each rank, in whole warps.
        let ranks = barrier.world.clamp(1, MAX_RANKS as u32);
        let grid = Grid::new(1, ranks.next_multiple_of(G::WARP));
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch(&self.0, kernel, grid, barrier, on) }
    }

    fn collective_row(&self, index: u32) -> CallResult<Option<CollectiveRow>> {
        Ok(self.tuned_collective(index))
    }

    fn resident_blocks(
        &self,
        kernel: CollectiveKernel,
        element: ElementTypeCode,
        threads: u32,
    ) -> CallResult<u32> {
        let mut least = None;
        let kernels = &self.state().kernels;
        kernels.each_of(kernel, element, |kernel| {
            let blocks = resident_blocks(&self.0, kernel, threads)?;
            least = Some(least.unwrap_or(blocks).min(blocks));
            Ok(())
        })?;
        Ok(least.unwrap_or(0))
    }

    unsafe fn collective_move(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let (call, kernel) = ("collective_move", &self.state().kernels.collective_move);
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_moves(&self.0, call, kernel, arguments, geometry, on) }
    }

    unsafe fn collective_swap(
        &self,
        arguments: &MoveArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let (call, kernel) = ("collective_swap", &self.state().kernels.collective_swap);
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_moves(&self.0, call, kernel, arguments, geometry, on) }
    }

    unsafe fn collective_packets(
        &self,
        arguments: &PacketArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = WaitingLaunch {
            call: "collective_packets",
            kernel: packet_kernel(
                &self.state().kernels.collective_packets,
                arguments,
                geometry,
            ),
            group: &arguments.group,
            geometry,
            most: PACKET_BLOCKS,
        };
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_reduce(
        &self,
        arguments: &ReduceArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_reduce";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let call = WaitingLaunch {
            call: name,
            kernel: reduction(&self.0, name, CollectiveKernel::REDUCE, element, reduce)?,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_reduce_packets(
        &self,
        arguments: &ReducePacketArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_reduce_packets";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let call = WaitingLaunch {
            call: name,
            kernel: reduction(
                &self.0,
                name,
                CollectiveKernel::REDUCE_PACKETS,
                element,
                reduce,
            )?,
            group: &arguments.group,
            geometry,
            most: PACKET_BLOCKS,
        };
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_reduce_lamport(
        &self,
        arguments: &ReduceLamportArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_reduce_lamport";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let kernels = self.state().kernels.lamport(element);
        let refused = || no_kernel(name, element, reduce);
        let known = ReduceLamportArguments::can_carry(element, reduce);
        let kernels = kernels.filter(|_| known).ok_or_else(refused)?;
        let call = WaitingLaunch {
            call: name,
            kernel: lamport_kernel(kernels, arguments, geometry).ok_or_else(refused)?,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        arguments.check().map_err(|why| call.refuse(why))?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_move_lamport(
        &self,
        arguments: &MoveLamportArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let kernels = &self.state().kernels.move_lamport;
        let call = WaitingLaunch {
            call: "collective_move_lamport",
            kernel: move_lamport_kernel(kernels, arguments, geometry),
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        arguments.check().map_err(|why| call.refuse(why))?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_reduce_norm(
        &self,
        arguments: &ReduceNormArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_reduce_norm";
        let (element, reduce) = (arguments.reduce.element, arguments.reduce.reduce);
        let kernels = self.state().kernels.norm(element);
        let call = WaitingLaunch {
            call: name,
            kernel: norm_kernel(
                kernels.ok_or_else(|| no_kernel(name, element, reduce))?,
                arguments,
                geometry,
            ),
            group: &arguments.reduce.group,
            geometry,
            // A row has a block; two-shot, one of each share.
            most: SLOT_BLOCKS.min(arguments.block_rows()),
        };
        arguments.check().map_err(|why| call.refuse(why))?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_multicast(
        &self,
        arguments: &MulticastArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_multicast";
        let (element, reduce) = (arguments.element, arguments.reduce);
        let kernels = &self.state().kernels;
        let kernel = match arguments.load {
            MulticastLoad::REDUCED => reduction(
                &self.0,
                name,
                CollectiveKernel::MULTICAST_REDUCE,
                element,
                reduce,
            ),
            _ => kernels
                .collective(CollectiveKernel::MULTICAST_MOVE, element)
                .ok_or_else(|| {
                    let why = "this device was opened without multicast; choose another algorithm";
                    Failure::new(Status::UNSUPPORTED, name, why)
                }),
        };
        let call = WaitingLaunch {
            call: name,
            kernel: kernel?,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_reduce_push(
        &self,
        arguments: &ReducePushArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let name = "collective_reduce_push";
        let (element, reduce) = (arguments.reduce.element, arguments.reduce.reduce);
        let call = WaitingLaunch {
            call: name,
            kernel: reduction(
                &self.0,
                name,
                CollectiveKernel::REDUCE_PUSH,
                element,
                reduce,
            )?,
            group: &arguments.reduce.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        call.check_inbox::<G>(arguments.channels, arguments.slots, arguments.piece_bytes)?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_pieces(
        &self,
        arguments: &PieceArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = WaitingLaunch {
            call: "collective_pieces",
            kernel: &self.state().kernels.collective_pieces,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        call.check_inbox::<G>(arguments.channels, arguments.slots, arguments.piece_bytes)?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }

    unsafe fn collective_exchange(
        &self,
        arguments: &ExchangeArguments,
        geometry: &Geometry,
        on: RawStream,
    ) -> CallResult<()> {
        let call = WaitingLaunch {
            call: "collective_exchange",
            kernel: &self.state().kernels.collective_exchange,
            group: &arguments.group,
            geometry,
            most: SLOT_BLOCKS,
        };
        let (world, each) = (arguments.group.world, arguments.blocks_per_peer);
        // Plus the block that announces this rank's sends.
        let blocks = u64::from(world) * u64::from(each) + 1;
        if each == 0 || u64::from(geometry.blocks[0]) != blocks {
            return Err(call.refuse(format!(
                "{each} blocks for each of {world} members, plus one, make {blocks} blocks, not {}",
                geometry.blocks[0]
            )));
        }
        arguments.check().map_err(|why| call.refuse(why))?;
        // SAFETY: the kernel's argument is this struct, and the caller keeps all that it points to live.
        unsafe { launch_waiting(&self.0, &call, arguments, on) }
    }
}

/// A launch of a kernel whose blocks wait for blocks of their peers.
struct WaitingLaunch<'a, K> {
    call: &'static str,
    kernel: &'a WaitingKernel<K>,
    group: &'a CollectiveGroup,
    geometry: &'a Geometry,
    /// Most blocks that the members' slots have room for.
    most: u32,
}

impl<K> WaitingLaunch<'_, K> {
    #[cold]
    fn refuse(&self, message: String) -> Failure {
        Failure::new(Status::INVALID_ARGUMENT, self.call, message)
    }

    /// Refuses a grid with more pairs of warps than an inbox has channels, and a division that kernels cannot use.
    fn check_inbox<G: Gpu>(&self, channels: u32, slots: u32, piece: u32) -> CallResult<()> {
        let (threads, blocks) = (self.geometry.threads[0], self.geometry.blocks[0]);
        let pairs = u64::from(threads / (2 * G::WARP)) * u64::from(blocks);
        if !threads.is_multiple_of(PUSH_THREAD_STEP) || pairs > u64::from(channels) {
            return Err(self.refuse(format!(
                "{blocks} blocks of {threads} threads are {pairs} pairs of warps for an inbox of {channels} channels: \
                 use threads in multiples of {PUSH_THREAD_STEP}, and at most one pair per channel"
            )));
        }
        if !slots.is_power_of_two() || piece == 0 || !piece.is_multiple_of(16) {
            return Err(self.refuse(format!(
                "{slots} slots of {piece} bytes: the number of slots must be a power of two, and their size \
                 a positive multiple of 16 bytes"
            )));
        }
        Ok(())
    }
}

/// Launches the move or the swap kernel.
///
/// # Safety
/// The kernel's argument is a [`MoveArguments`]; everything that it points to is live until the stream has
/// passed this point.
unsafe fn launch_moves<G: Gpu>(
    gpu: &G,
    name: &'static str,
    kernel: &WaitingKernel<G::Kernel>,
    arguments: &MoveArguments,
    geometry: &Geometry,
    on: RawStream,
) -> CallResult<()> {
    let call = WaitingLaunch {
        call: name,
        kernel,
        group: &arguments.group,
        geometry,
        most: SLOT_BLOCKS,
    };
    if arguments.copies as usize > MAX_RANKS || arguments.concurrent == 0 {
        return Err(call.refuse(format!(
            "{} copies, {} at once: there can be at most {MAX_RANKS} copies, and at least 1 at once",
            arguments.copies, arguments.concurrent
        )));
    }
    // SAFETY: the caller upholds this function's safety contract, which is the callee's.
    unsafe { launch_waiting(gpu, &call, arguments, on) }
}

/// Returns the smallest kernel for a move in LL packets.
fn packet_kernel<'a, K: Copy>(
    kernels: &'a KernelsBySize<K>,
    arguments: &PacketArguments,
    geometry: &Geometry,
) -> &'a WaitingKernel<K> {
    let world = arguments.group.world as usize;
    let members = 0..world.min(MAX_RANKS);
    let lengths = [&arguments.send_bytes, &arguments.receive_bytes];
    let lengths = lengths.map(|all| &all[members.clone()]).into_iter();
    let (mut longest, mut all) = (0, 0);
    for &bytes in lengths.flatten() {
        longest = bytes.max(longest);
        all |= bytes;
    }
    for addresses in [&arguments.sources, &arguments.destinations] {
        all = addresses[members.clone()]
            .iter()
            .fold(all, |all, address| all | address.0);
    }
    let (packets, width) = (longest / LL_UNIT_BYTES, u64::from(geometry.threads[0]));
    // The small kernels take one round.
    let room = u64::from(arguments.group.packet_bytes) / 2 / world.max(1) as u64 / LL_PACKET_BYTES;
    let threads = width * u64::from(geometry.blocks[0]);
    let fits = packets.div_ceil(threads.max(1)).max(1).next_power_of_two() * width <= room;
    let whole = all.is_multiple_of(LL_UNIT_BYTES) && fits;
    kernels.smallest(world, packets, threads, whole, world <= LL_PEERS)
}

/// Returns the smallest kernel for a reduction in Lamport packets; `None` if a two-shot one is asked for and this type has none.
fn lamport_kernel<'a, K: Copy>(
    kernels: &'a LamportKernels<K>,
    arguments: &ReduceLamportArguments,
    geometry: &Geometry,
) -> Option<&'a WaitingKernel<K>> {
    let world = arguments.group.world as usize;
    let sources = arguments.sources.get(..world).unwrap_or_default();
    let bytes = arguments.bytes();
    let all = sources.iter().fold(bytes, |all, source| all | source.0);
    let whole = (all | arguments.destination.0).is_multiple_of(16);
    let threads = u64::from(geometry.blocks[0]) * u64::from(geometry.threads[0]);
    if arguments.receiver != EVERY_MEMBER {
        return Some(&kernels.rooted);
    }
    if arguments.share_bytes != 0 {
        let (kernels, few) = (kernels.two_shot.as_ref()?, world <= LAMPORT_PEERS + 1);
        return Some(kernels.smallest(world, arguments.share_bytes / 16, threads, whole, few));
    }
    let alike = sources.windows(2).all(|pair| pair[0] == pair[1]);
    let scatter = kernels.scatter.as_ref().and_then(|worlds| worlds.of(world));
    let scatter = scatter.filter(|_| whole && !alike && bytes / 16 <= threads);
    let equal = || {
        kernels
            .equal
            .smallest(world, bytes / 16, threads, whole, alike)
    };
    Some(scatter.unwrap_or_else(equal))
}

/// Returns the smallest kernel for a move in Lamport packets.
fn move_lamport_kernel<'a, K: Copy>(
    kernels: &'a LamportKernels<K>,
    arguments: &MoveLamportArguments,
    geometry: &Geometry,
) -> &'a WaitingKernel<K> {
    if [arguments.sender, arguments.receiver] != [EVERY_MEMBER; 2] {
        return &kernels.rooted;
    }
    let world = arguments.group.world as usize;
    let mut all = arguments.bytes;
    for addresses in [&arguments.sources, &arguments.destinations] {
        let addresses = addresses.get(..world).unwrap_or_default();
        all = addresses.iter().fold(all, |all, address| all | address.0);
    }
    let threads = u64::from(geometry.blocks[0]) * u64::from(geometry.threads[0]);
    let packets = MoveLamportArguments::taken_bytes(arguments.bytes) / 16;
    let few = world <= LAMPORT_PEERS + 1;
    let whole = all.is_multiple_of(16);
    kernels.equal.smallest(world, packets, threads, whole, few)
}

/// Returns the smallest kernel for rows with a norm.
fn norm_kernel<'a, K: Copy>(
    kernels: &'a NormKernels<K>,
    arguments: &ReduceNormArguments,
    geometry: &Geometry,
) -> &'a WaitingKernel<K> {
    let reduce = &arguments.reduce;
    let world = reduce.group.world as usize;
    // One-shot they are all the same.
    let sources = reduce.sources.get(..world).unwrap_or_default();
    let matrices = [
        arguments.residual,
        arguments.residual_out,
        arguments.weight,
        arguments.bias,
        reduce.destination,
    ];
    let bytes = u64::from(arguments.hidden) * reduce.element.bytes();
    let all = matrices.iter().chain(sources);
    let whole = all.fold(bytes, |all, address| all | address.0);
    let whole = whole.is_multiple_of(16) && bytes / 16 <= geometry.threads[0].into();
    kernels.smallest(arguments, whole)
}

/// Returns the kernel of a reduction; `INVALID_ARGUMENT` for an element type or operator that this release lacks.
fn reduction<'a, G: Gpu>(
    gpu: &'a G,
    call: &'static str,
    family: CollectiveKernel,
    element: ElementTypeCode,
    reduce: ReduceOpCode,
) -> CallResult<&'a WaitingKernel<G::Kernel>> {
    let known = (ReduceOpCode::SUM..=ReduceOpCode::PRODUCT).contains(&reduce);
    let kernel = gpu.state().kernels.collective(family, element);
    let kernel = kernel.filter(|_| known);
    kernel.ok_or_else(|| no_kernel(call, element, reduce))
}

#[cold]
fn no_kernel(call: &'static str, element: ElementTypeCode, reduce: ReduceOpCode) -> Failure {
    Failure::new(
        Status::INVALID_ARGUMENT,
        call,
        format!(
            "no kernel reduces {} over elements {} (numbers {} and {}); use a core and a backend of the same \
             release",
            reduce.name(),
            element.name(),
            reduce.0,
            element.0
        ),
    )
}

/// Checks that a grid can be co-resident and has room in the slots, then launches it.
///
/// # Safety
/// The kernel's argument is a `T`; everything that it points to is live until the stream has passed this point.
unsafe fn launch_waiting<G: Gpu, T>(
    gpu: &G,
    call: &WaitingLaunch<'_, G::Kernel>,
    arguments: &T,
    on: RawStream,
) -> CallResult<()> {
    let Geometry {
        blocks: [blocks, y, z],
        threads: [threads, thread_y, thread_z],
        shared_memory,
    } = *call.geometry;
    if [y, z, thread_y, thread_z] != [1; 4] || shared_memory != 0 {
        return Err(call.refuse(format!(
            "a grid of {:?} blocks of {:?} threads with {shared_memory} bytes of dynamic shared memory: \
             collectives take a one-dimensional grid and no dynamic shared memory",
            call.geometry.blocks, call.geometry.threads
        )));
    }
    let (rank, world) = (call.group.rank, call.group.world);
    if rank >= world || world as usize > MAX_RANKS {
        return Err(call.refuse(format!(
            "member {rank} of {world}: a group has 1 to {MAX_RANKS} members, counted from 0"
        )));
    }
    if threads == 0 || !threads.is_multiple_of(G::WARP) {
        return Err(call.refuse(format!(
            "{threads} threads per block: use a positive multiple of the warp size, {}",
            G::WARP
        )));
    }
    let resident = resident_blocks(gpu, call.kernel, threads)?;
    let most = resident.min(call.most);
    if blocks == 0 || blocks > most {
        return Err(call.refuse(format!(
            "{blocks} blocks of {threads} threads: this kernel can have 1 to {most} blocks, since all of \
             them wait for peers at once ({resident} are co-resident on this device)"
        )));
    }
    let grid = Grid {
        shared_memory: call.kernel.shared_memory(threads),
        ..Grid::new(blocks, threads)
    };
    let kernel = match call.group.dependents {
        DependentsCode::NEVER => G::launched_plainly(call.kernel.kernel),
        _ => call.kernel.kernel,
    };
    // SAFETY: the caller upholds this function's safety contract, which is the callee's.
    unsafe { launch(gpu, kernel, grid, arguments, on) }
}

/// Returns the most blocks of `threads` threads of a kernel that are co-resident if nothing else runs.
fn resident_blocks<G: Gpu>(
    gpu: &G,
    kernel: &WaitingKernel<G::Kernel>,
    threads: u32,
) -> CallResult<u32> {
    kernel.resident_blocks(threads, || {
        let _entered = gpu.enter()?;
        // Asks for whole warps, so that the cached answer holds for every thread count that shares its entry.
        let each = gpu.blocks_per_unit(kernel.kernel, threads.next_multiple_of(G::WARP))?;
        Ok(each * gpu.state().description.compute_units)
    })
}

#[cfg(test)]
#[path = "collectives_tests.rs"]
mod tests;
