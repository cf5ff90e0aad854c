//! Collectives: their results, and the grids that the fake refuses.

use symmem_core::backend::abi::{
    CollectiveGroup, CollectiveOperationCode, DependentsCode, DeviceAddress, ElementTypeCode,
    MAX_RANKS, PACKET_BLOCKS, ReduceArguments, ReduceOpCode, ReducePacketArguments, SLOT_BLOCKS,
    SLOT_BYTES, Watch,
};
use symmem_fake_cuda::contexts::cuCtxSynchronize;
use symmem_fake_cuda::modules::cuFuncLoad;
use symmem_fake_cuda::streams::cuStreamSynchronize;

use crate::kernels::launch;
use crate::support::*;

const PACKET_BYTES: u32 = 256;
const SLOTS: usize =
    (SLOT_BLOCKS as u64 * SLOT_BYTES + PACKET_BLOCKS as u64 * PACKET_BYTES as u64) as usize;

fn group(slots: &[u64], rank: u32) -> CollectiveGroup {
    let mut addresses = [DeviceAddress::NULL; MAX_RANKS];
    for (address, slots) in addresses.iter_mut().zip(slots) {
        *address = DeviceAddress(*slots);
    }
    CollectiveGroup {
        watch: Watch {
            deadline_ns: 60_000_000_000,
            rank,
            ..Default::default()
        },
        slots: addresses,
        packet_bytes: PACKET_BYTES,
        dependents: DependentsCode::ANSWERED,
        rank,
        world: slots.len() as u32,
        slot: 0,
        operation: CollectiveOperationCode::ALL_REDUCE,
        members: std::array::from_fn(|member| member as u8),
    }
}

fn zeroed(bytes: usize) -> u64 {
    let address = device_memory(bytes);
    write(address, &vec![0; bytes]);
    address
}

/// Returns the arguments of rank `rank`, which reduces both ranks' floats into its own result.
fn reduction(slots: &[u64], rank: u32, data: u64) -> ReduceArguments {
    let none = [DeviceAddress::NULL; MAX_RANKS];
    let (mut sources, mut destinations) = (none, none);
    for member in 0..slots.len() as u64 {
        sources[member as usize] = DeviceAddress(data + 64 * member);
    }
    destinations[rank as usize] = DeviceAddress(data + 512 + 64 * u64::from(rank));
    ReduceArguments {
        group: group(slots, rank),
        sources,
        destinations,
        count: 3,
        element: ElementTypeCode::F32,
        reduce: ReduceOpCode::SUM,
    }
}

fn floats(values: [f32; 3]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

#[test]
fn a_reduction_waits_for_its_members_and_has_their_sum() {
    alone(&[("FAKE_DEVICE_COUNT", "1")], || {
        context(0);
        let (slots, data) = ([zeroed(SLOTS), zeroed(SLOTS)], zeroed(1024));
        write(data, &floats([1.0, 2.0, 3.0]));
        write(data + 64, &floats([10.0, 20.0, 30.0]));
        let (_, function) = kernel("symmem_reduce_f32", size_of::<ReduceArguments>());
        ok(cuFuncLoad(function));
        let streams = [stream(), stream()];
        for _ in 0..3 {
            for (rank, stream) in (0..).zip(streams) {
                let arguments = reduction(&slots, rank, data);
                ok(launch(function, 4, 128, 0, stream, &arguments));
            }
            for (rank, stream) in (0..).zip(streams) {
                ok(cuStreamSynchronize(stream));
                let sum = floats([11.0, 22.0, 33.0]);
                assert_eq!(read(data + 512 + 64 * rank, 12), sum);
                write(data + 512 + 64 * rank, &[0; 12]);
            }
        }
        clean();
    });
}

#[test]
fn a_grid_without_slots_and_elements_of_another_type_are_violations() {
    alone(&[("FAKE_DEVICE_COUNT", "1")], || {
        context(0);
        let (slots, data) = ([zeroed(SLOTS)], zeroed(1024));
        let (_, function) = kernel("symmem_reduce_f32", size_of::<ReduceArguments>());
        let good = reduction(&slots, 0, data);
        ok(launch(function, SLOT_BLOCKS, 128, 0, 0, &good));
        ok(cuCtxSynchronize());
        clean();
        ok(launch(function, SLOT_BLOCKS + 1, 128, 0, 0, &good));
        ok(cuCtxSynchronize());
        violated("has slots for 320 blocks");
        let element = ElementTypeCode::I32;
        ok(launch(
            function,
            1,
            128,
            0,
            0,
            &ReduceArguments { element, ..good },
        ));
        ok(cuCtxSynchronize());
        violated("is given elements of I32");
        let (_, packets) = kernel(
            "symmem_reduce_packets_f32",
            size_of::<ReducePacketArguments>(),
        );
        let arguments = ReducePacketArguments {
            group: good.group,
            sources: good.sources,
            destinations: good.destinations,
            counts: [0; MAX_RANKS],
            element: ElementTypeCode::F32,
            reduce: ReduceOpCode::SUM,
            two_shot: 0,
            reserved: 0,
        };
        ok(launch(packets, PACKET_BLOCKS + 1, 128, 0, 0, &arguments));
        ok(cuCtxSynchronize());
        violated("has slots for 64 blocks");
    });
}

#[test]
fn memory_that_a_collective_names_must_be_there() {
    alone(&[("FAKE_DEVICE_COUNT", "1")], || {
        context(0);
        let (slots, data) = ([zeroed(SLOTS)], zeroed(1024));
        let (_, function) = kernel("symmem_reduce_f32", size_of::<ReduceArguments>());
        let long = ReduceArguments {
            count: 1024,
            ..reduction(&slots, 0, data)
        };
        ok(launch(function, 1, 128, 0, 0, &long));
        assert_ne!(cuCtxSynchronize(), 0);
        violated("4096 bytes");
    });
}
