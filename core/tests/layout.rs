//! Snapshots of the layout of every struct that crosses the plugin table. A changed line breaks plugins that are
//! already built. Structs that state their size may grow at their end, and tables by entries at theirs.

use std::fmt::Write;
use symmem_core::backend::abi::*;
use symmem_core::backend::{
    BackendTable, CollectivesTable, DeviceTable, GemmTable, MulticastTable, NcclCollectivesTable,
    RemoteAccessTable, SignalsTable, SymmetricMemoryTable,
};

macro_rules! layouts {
    ($($type:ident { $($field:ident),* $(,)? })*) => {{
        let mut text = String::new();
        $(
            // Names every field: a new field does not compile until it is listed here.
            let _ = |value: &$type| {
                let $type { $($field: _),* } = value;
            };
            let (size, align) = (size_of::<$type>(), align_of::<$type>());
            writeln!(text, "{} size {size} align {align}", stringify!($type)).unwrap();
            $(
                let offset = std::mem::offset_of!($type, $field);
                writeln!(text, "  {offset:5} {}", stringify!($field)).unwrap();
            )*
        )*
        text
    }};
}

#[test]
fn every_struct_of_the_boundary_has_the_layout_that_was_released() {
    let text = layouts! {
        FailureRecord { status, vendor_code, call, message }
        DeviceDescription {
            ordinal, compute_units, architecture, partition, memory_bytes, uuid, name, bus
        }
        TransferRow { bytes, method, blocks, threads, stages, stage_bytes, reserved }
        Capabilities {
            flags, share_kinds, share_granularity, shared_memory_per_block, fanout, put_rows,
            get_rows, driver_version, reduce_inbox_bytes
        }
        MemoryInformation { free, total }
        HostMemory { host, device, bytes }
        SharedAllocation { handle, address, bytes }
        ExportedHandle { kind, device, offset, bytes, address, opaque, descriptor, reserved }
        SharedMapping { handle, address }
        ByteSlice { first, length }
        Geometry { blocks, threads, shared_memory }
        Transfer { destination, source, bytes, signal, direction, row }
        SignalTarget { word, epoch, arrivals, value, reserved }
        Watch { abort, record, aborted, deadline_ns, rank, reserved }
        SignalWait { word, epoch, watch, value, peer, slot, reserved }
        StepArguments { target, wait }
        Barrier { watch, epoch, own, peers, world, slot }
        TransferArguments { destination, source, bytes, signal, stages, stage_bytes }
        LatencyArguments { local, remote, bytes, result, watch, rounds, base, first, peer }
        CollectiveGroup {
            watch, slots, packet_bytes, dependents, rank, world, slot, operation, members
        }
        MoveArguments { group, destinations, sources, bytes, copies, concurrent }
        PacketArguments { group, sources, destinations, send_bytes, receive_bytes }
        ReduceArguments { group, sources, destinations, count, element, reduce }
        ReducePushArguments {
            reduce, sources, counts, inboxes, channel_bytes, channels, slots, piece_bytes, barrier
        }
        PieceArguments {
            group, sources, destinations, send_bytes, receive_bytes, inboxes, longest,
            channel_bytes, channels, slots, piece_bytes, in_place
        }
        ReducePacketArguments {
            group, sources, destinations, counts, element, reduce, two_shot, reserved
        }
        ReduceLamportArguments {
            group, inboxes, sources, destination, count, counters, part_bytes, element, reduce,
            dependents, pair, share_bytes, receiver, reserved
        }
        LamportPair { source, sent, inbox, peer_inbox }
        ReduceNormArguments {
            reduce, residual, residual_out, weight, bias, scales, hidden, rows, epsilon,
            weight_offset, norm, quantization, share_rows, owner_rows
        }
        MoveLamportArguments {
            group, inboxes, sources, destinations, bytes, counters, part_bytes, dependents, pair,
            sender, receiver
        }
        MoveLamportPair { sent, arriving, own_source, own_destination, inbox, peer_inbox }
        MulticastArguments {
            group, slots, source, destination, sources, destinations, count, element, reduce, load,
            store
        }
        ExchangeArguments {
            group, send_tokens, send_bytes, destinations, receive_bytes, table, table_ranks,
            blocks_per_peer, staging, chunk_bytes, reserved
        }
        WordOperation { word, result, operand, compare, update, bits }
        WordWait { words, stride, value, index, watch, count, condition, any, bits }
        Handle {
            size, version, watch, bases, signals, given, waited, arrivals, departures, bytes, rank,
            world, channel, reserved
        }
        WaitRecord { state, kind, rank, peer, slot, expected, seen, reason, elapsed_ns }
        CollectiveRow { operation, world, bytes, algorithm, blocks, threads, concurrent }
        LibraryDescription { name, file, version, flags }
        NcclUniqueId { bytes }
        NcclCall { source, destination, count, operation, element, reduce, peer }
        RowsCopy { destination, destination_stride, source, source_stride, bytes, rows, direction, reserved }
        GemmLayout { m, n, k, a_stride, b_stride, c_stride, element, b_order, bias, addend }
        GemmOperands { a, b, c, bias, addend, scale }
        GatheredLimits {
            blocks, threads, tile_m, tile_n, chunk_alignment, movers, modes, alignment,
            at_once_blocks, reserved, partial_bytes
        }
        GatheredGemmArguments {
            group, sources, gathered, arrivals, epoch, b, c, bias, shape, shard, chunk, chunks,
            sharding, mode, movers, keep, tile, partials, partial_bytes, quota, reserved,
            scale
        }
        ReducedProblem { shard, world, mode, all, partial }
        ReducedLimits {
            blocks, threads, tile_m, tile_n, alignment, layout, inbox_bytes, word_bytes
        }
        ReducedGemmArguments {
            group, inboxes, words, results, a, b, c, bias, shape, shard, mode, all, partial,
            quota
        }
        HostServices { size, reserved, log }
        OpenOptions { size, ordinal, rank, local_world, services }
        BackendTable {
            magic, abi_major, abi_minor, size, reserved, name, build, device_count,
            describe_device, describe_libraries, open, close, last_failure, device,
            symmetric_memory, remote_access, signals, collectives, nccl_collectives, gemm,
            multicast, selector_row
        }
        DeviceTable {
            size, capabilities, description, memory_information, stream_create, stream_destroy,
            stream_idle, stream_wait_event, stream_capturing, event_create, event_destroy,
            event_record, event_done, event_elapsed, capture_begin, capture_end,
            graph_instantiate, graph_launch, graph_destroy, host_allocate, host_free,
            host_register, host_unregister, memory_set, module_load, module_unload,
            module_function, function_parameter_bytes, builtin_function, launch, check_memory,
            stream_create_urgent
        }
        SymmetricMemoryTable {
            size, allocate, allocate_signals, register, free, export, import, unmap
        }
        RemoteAccessTable { size, transfer, transfer_rows }
        SignalsTable { size, signal_give, signal_wait, signal_step, word_update, word_wait }
        CollectivesTable {
            size, barrier, collective_row, resident_blocks, collective_move, collective_swap,
            collective_packets, collective_reduce, collective_reduce_push,
            collective_reduce_packets, collective_multicast, collective_exchange,
            collective_reduce_lamport, collective_pieces, collective_move_lamport, collective_reduce_norm
        }
        NcclCollectivesTable {
            size, nccl_description, nccl_unique_id, nccl_create, nccl_ready, nccl_group,
            nccl_call, nccl_register, nccl_deregister, nccl_abort, nccl_destroy
        }
        GemmTable {
            size, gemm_library, gemm_prepare, gemm_candidates, gemm, gemm_release,
            gathered_gemm_limits, gathered_gemm, gathered_arrive, reduced_gemm_limits,
            reduced_gemm, gathered_gemm_tile
        }
        MulticastTable {
            size, multicast_support, multicast_granularity, multicast_create, multicast_export,
            multicast_import, multicast_join, multicast_bind, multicast_map, multicast_unmap,
            multicast_unbind, multicast_release
        }
    };
    insta::assert_snapshot!("layout", text);
}

#[test]
fn every_entry_takes_and_gives_what_was_released() {
    let mut text = String::new();
    let tables = [
        ("Device", DeviceTable::ENTRIES),
        ("SymmetricMemory", SymmetricMemoryTable::ENTRIES),
        ("RemoteAccess", RemoteAccessTable::ENTRIES),
        ("Signals", SignalsTable::ENTRIES),
        ("Collectives", CollectivesTable::ENTRIES),
        ("NcclCollectives", NcclCollectivesTable::ENTRIES),
        ("Gemm", GemmTable::ENTRIES),
        ("Multicast", MulticastTable::ENTRIES),
    ];
    for (name, entries) in tables {
        writeln!(text, "{name}").unwrap();
        for entry in entries {
            writeln!(text, "  {entry}").unwrap();
        }
    }
    insta::assert_snapshot!("entries", text);
}

#[test]
fn every_number_of_the_boundary_is_the_one_that_was_released() {
    let mut text = String::new();
    let mut names = |kind: &str, name_of: &dyn Fn(u32) -> &'static str| {
        let known: Vec<String> = (0..32)
            .map(|number| (number, name_of(number)))
            .filter(|(_, name)| *name != "unknown")
            .map(|(number, name)| format!("{number} {name}"))
            .collect();
        writeln!(text, "{kind}: {}", known.join(", ")).unwrap();
    };
    names("Status", &|number| Status(number).name());
    names("ShareKind", &|number| ShareKindCode(number).name());
    names("Method", &|number| MethodCode(number).name());
    names("Direction", &|number| DirectionCode(number).name());
    names("SignalPlacement", &|number| {
        SignalPlacementCode(number).name()
    });
    names("ElementType", &|number| ElementTypeCode(number).name());
    names("ReduceOperation", &|number| ReduceOpCode(number).name());
    names("CollectiveOperation", &|number| {
        CollectiveOperationCode(number).name()
    });
    names("Algorithm", &|number| AlgorithmCode(number).name());
    names("CollectiveKernel", &|number| {
        CollectiveKernel(number).name()
    });
    names("Dependents", &|number| DependentsCode(number).name());
    names("Norm", &|number| NormCode(number).name());
    names("Quantization", &|number| QuantizationCode(number).name());
    names("MulticastSupport", &|number| {
        MulticastSupportCode(number).name()
    });
    names("MulticastLoad", &|number| MulticastLoad(number).name());
    names("MulticastStore", &|number| MulticastStore(number).name());
    names("WordUpdate", &|number| WordUpdate(number).name());
    names("Condition", &|number| ConditionCode(number).name());
    names("MatrixOrder", &|number| MatrixOrderCode(number).name());
    names("Sharding", &|number| ShardingCode(number).name());
    names("GatherMode", &|number| GatherMode(number).name());
    let flags = [
        CAPABILITY_BULK,
        CAPABILITY_GRAPHS,
        CAPABILITY_STREAM_WAIT,
        CAPABILITY_MULTICAST_HARDWARE,
        CAPABILITY_COPY_ENGINE,
        CAPABILITY_LAUNCH,
    ];
    writeln!(text, "flags: {flags:?}").unwrap();
    writeln!(text, "ranks: {MAX_RANKS}, stride: {SIGNAL_STRIDE}").unwrap();
    writeln!(
        text,
        "slots: {SLOT_BLOCKS} of {SLOT_BYTES}, packets: {PACKET_BLOCKS}"
    )
    .unwrap();
    let offsets = [SLOT_COUNTERS, SLOT_WORDS, SLOT_RECEIVED, SLOT_ANNOUNCEMENTS];
    writeln!(text, "in a slot: {offsets:?}").unwrap();
    insta::assert_snapshot!("numbers", text);
}
