//! All-gather and all-to-all by copy engines, and the gathering half of an all-reduce whose shares a kernel has
//! reduced. The schedule depends on how devices are linked, which the backend reports as `fanout`.
//!
//! Behind a switch (`fanout` 1) a device has one link to all peers, so copies follow each other, in step with
//! the neighbor: in step `k` rank `r` puts to rank `r + k`. Without steps, a copy engine shares a link with any
//! rank that is late or early there, and both lose half of the bandwidth (137–248 GB/s on 8 GPUs, against
//! 350–372 GB/s in step). So a rank starts step `k + 1` only when rank `r + 1`, which used that link in step
//! `k`, has finished. No compute unit copies to a peer: kernels of one block raise the signals and wait for
//! them.
//!
//! Between two copies a stream spends some 14 microseconds: the end of the copy, the kernel's launch, the
//! signal, the start of the next copy. So a large copy is cut in two parts for two lanes: streams that keep
//! step independently. The cuts put the lanes out of phase, so that one has the link to itself while the other
//! waits. The copy to this rank uses no link, and runs on a third stream beside them.
//!
//! In a mesh (`fanout` above 1) each pair of devices has a link of its own. Copies to `fanout` peers are under
//! way at once, each on a stream of its own, and no rank keeps step with another.

use crate::backend::abi::*;
use crate::backend::{Backend, CallResult, CollectiveKernels, RemoteAccess, Signals};
use crate::base::limits::LANES;
use crate::collectives::plan::{Copy, Shape};
use crate::collectives::run::kernel::geometry;
use crate::group::lanes;
use crate::group::lanes::SideStreams;
use crate::group::slots::{Header, Steps};

/// Threads of a kernel that only waits: one for each member, in whole warps.
const WAITING_THREADS: u32 = 128;
/// Bytes of a part from which forking to other streams pays: a link moves them in a few microseconds.
const WORTH_FORKING: u64 = 1 << 20;
/// Bytes of a kernel's vectors. It copies far more slowly if source and destination lie differently to them.
const VECTOR: u64 = 16;
/// Copies are cut at multiples of this many bytes, so that both parts are aligned as the whole is.
const CUT: u64 = 16;

/// The resources of a collective by copy engines.
#[derive(Clone, Copy)]
pub struct Engine<'a> {
    /// The backend.
    pub backend: &'a Backend,
    /// The channel's words.
    pub steps: Steps<'a>,
    /// The group's part of a kernel's arguments.
    pub header: Header<'a>,
    /// Whether the members are all ranks, in order.
    pub whole: bool,
    /// The caller's stream.
    pub stream: RawStream,
    /// Number of peers to copy to at once so that the links are busy; the same on all members.
    pub fanout: u32,
    /// Blocks and threads of the kernel that copies this rank's own part; without blocks, a copy engine does.
    pub own_grid: [u32; 2],
}

/// Number of streams of a call. The lanes are the same on all members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Streams {
    /// Lanes. In a mesh each lane has its own peers; behind a switch a copy to a peer is cut among all lanes.
    lanes: usize,
    /// Whether the copy to this rank has a stream of its own.
    own: bool,
}

impl Streams {
    /// Returns the streams that a call requests, or that its size justifies if it requests 0.
    fn of(shape: &Shape<'_>, concurrent: u32, fanout: u32) -> Self {
        let worth = (0..shape.world).any(|member| shape.parts.bytes(member) >= WORTH_FORKING);
        let most = lanes::most(fanout, shape.world);
        let (lanes, own) = match concurrent {
            // With one peer there is no next step to hide, and no other peer.
            0 if worth && shape.world > 2 => (most, true),
            0 => (1, worth),
            1 => (1, false),
            wished => (most.min(wished as usize), true),
        };
        // In place there is nothing to copy to this rank.
        let own = own && !shape.in_place;
        Self { lanes, own }
    }
}

impl Engine<'_> {
    /// Submits the copies of `shape`, between two barriers. `concurrent` is
    /// [`crate::CollectiveOptions::concurrent`], 0 if the size decides.
    ///
    /// # Safety
    /// All ranges and the group's memory are live until the stream has passed this point, and every
    /// member submits the same.
    pub unsafe fn submit(
        &self,
        shape: &Shape<'_>,
        concurrent: u32,
        side_streams: Option<&SideStreams>,
    ) -> CallResult<()> {
        // SAFETY: guaranteed by the caller. So below.
        unsafe {
            self.barrier()?;
            self.submit_after_barrier(shape, concurrent, side_streams)
        }
    }

    /// Submits as [`Engine::submit`] does, after a barrier of the members' streams that was just made.
    ///
    /// # Safety
    /// As [`Engine::submit`].
    pub unsafe fn submit_after_barrier(
        &self,
        shape: &Shape<'_>,
        concurrent: u32,
        side_streams: Option<&SideStreams>,
    ) -> CallResult<()> {
        let streams = Streams::of(shape, concurrent, self.fanout);
        let (lanes, own) = match side_streams {
            Some(side_streams) => (
                &side_streams.lanes[..streams.lanes - 1],
                streams.own.then_some(side_streams.own),
            ),
            None => (&[][..], None),
        };
        let (mut forked, mut done) = (0, Ok(()));
        for side in lanes.iter().chain(&own) {
            // SAFETY: side streams live as long as their group; the caller guarantees the other.
            done = unsafe { side.fork(self.backend, self.stream) };
            if done.is_err() {
                break;
            }
            forked += 1;
        }
        if done.is_ok() {
            let mut raw = [self.stream; MAX_RANKS];
            for (lane, side) in raw[1..].iter_mut().zip(lanes) {
                *lane = side.raw();
            }
            let own = own.map_or(self.stream, |side| side.raw());
            // SAFETY: guaranteed by the caller; the side streams were forked above and are joined below.
            done = unsafe { self.copies(shape, &raw[..=lanes.len()], own) };
        }
        for side in lanes.iter().chain(&own).take(forked) {
            // After a failure, too: a capture cannot end while a forked stream is not joined.
            // SAFETY: guaranteed by the caller, as for the fork.
            let joined = unsafe { side.join(self.backend, self.stream) };
            done = done.and(joined);
        }
        done?;
        // SAFETY: guaranteed by the caller.
        unsafe { self.barrier() }
    }

    /// Submits the copies to peers, and the copy to this rank.
    ///
    /// # Safety
    /// As [`Engine::submit`], for all of these streams.
    unsafe fn copies(
        &self,
        shape: &Shape<'_>,
        lanes: &[RawStream],
        own: RawStream,
    ) -> CallResult<()> {
        let peers = shape.world - 1;
        let (mut step, mut done) = (0, Ok(()));
        // All ranks submit in the same order, step by step. So if the device queues streams behind one another,
        // no stream waits for work that is queued behind it on another rank.
        shape.moves(AlgorithmCode::PUSH, 0, |copy| {
            step += 1;
            if done.is_err() {
                return;
            }
            // SAFETY: guaranteed by the caller.
            done = unsafe {
                if step <= peers && self.fanout > 1 {
                    let lane = lanes[(step - 1) % lanes.len()];
                    self.copy(copy, DirectionCode::PUT, lane)
                } else if step <= peers {
                    self.step(copy, step, peers, lanes)
                } else {
                    // The copy to this rank itself comes last.
                    self.copy(copy, DirectionCode::LOCAL, own)
                }
            };
        });
        done
    }

    /// Submits a copy to a peer, then each lane's step to the next.
    ///
    /// # Safety
    /// As [`Engine::copies`].
    unsafe fn step(
        &self,
        copy: Copy,
        step: usize,
        peers: usize,
        lanes: &[RawStream],
    ) -> CallResult<()> {
        for (part, &stream) in cut(copy, step, peers, lanes.len()).into_iter().zip(lanes) {
            // SAFETY: guaranteed by the caller.
            unsafe { self.copy(part, DirectionCode::PUT, stream) }?;
        }
        // After the last copy no rank takes the link over.
        if step == peers {
            return Ok(());
        }
        for (lane, &stream) in lanes.iter().enumerate() {
            let (target, wait) = self.steps.neighbors(lane, self.header.watch);
            // SAFETY: guaranteed by the caller.
            unsafe { self.backend.signal_step(&target, &wait, stream) }?;
        }
        Ok(())
    }

    /// # Safety
    /// As [`Engine::copies`].
    unsafe fn copy(
        &self,
        Copy(destination, source, bytes): Copy,
        direction: DirectionCode,
        stream: RawStream,
    ) -> CallResult<()> {
        if bytes == 0 || destination == source {
            return Ok(());
        }
        let mut transfer = Transfer {
            direction,
            ..Transfer::by_engine(destination, source, bytes)
        };
        let [blocks, threads] = self.own_grid;
        let vectors = destination.0.wrapping_sub(source.0).is_multiple_of(VECTOR);
        if direction == DirectionCode::LOCAL && blocks > 0 && vectors {
            transfer.row.method = MethodCode::VECTOR;
            (transfer.row.blocks, transfer.row.threads) = (blocks, threads);
        }
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.transfer(&transfer, stream) }
    }

    /// Submits a barrier of all members.
    ///
    /// # Safety
    /// The group's memory is live until the stream has passed this point, and every member submits the barrier.
    pub unsafe fn barrier(&self) -> CallResult<()> {
        if self.whole {
            let barrier = self.steps.barrier(self.header.watch);
            // SAFETY: guaranteed by the caller.
            return unsafe { self.backend.barrier(&barrier, self.stream) };
        }
        // The backend's barrier numbers its ranks from 0 in the communicator. Other groups therefore launch a
        // move kernel of zero bytes, whose own barriers they use.
        let mut nothing = MoveArguments {
            group: *self.header.channel,
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            sources: [DeviceAddress::NULL; MAX_RANKS],
            bytes: [0; MAX_RANKS],
            copies: 0,
            concurrent: 1,
        };
        self.header.complete(&mut nothing.group);
        let grid = geometry(1, WAITING_THREADS);
        // SAFETY: guaranteed by the caller.
        unsafe { self.backend.collective_move(&nothing, &grid, self.stream) }
    }
}

/// Returns the parts of a copy that the lanes take in a step. The first lane's part is a quarter in the first
/// step, so that it is half a step ahead from then on, and three quarters in the last.
fn cut(copy: Copy, step: usize, peers: usize, lanes: usize) -> [Copy; LANES] {
    let Copy(destination, source, bytes) = copy;
    let quarters = match (lanes, step) {
        (1, _) => 4,
        (_, 1) if peers > 1 => 1,
        (_, last) if peers > 1 && last == peers => 3,
        _ => 2,
    };
    let first = if quarters == 4 {
        bytes
    } else {
        bytes / 4 / CUT * CUT * quarters
    };
    let at = |address: DeviceAddress| DeviceAddress(address.0 + first);
    [
        Copy(destination, source, first),
        Copy(at(destination), at(source), bytes - first),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::plan::{PartLayout, Range};

    fn copies(bytes: u64, step: usize, peers: usize, lanes: usize) -> [Copy; LANES] {
        let copy = Copy(DeviceAddress(1 << 20), DeviceAddress(3 << 20), bytes);
        cut(copy, step, peers, lanes)
    }

    #[test]
    fn parts_of_a_copy_make_the_whole_and_begin_as_aligned_as_it_does() {
        for bytes in [0, 1, 63, 64, 65, 1000, 4096, (1 << 20) + 7] {
            for (step, peers) in [(1, 1), (1, 3), (2, 3), (3, 3), (1, 2), (2, 2)] {
                let [one, two] = copies(bytes, step, peers, 2);
                assert_eq!(
                    (one.0, one.1),
                    (DeviceAddress(1 << 20), DeviceAddress(3 << 20))
                );
                assert_eq!((two.0.0 - one.0.0, two.1.0 - one.1.0), (one.2, one.2));
                assert_eq!(one.2 + two.2, bytes);
                assert!(one.2.is_multiple_of(CUT), "{bytes} in step {step}");
            }
            assert_eq!(copies(bytes, 1, 3, 1)[0].2, bytes);
        }
    }

    #[test]
    fn the_first_lane_is_half_a_step_ahead_between_the_first_step_and_the_last() {
        let first: Vec<u64> = (1..=3).map(|step| copies(4096, step, 3, 2)[0].2).collect();
        assert_eq!(first, [1024, 2048, 3072]);
        // A single step is cut evenly.
        assert_eq!(copies(4096, 1, 1, 2)[0].2, 2048);
    }

    #[test]
    fn members_go_by_as_many_lanes_whatever_their_own_part_is() {
        let members = [0, 1, 2, 3];
        let place = Range::Symmetric {
            bases: &[],
            members: &members,
            offset: 0,
        };
        let fanned = |world: usize, concurrent, in_place, bytes: [u64; 4], fanout| {
            let counts = bytes.map(|bytes| bytes as usize);
            let parts = PartLayout::Counted {
                counts: &counts[..world],
                element_bytes: 1,
            };
            let alike = (0..world).map(|rank| {
                let shape = Shape {
                    operation: CollectiveOperationCode::ALL_GATHER_V,
                    rank,
                    world,
                    root: 0,
                    destination: place,
                    source: place,
                    in_place,
                    parts,
                };
                Streams::of(&shape, concurrent, fanout)
            });
            let all: Vec<Streams> = alike.collect();
            assert!(all.iter().all(|streams| streams.lanes == all[0].lanes));
            (all[0].lanes, all[0].own)
        };
        let streams =
            |world, concurrent, in_place, bytes| fanned(world, concurrent, in_place, bytes, 1);
        let (small, large) = ([WORTH_FORKING - 1; 4], [WORTH_FORKING, 0, 0, 5]);
        assert_eq!(streams(4, 0, false, small), (1, false));
        assert_eq!(streams(4, 0, false, large), (2, true));
        assert_eq!(streams(4, 0, true, large), (2, false));
        assert_eq!(streams(2, 0, false, large), (1, true));
        assert_eq!(streams(4, 1, false, large), (1, false));
        assert_eq!(streams(4, 2, false, small), (2, true));
        // In a mesh: a lane for each peer, limited by `fanout`.
        assert_eq!(fanned(4, 0, false, large, 7), (3, true));
        assert_eq!(fanned(4, 0, true, large, 2), (2, false));
        assert_eq!(fanned(4, 2, false, small, 7), (2, true));
        assert_eq!(fanned(4, 0, false, small, 7), (1, false));
        assert_eq!(fanned(2, 0, false, large, 7), (1, true));
    }
}
