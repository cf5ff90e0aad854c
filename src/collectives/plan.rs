//! Turns a call into kernel arguments. Pure: addresses in, addresses out.
//!
//! Kernels know no algorithms. A list of copies starts with the rank after this one and goes round, so that at
//! any moment every link carries one copy. A two-shot reduction divides the elements among the ranks.

use crate::backend::abi::*;
use crate::group::inbox;
use crate::group::inbox::{Inboxes, LamportInboxes};
use crate::group::operations::reduces;
use crate::group::slots::Header;

/// Granularity of a reduction's shares in bytes: one access of a thread.
pub const VECTOR: u64 = 16;

/// A range of a call's memory, as far as this rank knows it.
#[derive(Clone, Copy)]
pub enum Range<'a> {
    /// At every member of a group.
    Symmetric {
        /// The allocation at each rank of the communicator.
        bases: &'a [DeviceAddress],
        /// The communicator's number of each member.
        members: &'a [usize],
        /// Offset of the range in the allocation, in bytes.
        offset: u64,
    },
    /// At this rank only.
    Own {
        /// This rank's number in the group.
        member: usize,
        /// The address of its first byte.
        start: DeviceAddress,
    },
}

impl Range<'_> {
    /// Returns the address of a byte of the range at a member; null if only that member knows it.
    pub fn at(&self, member: usize, offset: u64) -> DeviceAddress {
        match *self {
            Self::Symmetric {
                bases,
                members,
                offset: first,
            } => DeviceAddress(bases[members[member]].0 + first + offset),
            Self::Own { member: own, start } if own == member => DeviceAddress(start.0 + offset),
            Self::Own { .. } => DeviceAddress::NULL,
        }
    }
}

/// A call, in bytes. A *part* is the data that one member sends to, or receives from, another.
#[derive(Clone, Copy)]
pub struct Shape<'a> {
    /// The operation.
    pub operation: CollectiveOperationCode,
    /// This rank's number in the group.
    pub rank: usize,
    /// Ranks in the group.
    pub world: usize,
    /// The root; ignored by operations without one.
    pub root: usize,
    /// The destination.
    pub destination: Range<'a>,
    /// The source.
    pub source: Range<'a>,
    /// Whether the smaller range is a part of the larger, or both are the same.
    pub in_place: bool,
    /// Offset and length of each member's part in the larger range. If both ranges have the same length and are
    /// undivided (all-reduce, reduce, broadcast), the whole is part 0, and there is no other.
    pub parts: PartLayout<'a>,
}

/// Offset and bytes of each member's part. A few numbers, not a table: most calls need no more.
#[derive(Clone, Copy, Debug)]
pub enum PartLayout<'a> {
    /// Equal contiguous parts, in bytes.
    Equal(u64),
    /// Equal parts at equal distances: windows of the members' parts of a larger call.
    Strided {
        /// Distance of two parts, in bytes.
        stride: u64,
        /// Bytes of a part.
        bytes: u64,
    },
    /// Contiguous parts with a count for each member.
    Counted {
        /// Elements of each member's part.
        counts: &'a [usize],
        /// Bytes per element.
        element_bytes: u64,
    },
    /// The members' shares of a reduction; see [`share`].
    Shares {
        /// Elements of all shares together.
        count: u64,
        /// Bytes per element.
        element_bytes: u64,
        /// Ranks in the group.
        world: usize,
    },
}

impl PartLayout<'_> {
    /// Returns the offset of a member's part in the range, in bytes.
    pub fn offset(&self, member: usize) -> u64 {
        match *self {
            Self::Equal(bytes) => bytes * member as u64,
            Self::Strided { stride, .. } => stride * member as u64,
            Self::Counted { .. } => (0..member).map(|before| self.bytes(before)).sum(),
            Self::Shares {
                count,
                element_bytes,
                world,
            } => share(count, element_bytes, world, member).0 * element_bytes,
        }
    }

    /// Returns the bytes of a member's part; may be 0.
    pub fn bytes(&self, member: usize) -> u64 {
        match *self {
            Self::Equal(bytes) | Self::Strided { bytes, .. } => bytes,
            Self::Counted {
                counts,
                element_bytes,
            } => counts[member] as u64 * element_bytes,
            Self::Shares {
                count,
                element_bytes,
                world,
            } => share(count, element_bytes, world, member).1 * element_bytes,
        }
    }
}

/// Returns the first element and the number of elements of a member's share of `count`, as even as whole
/// vectors allow.
pub fn share(count: u64, element_bytes: u64, world: usize, member: usize) -> (u64, u64) {
    let granule = (VECTOR / element_bytes).max(1);
    let (granules, world, member) = (count.div_ceil(granule), world as u64, member as u64);
    let start = |member: u64| {
        let granules = granules / world * member + (granules % world).min(member);
        (granules * granule).min(count)
    };
    (start(member), start(member + 1) - start(member))
}

/// Returns the members, starting with the one after `rank`; `rank` comes last.
fn others_first(rank: usize, world: usize) -> impl Iterator<Item = usize> {
    (1..=world).map(move |step| (rank + step) % world)
}

impl Shape<'_> {
    /// Returns the address of `member`'s source part at `member`, in an operation that gathers.
    pub fn gathered_from(&self, member: usize) -> DeviceAddress {
        if self.in_place {
            self.destination.at(member, self.parts.offset(member))
        } else {
            self.source.at(member, 0)
        }
    }

    /// Returns the address of `member`'s destination at `member`, in an operation that scatters.
    pub fn scattered_to(&self, member: usize) -> DeviceAddress {
        if self.in_place {
            self.source.at(member, self.parts.offset(member))
        } else {
            self.destination.at(member, 0)
        }
    }

    /// Calls `copy` for each of this rank's copies (destination, source, bytes); with [`AlgorithmCode::SWAP`], for
    /// the two sides of each of its swaps. `stage` 1 is the second launch of a two-shot broadcast.
    pub fn moves(&self, algorithm: AlgorithmCode, stage: u32, mut copy: impl FnMut(Copy)) {
        let (rank, root, world) = (self.rank, self.root, self.world);
        let (offset, bytes) = (
            |member| self.parts.offset(member),
            |member| self.parts.bytes(member),
        );
        // A member with no elements cannot tell from its own ranges whether the others are in place, so no
        // member may depend on where another's source is: the sender pushes.
        let push = algorithm == AlgorithmCode::PUSH
            || self.operation == CollectiveOperationCode::ALL_GATHER_V
                && (0..world).any(|member| bytes(member) == 0);
        let peers = others_first(rank, world);
        match self.operation {
            CollectiveOperationCode::ALL_GATHER | CollectiveOperationCode::ALL_GATHER_V if push => {
                let from = self.gathered_from(rank);
                let (start, length) = (offset(rank), bytes(rank));
                peers.for_each(|peer| {
                    copy(Copy(self.destination.at(peer, start), from, length));
                });
            }
            CollectiveOperationCode::ALL_GATHER | CollectiveOperationCode::ALL_GATHER_V => {
                peers.for_each(|peer| {
                    let to = self.destination.at(rank, offset(peer));
                    copy(Copy(to, self.gathered_from(peer), bytes(peer)));
                });
            }
            // Swaps a part of this rank with one of the peer. The lower rank swaps the first half of both, the
            // higher rank the second.
            CollectiveOperationCode::ALL_TO_ALL if algorithm == AlgorithmCode::SWAP => {
                peers.filter(|&peer| peer != rank).for_each(|peer| {
                    let (start, length) = share(bytes(0), 1, 2, usize::from(rank > peer));
                    let own = self.destination.at(rank, offset(peer) + start);
                    let theirs = self.destination.at(peer, offset(rank) + start);
                    copy(Copy(own, theirs, length));
                });
            }
            CollectiveOperationCode::ALL_TO_ALL => peers.for_each(|peer| {
                let (reader, writer) = if push { (peer, rank) } else { (rank, peer) };
                let to = self.destination.at(reader, offset(writer));
                copy(Copy(to, self.source.at(writer, offset(reader)), bytes(0)));
            }),
            CollectiveOperationCode::GATHER if push => {
                let to = self.destination.at(root, offset(rank));
                copy(Copy(to, self.gathered_from(rank), bytes(rank)));
            }
            CollectiveOperationCode::GATHER if rank == root => peers.for_each(|peer| {
                let to = self.destination.at(root, offset(peer));
                copy(Copy(to, self.gathered_from(peer), bytes(peer)));
            }),
            CollectiveOperationCode::SCATTER if push && rank == root => peers.for_each(|peer| {
                let from = self.source.at(root, offset(peer));
                copy(Copy(self.scattered_to(peer), from, bytes(peer)));
            }),
            CollectiveOperationCode::SCATTER if !push => {
                let from = self.source.at(root, offset(rank));
                copy(Copy(self.scattered_to(rank), from, bytes(rank)));
            }
            CollectiveOperationCode::BROADCAST if algorithm == AlgorithmCode::TWO_SHOT => {
                let (start, length) = share(bytes(0), 1, world, rank);
                let own = self.destination.at(rank, start);
                if stage == 0 {
                    copy(Copy(own, self.source.at(root, start), length));
                } else {
                    // In place, the root has all of it already.
                    peers
                        .filter(|&peer| peer != rank && !(self.in_place && peer == root))
                        .for_each(|peer| copy(Copy(self.destination.at(peer, start), own, length)));
                }
            }
            CollectiveOperationCode::BROADCAST if push && rank == root => peers.for_each(|peer| {
                let from = self.source.at(root, 0);
                copy(Copy(self.destination.at(peer, 0), from, bytes(0)));
            }),
            CollectiveOperationCode::BROADCAST if !push => {
                let from = self.source.at(root, 0);
                copy(Copy(self.destination.at(rank, 0), from, bytes(0)));
            }
            _ => {}
        }
    }

    /// Returns the arguments of one launch of copies.
    pub fn move_arguments(
        &self,
        header: &Header<'_>,
        algorithm: AlgorithmCode,
        stage: u32,
        concurrent: u32,
    ) -> MoveArguments {
        let mut arguments = MoveArguments {
            group: *header.channel,
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            sources: [DeviceAddress::NULL; MAX_RANKS],
            bytes: [0; MAX_RANKS],
            copies: 0,
            concurrent: 1,
        };
        header.complete(&mut arguments.group);
        self.moves(algorithm, stage, |Copy(to, from, bytes)| {
            let index = arguments.copies as usize;
            arguments.destinations[index] = to;
            arguments.sources[index] = from;
            arguments.bytes[index] = bytes;
            arguments.copies += 1;
        });
        let most = arguments.copies.max(1);
        arguments.concurrent = if concurrent == 0 {
            most
        } else {
            concurrent.min(most)
        };
        arguments
    }

    /// Returns the arguments of a move in LL packets.
    pub fn packet_arguments(&self, header: &Header<'_>) -> PacketArguments {
        let mut arguments = PacketArguments {
            group: *header.channel,
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            send_bytes: [0; MAX_RANKS],
            receive_bytes: [0; MAX_RANKS],
        };
        header.complete(&mut arguments.group);
        let (rank, root) = (self.rank, self.root);
        let (offset, bytes) = (
            |member| self.parts.offset(member),
            |member| self.parts.bytes(member),
        );
        for peer in 0..self.world {
            // Address and bytes of the data sent to the peer, and received from it.
            let none = (DeviceAddress::NULL, 0);
            let (send, receive) = match self.operation {
                CollectiveOperationCode::ALL_TO_ALL => (
                    (self.source.at(rank, offset(peer)), bytes(peer)),
                    (self.destination.at(rank, offset(peer)), bytes(peer)),
                ),
                CollectiveOperationCode::BROADCAST => (
                    choose(rank == root, (self.source.at(rank, 0), bytes(0)), none),
                    choose(peer == root, (self.destination.at(rank, 0), bytes(0)), none),
                ),
                CollectiveOperationCode::SCATTER => (
                    choose(
                        rank == root,
                        (self.source.at(rank, offset(peer)), bytes(peer)),
                        none,
                    ),
                    choose(peer == root, (self.scattered_to(rank), bytes(rank)), none),
                ),
                _ => {
                    let gathers = self.operation == CollectiveOperationCode::GATHER;
                    (
                        choose(
                            !gathers || peer == root,
                            (self.gathered_from(rank), bytes(rank)),
                            none,
                        ),
                        choose(
                            !gathers || rank == root,
                            (self.destination.at(rank, offset(peer)), bytes(peer)),
                            none,
                        ),
                    )
                }
            };
            (arguments.sources[peer], arguments.send_bytes[peer]) = send;
            (arguments.destinations[peer], arguments.receive_bytes[peer]) = receive;
        }
        arguments
    }

    /// Returns the arguments of a move in pieces; `inboxes` is `None` if the backend needs none.
    pub fn piece_arguments(
        &self,
        header: &Header<'_>,
        inboxes: Option<&Inboxes>,
    ) -> PieceArguments {
        let packets = self.packet_arguments(header);
        let whole = self.operation == CollectiveOperationCode::BROADCAST;
        let messages = 0..choose(whole, 1, self.world);
        let longest = messages.map(|member| self.parts.bytes(member)).max();
        let mut arguments = PieceArguments {
            group: packets.group,
            sources: packets.sources,
            destinations: packets.destinations,
            send_bytes: packets.send_bytes,
            receive_bytes: packets.receive_bytes,
            inboxes: [DeviceAddress::NULL; MAX_RANKS],
            longest: longest.unwrap_or(0),
            channel_bytes: 0,
            channels: 0,
            slots: 0,
            piece_bytes: 0,
            // In all other operations a part that arrives is of no other member.
            in_place: (self.in_place && self.operation == CollectiveOperationCode::ALL_TO_ALL)
                .into(),
        };
        if let Some(inboxes) = inboxes {
            inbox::fill_pieces(&mut arguments, inboxes);
        }
        arguments
    }

    /// Returns the arguments of a reduction between barriers.
    pub fn reduce_arguments(
        &self,
        header: &Header<'_>,
        algorithm: AlgorithmCode,
        element: ElementTypeCode,
        reduce: ReduceOpCode,
    ) -> ReduceArguments {
        let mut arguments = ReduceArguments {
            group: *header.channel,
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            count: 0,
            element,
            reduce,
        };
        header.complete(&mut arguments.group);
        let (rank, world) = (self.rank, self.world);
        let size = element.bytes();
        let count = self.parts.bytes(0) / size;
        let scatters = self.operation == CollectiveOperationCode::REDUCE_SCATTER;
        let rooted = self.operation == CollectiveOperationCode::REDUCE;
        // A two-shot reduction, and one that the copy engine completes, reduces a share on each rank.
        let two_shot = algorithm == AlgorithmCode::TWO_SHOT;
        let shared = two_shot || algorithm == AlgorithmCode::COPY_ENGINE;
        let (start, length) = match (scatters, shared) {
            (true, _) => (self.parts.offset(rank) / size, count),
            (_, true) => share(count, size, world, rank),
            (_, false) if rooted && rank != self.root => (0, 0),
            (_, false) => (0, count),
        };
        arguments.count = length;
        for peer in 0..world {
            arguments.sources[peer] = self.source.at(peer, start * size);
            let writes = match (scatters, two_shot) {
                (true, _) | (_, false) => peer == rank,
                (_, true) => !rooted || peer == self.root,
            };
            if writes {
                arguments.destinations[peer] = if scatters {
                    self.scattered_to(rank)
                } else {
                    self.destination.at(peer, start * size)
                };
            }
        }
        arguments
    }

    /// Returns the arguments of a pushed reduction; `inboxes` is `None` if the backend needs none. In pieces, each member
    /// keeps its result, and the root of a reduction reduces all.
    pub fn reduce_push_arguments(
        &self,
        header: &Header<'_>,
        algorithm: AlgorithmCode,
        element: ElementTypeCode,
        reduce: ReduceOpCode,
        inboxes: Option<&Inboxes>,
    ) -> ReducePushArguments {
        let scatters = self.operation == CollectiveOperationCode::REDUCE_SCATTER;
        let keeps = algorithm == AlgorithmCode::PIECES;
        let at_root = keeps && self.operation == CollectiveOperationCode::REDUCE;
        let shares = choose(at_root, AlgorithmCode::ONE_SHOT, AlgorithmCode::TWO_SHOT);
        let mut arguments = ReducePushArguments {
            reduce: self.reduce_arguments(header, shares, element, reduce),
            sources: [DeviceAddress::NULL; MAX_RANKS],
            counts: [0; MAX_RANKS],
            inboxes: [DeviceAddress::NULL; MAX_RANKS],
            channel_bytes: 0,
            channels: 0,
            slots: 0,
            piece_bytes: 0,
            barrier: (!scatters && !keeps).into(),
        };
        let size = element.bytes();
        let count = self.parts.bytes(0) / size;
        for peer in 0..self.world {
            let (start, length) = if scatters {
                (self.parts.offset(peer) / size, count)
            } else if at_root {
                (0, choose(peer == self.root, count, 0))
            } else {
                share(count, size, self.world, peer)
            };
            arguments.sources[peer] = self.source.at(self.rank, start * size);
            arguments.counts[peer] = length;
            if keeps && peer != self.rank {
                arguments.reduce.destinations[peer] = DeviceAddress::NULL;
            }
        }
        if let Some(inboxes) = inboxes {
            inbox::fill(&mut arguments, inboxes);
        }
        arguments
    }

    /// Returns the shape of the all-gather of shares that were reduced in place.
    pub fn gathering(&self, element: ElementTypeCode) -> Self {
        let element_bytes = element.bytes();
        Shape {
            operation: CollectiveOperationCode::ALL_GATHER_V,
            source: self.destination,
            in_place: true,
            parts: PartLayout::Shares {
                count: self.parts.bytes(0) / element_bytes,
                element_bytes,
                world: self.world,
            },
            ..*self
        }
    }

    /// Returns the arguments of a reduction in LL packets.
    pub fn reduce_packet_arguments(
        &self,
        header: &Header<'_>,
        algorithm: AlgorithmCode,
        element: ElementTypeCode,
        reduce: ReduceOpCode,
    ) -> ReducePacketArguments {
        let two_shot = algorithm == AlgorithmCode::PACKETS_TWO_SHOT;
        let mut arguments = ReducePacketArguments {
            group: *header.channel,
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destinations: [DeviceAddress::NULL; MAX_RANKS],
            counts: [0; MAX_RANKS],
            element,
            reduce,
            two_shot: two_shot.into(),
            reserved: 0,
        };
        header.complete(&mut arguments.group);
        let (rank, world, size) = (self.rank, self.world, element.bytes());
        let count = self.parts.bytes(0) / size;
        for peer in 0..world {
            let (start, length) = match self.operation {
                CollectiveOperationCode::REDUCE_SCATTER => (self.parts.offset(peer) / size, count),
                CollectiveOperationCode::REDUCE if peer != self.root => (0, 0),
                _ if two_shot => share(count, size, world, peer),
                _ => (0, count),
            };
            arguments.counts[peer] = length;
            arguments.sources[peer] = self.source.at(rank, start * size);
            if two_shot {
                arguments.destinations[peer] = self.destination.at(rank, start * size);
            }
        }
        if !two_shot {
            arguments.destinations[rank] = match self.operation {
                CollectiveOperationCode::REDUCE_SCATTER => self.scattered_to(rank),
                _ => self.destination.at(rank, 0),
            };
        }
        arguments
    }

    /// Returns the offset and length, in bytes, of each part of a rank's message that one launch carries in Lamport
    /// packets: as many as needed, of the same length, but for the last.
    pub fn lamport_launches(
        &self,
        algorithm: AlgorithmCode,
        inboxes: &LamportInboxes,
    ) -> impl Iterator<Item = (u64, u64)> {
        let bytes = self.parts.bytes(0);
        let part = inboxes.message_bytes(self.world);
        let most = if algorithm == AlgorithmCode::LAMPORT_TWO_SHOT {
            // A part holds a share, and the result of one.
            part / (2 * VECTOR) * VECTOR * self.world as u64
        } else if reduces(self.operation) {
            part
        } else {
            MoveLamportArguments::capacity(part)
        };
        let launches = bytes.div_ceil(most.max(1)).max(1);
        // Whole vectors, and whole elements of every type.
        let length = bytes.div_ceil(launches).next_multiple_of(16).max(16);
        let offsets = (0..bytes.div_ceil(length)).map(move |launch| launch * length);
        offsets.map(move |offset| (offset, length.min(bytes - offset)))
    }

    /// Returns the arguments of a move in Lamport packets of `length` bytes from `offset` on of each message.
    pub fn move_lamport_arguments(
        &self,
        header: &Header<'_>,
        inboxes: &LamportInboxes,
        (offset, length): (u64, u64),
    ) -> MoveLamportArguments {
        let mut packets = self.packet_arguments(header);
        for addresses in [&mut packets.sources, &mut packets.destinations] {
            let present = addresses
                .iter_mut()
                .filter(|address| **address != DeviceAddress::NULL);
            present.for_each(|address| address.0 += offset);
        }
        let root = self.root as u32;
        let (sender, receiver) = match self.operation {
            CollectiveOperationCode::BROADCAST | CollectiveOperationCode::SCATTER => {
                (root, EVERY_MEMBER)
            }
            CollectiveOperationCode::GATHER => (EVERY_MEMBER, root),
            _ => (EVERY_MEMBER, EVERY_MEMBER),
        };
        let mut arguments = MoveLamportArguments {
            group: packets.group,
            inboxes: [DeviceAddress::NULL; MAX_RANKS],
            sources: packets.sources,
            destinations: packets.destinations,
            bytes: length,
            counters: DeviceAddress::NULL,
            part_bytes: 0,
            dependents: header.dependents.into(),
            pair: MoveLamportPair::default(),
            sender,
            receiver,
        };
        inbox::fill_move_lamport(&mut arguments, inboxes);
        arguments.pair = arguments.pair_of();
        arguments
    }

    /// Returns the arguments of a reduction in Lamport packets of `length` bytes from `offset` on of each message.
    pub fn reduce_lamport_arguments(
        &self,
        header: &Header<'_>,
        algorithm: AlgorithmCode,
        element: ElementTypeCode,
        reduce: ReduceOpCode,
        inboxes: &LamportInboxes,
        (offset, length): (u64, u64),
    ) -> ReduceLamportArguments {
        let (rank, scatters) = (
            self.rank,
            self.operation == CollectiveOperationCode::REDUCE_SCATTER,
        );
        let mut arguments = ReduceLamportArguments {
            group: *header.channel,
            inboxes: [DeviceAddress::NULL; MAX_RANKS],
            sources: [DeviceAddress::NULL; MAX_RANKS],
            destination: DeviceAddress(
                choose(
                    scatters,
                    self.scattered_to(rank),
                    self.destination.at(rank, 0),
                )
                .0 + offset,
            ),
            count: length / element.bytes(),
            counters: DeviceAddress::NULL,
            part_bytes: 0,
            element,
            reduce,
            dependents: header.dependents.into(),
            pair: LamportPair::default(),
            share_bytes: match algorithm {
                AlgorithmCode::LAMPORT_TWO_SHOT => {
                    length.div_ceil(self.world as u64).next_multiple_of(VECTOR)
                }
                _ => 0,
            },
            receiver: match self.operation {
                CollectiveOperationCode::REDUCE => self.root as u32,
                _ => EVERY_MEMBER,
            },
            reserved: 0,
        };
        header.complete(&mut arguments.group);
        let share = arguments.share_bytes;
        for peer in 0..self.world {
            let start = choose(scatters, self.parts.offset(peer), share * peer as u64);
            // Of an empty share there is no address.
            if share == 0 || arguments.share_of(peer as u32) != 0 {
                arguments.sources[peer] = self.source.at(rank, start + offset);
            }
        }
        inbox::fill_lamport(&mut arguments, inboxes);
        arguments.pair = arguments.pair_of();
        arguments
    }
}

/// A copy: first byte written, first byte read, bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Copy(pub DeviceAddress, pub DeviceAddress, pub u64);

fn choose<T>(condition: bool, yes: T, no: T) -> T {
    if condition { yes } else { no }
}

#[cfg(test)]
#[path = "plan_tests.rs"]
mod tests;
