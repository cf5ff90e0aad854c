//! Kernel arguments of collectives by NVLS multicast.

use crate::backend::abi::*;
use crate::collectives::plan::{Shape, share};
use crate::group::slots::Header;

/// Multicast addresses of a call's memory; null if multicast is emulated.
#[derive(Clone, Copy, Debug, Default)]
pub struct MulticastAddresses {
    /// The channel's slots.
    pub slots: DeviceAddress,
    /// The destination.
    pub destination: DeviceAddress,
    /// The source.
    pub source: DeviceAddress,
}

/// Adds an offset to a multicast address; null stays null.
fn at(address: DeviceAddress, offset: u64) -> DeviceAddress {
    match address {
        DeviceAddress::NULL => DeviceAddress::NULL,
        address => DeviceAddress(address.0 + offset),
    }
}

/// Returns the arguments of a barrier by multicast, which moves nothing.
pub fn meeting(header: &Header<'_>, slots: DeviceAddress) -> MulticastArguments {
    let mut arguments = MulticastArguments {
        group: *header.channel,
        slots,
        source: DeviceAddress::NULL,
        destination: DeviceAddress::NULL,
        sources: [DeviceAddress::NULL; MAX_RANKS],
        destinations: [DeviceAddress::NULL; MAX_RANKS],
        count: 0,
        element: ElementTypeCode::U8,
        reduce: ReduceOpCode::default(),
        load: MulticastLoad::OWN,
        store: MulticastStore::OWN,
    };
    header.complete(&mut arguments.group);
    arguments
}

impl Shape<'_> {
    /// Returns the arguments of a call by multicast. Bytes that are moved count as elements of
    /// [`ElementTypeCode::U8`].
    pub fn multicast_arguments(
        &self,
        header: &Header<'_>,
        reach: &MulticastAddresses,
        algorithm: AlgorithmCode,
        element: ElementTypeCode,
        reduce: ReduceOpCode,
    ) -> MulticastArguments {
        use CollectiveOperationCode as O;
        let mut arguments = MulticastArguments {
            element,
            reduce,
            ..meeting(header, reach.slots)
        };
        let (rank, world, size) = (self.rank, self.world, element.bytes());
        let whole = self.parts.bytes(0) / size;
        let load_all = |arguments: &mut MulticastArguments, start: u64| {
            arguments.load = MulticastLoad::REDUCED;
            arguments.source = at(reach.source, start);
            for (peer, source) in arguments.sources[..world].iter_mut().enumerate() {
                *source = self.source.at(peer, start);
            }
        };
        let store_all = |arguments: &mut MulticastArguments, start: u64| {
            arguments.store = MulticastStore::ALL;
            arguments.destination = at(reach.destination, start);
            for (peer, destination) in arguments.destinations[..world].iter_mut().enumerate() {
                *destination = self.destination.at(peer, start);
            }
        };
        match self.operation {
            O::ALL_REDUCE if algorithm == AlgorithmCode::MULTICAST_ONE_SHOT => {
                arguments.count = whole;
                load_all(&mut arguments, 0);
                arguments.destinations[rank] = self.destination.at(rank, 0);
            }
            O::ALL_REDUCE => {
                let (start, count) = share(whole, size, world, rank);
                arguments.count = count;
                load_all(&mut arguments, start * size);
                store_all(&mut arguments, start * size);
            }
            O::REDUCE_SCATTER => {
                arguments.count = whole;
                load_all(&mut arguments, self.parts.offset(rank));
                arguments.destinations[rank] = self.scattered_to(rank);
            }
            O::BROADCAST => {
                // Only the root sends.
                arguments.count = if rank == self.root { whole } else { 0 };
                arguments.sources[rank] = self.source.at(rank, 0);
                store_all(&mut arguments, 0);
            }
            _ => {
                arguments.count = self.parts.bytes(rank) / size;
                arguments.sources[rank] = self.gathered_from(rank);
                store_all(&mut arguments, self.parts.offset(rank));
            }
        }
        arguments
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::plan::{PartLayout, Range};
    use crate::group::operations::{multicast_only_by_name, multicast_reduces};

    const GIB: u64 = 1 << 30;
    const WORLD: usize = 4;

    /// Returns the arguments of each member's kernel, for multicast addresses that lie apart from the members'
    /// own.
    fn plan(
        operation: CollectiveOperationCode,
        algorithm: AlgorithmCode,
        parts: PartLayout<'_>,
        in_place: bool,
        emulated: bool,
    ) -> Vec<MulticastArguments> {
        let bases: Vec<_> = (1..=WORLD as u64)
            .map(|rank| DeviceAddress(rank * GIB))
            .collect();
        let members: Vec<usize> = (0..WORLD).collect();
        let channel = CollectiveGroup {
            watch: Watch::default(),
            slots: [DeviceAddress::NULL; MAX_RANKS],
            packet_bytes: 0,
            dependents: DependentsCode::ANSWERED,
            rank: 0,
            world: WORLD as u32,
            slot: 0,
            operation,
            members: [0; MAX_RANKS],
        };
        let header = Header {
            channel: &channel,
            operation,
            watch: Watch::default(),
            dependents: crate::Dependents::default(),
        };
        let there = |address| {
            if emulated {
                DeviceAddress::NULL
            } else {
                DeviceAddress(address)
            }
        };
        let reach = MulticastAddresses {
            slots: there(64 * GIB),
            destination: there(65 * GIB),
            source: there(66 * GIB),
        };
        let place = |offset| Range::Symmetric {
            bases: &bases,
            members: &members,
            offset,
        };
        let shape = |rank| Shape {
            operation,
            rank,
            world: WORLD,
            root: 2,
            destination: place(0),
            source: place(1 << 20),
            in_place,
            parts,
        };
        let element = match operation {
            CollectiveOperationCode::ALL_REDUCE | CollectiveOperationCode::REDUCE_SCATTER => {
                ElementTypeCode::F32
            }
            _ => ElementTypeCode::U8,
        };
        let reduce = ReduceOpCode::SUM;
        (0..WORLD)
            .map(|rank| {
                shape(rank).multicast_arguments(&header, &reach, algorithm, element, reduce)
            })
            .collect()
    }

    /// Returns the first byte and the number of bytes of a member's share.
    fn range(start: u64, arguments: &MulticastArguments) -> (u64, u64) {
        (start, arguments.count * arguments.element.bytes())
    }

    #[test]
    fn in_two_shots_each_rank_reduces_its_share_of_all_and_hands_it_to_all() {
        let all = plan(
            CollectiveOperationCode::ALL_REDUCE,
            AlgorithmCode::MULTICAST,
            PartLayout::Equal(1000),
            false,
            false,
        );
        let mut next = 0;
        for arguments in &all {
            let (start, bytes) = range(arguments.source.0 - 66 * GIB, arguments);
            assert_eq!(start, next);
            assert_eq!(arguments.destination.0 - 65 * GIB, start);
            assert_eq!(arguments.sources[3].0, 4 * GIB + (1 << 20) + start);
            assert_eq!(arguments.destinations[3].0, 4 * GIB + start);
            assert_eq!(
                (arguments.load, arguments.store),
                (MulticastLoad::REDUCED, MulticastStore::ALL)
            );
            next = start + bytes;
        }
        assert_eq!(next, 1000);
    }

    #[test]
    fn in_one_shot_and_in_a_reduce_scatter_each_rank_writes_its_own_memory_only() {
        let one_shot = plan(
            CollectiveOperationCode::ALL_REDUCE,
            AlgorithmCode::MULTICAST_ONE_SHOT,
            PartLayout::Equal(1000),
            false,
            false,
        );
        let scatter = |in_place| {
            plan(
                CollectiveOperationCode::REDUCE_SCATTER,
                AlgorithmCode::MULTICAST,
                PartLayout::Equal(400),
                in_place,
                false,
            )
        };
        for (rank, arguments) in one_shot.iter().enumerate() {
            assert_eq!((arguments.count, arguments.source.0), (250, 66 * GIB));
            assert_eq!(arguments.destinations[rank].0, (rank as u64 + 1) * GIB);
        }
        for (rank, arguments) in scatter(false).iter().enumerate() {
            assert_eq!(
                (arguments.count, arguments.source.0),
                (100, 66 * GIB + 400 * rank as u64)
            );
            assert_eq!(arguments.destinations[rank].0, (rank as u64 + 1) * GIB);
        }
        for (rank, arguments) in scatter(true).iter().enumerate() {
            assert_eq!(arguments.destinations[rank], arguments.sources[rank]);
        }
        for arguments in one_shot.iter().chain(&scatter(false)) {
            assert_eq!(arguments.store, MulticastStore::OWN);
            assert_eq!(arguments.destination, DeviceAddress::NULL);
            let written = arguments.destinations.iter().filter(|to| to.0 != 0);
            assert_eq!(written.count(), 1);
        }
    }

    #[test]
    fn who_has_something_hands_it_to_all_and_nobody_loads_from_a_peer() {
        let gathered = plan(
            CollectiveOperationCode::ALL_GATHER,
            AlgorithmCode::MULTICAST,
            PartLayout::Equal(48),
            false,
            false,
        );
        for (rank, arguments) in gathered.iter().enumerate() {
            assert_eq!(
                (arguments.count, arguments.destination.0),
                (48, 65 * GIB + 48 * rank as u64)
            );
            assert_eq!(
                arguments.sources[rank].0,
                (rank as u64 + 1) * GIB + (1 << 20)
            );
        }
        let counts = PartLayout::Counted {
            counts: &[3, 0, 5, 1],
            element_bytes: 4,
        };
        let counted = plan(
            CollectiveOperationCode::ALL_GATHER_V,
            AlgorithmCode::MULTICAST,
            counts,
            true,
            false,
        );
        let places: Vec<_> = counted
            .iter()
            .map(|one| range(one.destination.0 - 65 * GIB, one))
            .collect();
        assert_eq!(places, [(0, 12), (12, 0), (12, 20), (32, 4)]);
        let broadcast = plan(
            CollectiveOperationCode::BROADCAST,
            AlgorithmCode::MULTICAST,
            PartLayout::Equal(99),
            false,
            false,
        );
        let bytes: Vec<_> = broadcast.iter().map(|one| one.count).collect();
        assert_eq!(bytes, [0, 0, 99, 0]);
        for arguments in gathered.iter().chain(&counted).chain(&broadcast) {
            assert_eq!(
                (arguments.load, arguments.source),
                (MulticastLoad::OWN, DeviceAddress::NULL)
            );
            assert_eq!(arguments.store, MulticastStore::ALL);
        }
    }

    #[test]
    fn without_a_switch_no_address_is_made_up() {
        for operation in [
            CollectiveOperationCode::ALL_REDUCE,
            CollectiveOperationCode::ALL_GATHER,
        ] {
            for arguments in plan(
                operation,
                AlgorithmCode::MULTICAST,
                PartLayout::Equal(64),
                false,
                true,
            ) {
                let addresses = [arguments.slots, arguments.source, arguments.destination];
                assert_eq!(addresses, [DeviceAddress::NULL; 3]);
                assert_ne!(arguments.destinations[1], DeviceAddress::NULL);
            }
        }
    }

    #[test]
    fn what_the_switch_does_not_reduce_as_promised_is_left_to_others() {
        use ElementTypeCode as E;
        use ReduceOpCode as R;
        let all = (E::I8.0..=E::F8_E5M2.0).map(ElementTypeCode);
        let by = |reduce| {
            all.clone()
                .filter(|&element| multicast_reduces(element, reduce))
                .collect::<Vec<_>>()
        };
        let (f8, f8_range) = (E::F8_E4M3, E::F8_E5M2);
        let sums = [
            E::I32,
            E::U32,
            E::U64,
            E::F16,
            E::BF16,
            E::F32,
            E::F64,
            f8,
            f8_range,
        ];
        assert_eq!(by(R::SUM), sums);
        assert_eq!(by(R::AVERAGE), sums);
        assert_eq!(by(R::MINIMUM), [E::I32, E::U32, E::I64, E::U64]);
        assert_eq!(by(R::MAXIMUM), by(R::MINIMUM));
        assert_eq!(by(R::PRODUCT), []);
        let named: Vec<_> = all
            .filter(|&element| multicast_only_by_name(element))
            .collect();
        assert_eq!(named, [f8, f8_range]);
    }
}
