//! Modules, launches, and the effects of symmem's kernels.

use std::ffi::c_void;

use symmem_core::backend::abi::{
    Barrier, DeviceAddress, LatencyArguments, MAX_RANKS, SIGNAL_STRIDE, SignalTarget, SignalWait,
    TransferArguments, WaitRecord, Watch,
};
use symmem_fake_cuda::allocations::*;
use symmem_fake_cuda::contexts::*;
use symmem_fake_cuda::launch::*;
use symmem_fake_cuda::modules::*;
use symmem_fake_cuda::report;
use symmem_fake_cuda::streams::*;

use crate::support::*;

const SECOND: u64 = 1_000_000_000;

/// Launches a kernel with its argument passed by pointer.
pub fn launch<T>(
    function: u64,
    blocks: u32,
    threads: u32,
    shared: u32,
    stream: u64,
    argument: &T,
) -> i32 {
    let parameters = [std::ptr::from_ref(argument).cast::<u8>()];
    // SAFETY: there is one parameter, of the type that the kernel takes.
    unsafe {
        cuLaunchKernel(
            function,
            blocks,
            1,
            1,
            threads,
            1,
            1,
            shared,
            stream,
            parameters.as_ptr(),
            std::ptr::null(),
        )
    }
}

fn address(address: u64) -> DeviceAddress {
    DeviceAddress(address)
}

#[test]
fn a_copy_moves_bytes_and_then_signals() {
    alone(&[], || {
        context(0);
        let (from, to, words) = (device_memory(100), device_memory(100), device_memory(256));
        write(from, b"some bytes");
        let signal = SignalTarget {
            word: address(words),
            epoch: address(words + 4),
            arrivals: address(words + 8),
            ..Default::default()
        };
        let transfer = TransferArguments {
            destination: DeviceAddress(to + 3),
            source: DeviceAddress(from),
            bytes: 10,
            signal,
            ..Default::default()
        };
        let (_, function) = kernel("symmem_copy_vector", size_of::<TransferArguments>());
        for epoch in 1..3 {
            ok(launch(function, 4, 128, 0, 0, &transfer));
            assert_eq!(read(to, 14), b"\0\0\0some bytes\0");
            assert_eq!((read_word(words), read_word(words + 4)), (epoch, epoch));
        }
        clean();
    });
}

/// Launches a kernel of one block with its arguments in a buffer.
fn launch_buffer(function: u64, buffer: &[u8]) -> i32 {
    let size = buffer.len();
    let extra: [*const c_void; 5] = [
        std::ptr::without_provenance(1),
        buffer.as_ptr().cast(),
        std::ptr::without_provenance(2),
        (&raw const size).cast(),
        std::ptr::null(),
    ];
    let (parameters, extra) = (std::ptr::null(), extra.as_ptr());
    // SAFETY: the list has the buffer, its size and the end marker.
    unsafe { cuLaunchKernel(function, 1, 1, 1, 32, 1, 1, 0, 0, parameters, extra) }
}

#[test]
fn arguments_come_in_a_buffer_too() {
    alone(&[], || {
        context(0);
        let memory = device_memory(32);
        let (_, function) = kernel("symmem_test_fill", 20);
        let mut buffer = [0u8; 20];
        buffer[..8].copy_from_slice(&memory.to_ne_bytes());
        buffer[8..16].copy_from_slice(&8u64.to_ne_bytes());
        buffer[16..].copy_from_slice(&9u32.to_ne_bytes());
        ok(launch_buffer(function, &buffer));
        assert_eq!(read_word(memory + 28), 9);
        clean();
    });
}

/// What LLVM's offloading found of the driver: <https://github.com/llvm/llvm-project/pull/172249>.
#[test]
fn padding_behind_the_arguments_in_a_buffer_is_more_than_a_launch_has_resources_for() {
    alone(&[], || {
        context(0);
        let (_, function) = kernel("symmem_test_fill", 20);
        assert_eq!(launch_buffer(function, &[0; 24]), 701);
        violated("takes 20 bytes of arguments, not 24");
        assert_eq!(launch_buffer(function, &[0; 16]), 1);
        violated("takes 20 bytes of arguments, not 16");
    });
}

#[test]
fn a_function_tells_offset_and_size_of_each_parameter() {
    alone(&[], || {
        context(0);
        let (mut module, mut function) = (0, 0);
        let code = c".version 8.0\n.target sm_80\n.address_size 64\n\
            .visible .entry go(.param .u64 a, .param .u32 b, .param .u16 c) { ret; }\n";
        // SAFETY: the text and the name are zero-terminated.
        unsafe {
            ok(cuModuleLoadData(Some(&mut module), code.as_ptr().cast()));
            ok(cuModuleGetFunction(
                Some(&mut function),
                module,
                c"go".as_ptr(),
            ));
        }
        for (index, expected) in [(0, 8), (8, 4), (12, 2)].into_iter().enumerate() {
            let (mut offset, mut size) = (0, 0);
            let found = cuFuncGetParamInfo(function, index, Some(&mut offset), Some(&mut size));
            ok(found);
            assert_eq!((offset, size), expected);
        }
        let mut offset = 0;
        assert_eq!(cuFuncGetParamInfo(function, 3, Some(&mut offset), None), 1);
        clean();
    });
}

#[test]
fn a_bulk_copy_has_its_alignment_and_shared_memory() {
    alone(&[], || {
        context(0);
        let (from, to) = (device_memory(4096), device_memory(4096));
        let (_, function) = kernel("symmem_copy_bulk", size_of::<TransferArguments>());
        let good = TransferArguments {
            destination: DeviceAddress(to + 3),
            source: DeviceAddress(from + 19),
            bytes: 1000,
            stages: 4,
            stage_bytes: 16384,
            ..Default::default()
        };
        assert_eq!(launch(function, 1, 128, 65536, 0, &good), 1);
        violated("more than the 49152 opted in to");
        assert_eq!(cuFuncSetAttribute(function, 8, (227 << 10) + 1), 1);
        ok(cuFuncSetAttribute(function, 8, 227 << 10));
        ok(launch(function, 1, 128, 65536, 0, &good));
        ok(cuCtxSynchronize());
        clean();
        ok(launch(
            function,
            1,
            128,
            65536,
            0,
            &TransferArguments {
                source: DeviceAddress(from),
                ..good
            },
        ));
        ok(cuCtxSynchronize());
        violated("which differ modulo 16");
        ok(launch(function, 1, 128, 1024, 0, &good));
        ok(cuCtxSynchronize());
        violated("in 1024 of shared memory");
    });
}

#[test]
fn a_wait_ends_with_the_signal_the_deadline_or_the_abort() {
    alone(&[], || {
        context(0);
        let (word, abort, record) = (device_memory(4), host_memory(4), host_memory(64));
        let (waiter, giver) = (stream(), stream());
        let (_, wait) = kernel("symmem_wait", size_of::<SignalWait>());
        let (_, signal) = kernel("symmem_signal", size_of::<SignalTarget>());
        ok(cuFuncLoad(wait));
        ok(cuFuncLoad(signal));
        let watch = Watch {
            abort: address(abort),
            record: address(record),
            deadline_ns: 60 * SECOND,
            rank: 3,
            ..Default::default()
        };
        let mut arguments = SignalWait {
            word: address(word),
            watch,
            value: 1,
            peer: 5,
            slot: 7,
            ..Default::default()
        };
        ok(launch(wait, 1, 32, 0, waiter, &arguments));
        assert_eq!(cuStreamQuery(waiter), 600);
        let target = SignalTarget {
            word: address(word),
            value: 1,
            ..Default::default()
        };
        ok(launch(signal, 1, 32, 0, giver, &target));
        ok(cuStreamSynchronize(waiter));
        // SAFETY: the record is pinned host memory of that type, and no kernel runs.
        let read_record = || unsafe { (record as *const WaitRecord).read_volatile() };
        assert_eq!(read_record(), WaitRecord::default());
        arguments.value = 2;
        arguments.watch.deadline_ns = 1_000_000;
        ok(launch(wait, 1, 32, 0, waiter, &arguments));
        ok(cuStreamSynchronize(waiter));
        let late = WaitRecord {
            state: 2,
            kind: 1,
            rank: 3,
            peer: 5,
            slot: 7,
            expected: 2,
            seen: 1,
            reason: 1,
            elapsed_ns: read_record().elapsed_ns,
        };
        assert!(late.elapsed_ns >= 1_000_000);
        assert_eq!(read_record(), late);
        arguments.watch.deadline_ns = 60 * SECOND;
        ok(launch(wait, 1, 32, 0, waiter, &arguments));
        // SAFETY: the word is live pinned memory, which the host may write.
        unsafe { (abort as *mut u32).write_volatile(1) };
        ok(cuStreamSynchronize(waiter));
        assert_eq!(
            read_record(),
            late,
            "only the first that gives up is recorded"
        );
        clean();
    });
}

#[test]
fn a_barrier_holds_until_everyone_is_there() {
    alone(&[("FAKE_DEVICE_COUNT", "1")], || {
        context(0);
        let world = 4u32;
        let memory = device_memory(world as usize * 4096);
        let (abort, (_, function)) = (
            host_memory(4),
            kernel("symmem_barrier", size_of::<Barrier>()),
        );
        ok(cuFuncLoad(function));
        let base = |rank: u64| memory + rank * 4096;
        let streams: Vec<u64> = (0..world).map(|_| stream()).collect();
        let enter = |rank: u32| {
            let mut peers = [DeviceAddress::NULL; MAX_RANKS];
            for peer in 0..world {
                peers[peer as usize] = address(base(peer.into()) + u64::from(rank) * SIGNAL_STRIDE);
            }
            let barrier = Barrier {
                watch: Watch {
                    abort: address(abort),
                    deadline_ns: 60 * SECOND,
                    rank,
                    ..Default::default()
                },
                epoch: address(base(rank.into()) + 2048),
                own: address(base(rank.into())),
                peers,
                world,
                slot: 0,
            };
            ok(launch(
                function,
                1,
                128,
                0,
                streams[rank as usize],
                &barrier,
            ));
        };
        for _ in 0..3 {
            (1..world).for_each(enter);
            assert_eq!(cuStreamQuery(streams[1]), 600);
            enter(0);
            streams
                .iter()
                .for_each(|stream| ok(cuStreamSynchronize(*stream)));
        }
        clean();
    });
}

#[test]
fn ping_pong_is_timed() {
    alone(&[], || {
        context(0);
        let (one, two, result) = (device_memory(256), device_memory(256), device_memory(16));
        for name in ["symmem_latency_packet", "symmem_latency_signal"] {
            symmem_fake_cuda::copies::cuMemsetD8_v2(one, 0, 256);
            symmem_fake_cuda::copies::cuMemsetD8_v2(two, 0, 256);
            let (_, function) = kernel(name, size_of::<LatencyArguments>());
            ok(cuFuncLoad(function));
            let watch = Watch {
                deadline_ns: 60 * SECOND,
                ..Default::default()
            };
            let side = |local, remote, first, result| LatencyArguments {
                local: DeviceAddress(local),
                remote: DeviceAddress(remote),
                bytes: 64,
                result: DeviceAddress(result),
                watch,
                rounds: 20,
                base: 0,
                first,
                peer: 1 - first,
            };
            ok(launch(
                function,
                1,
                32,
                0,
                stream(),
                &side(one, two, 1, result),
            ));
            ok(launch(
                function,
                1,
                32,
                0,
                stream(),
                &side(two, one, 0, result + 8),
            ));
            ok(cuCtxSynchronize());
            assert!(read_word(result) > 0);
        }
        clean();
    });
}

#[test]
fn a_kernel_that_goes_astray_takes_its_context_with_it() {
    alone(&[], || {
        context(0);
        let memory = device_memory(64);
        let (_, function) = kernel("symmem_copy_vector", size_of::<TransferArguments>());
        let astray = TransferArguments {
            destination: DeviceAddress(memory),
            source: DeviceAddress(memory + 32),
            bytes: 40,
            ..Default::default()
        };
        ok(launch(function, 1, 32, 0, 0, &astray));
        assert_eq!(cuCtxSynchronize(), 700);
        violated("runs out of its memory after 32 bytes");
        assert_eq!(cuMemFree_v2(memory), 700, "every later call fails with it");
        assert_eq!(launch(function, 1, 32, 0, 0, &astray), 700);
        ok(cuDevicePrimaryCtxRelease_v2(0));
        context(0);
        ok(cuMemFree_v2(device_memory(4)));
        clean();
    });
}

#[test]
fn a_peers_memory_needs_peer_access() {
    alone(&[], || {
        let other = context(1);
        let theirs = device_memory(16);
        context(0);
        let (_, function) = kernel("symmem_copy_vector", size_of::<TransferArguments>());
        let ours = device_memory(16);
        let put = TransferArguments {
            destination: DeviceAddress(theirs),
            source: DeviceAddress(ours),
            bytes: 16,
            ..Default::default()
        };
        ok(cuCtxEnablePeerAccess(other, 0));
        assert_eq!(cuCtxEnablePeerAccess(other, 0), 704);
        ok(launch(function, 1, 32, 0, 0, &put));
        ok(cuCtxSynchronize());
        clean();
        ok(cuCtxDisablePeerAccess(other));
        ok(launch(function, 1, 32, 0, 0, &put));
        assert_eq!(cuCtxSynchronize(), 700);
        violated("device 0 has not enabled access to that peer");
    });
}

#[test]
fn a_lazy_first_launch_behind_a_wait_is_reported() {
    alone(&[], || {
        context(0);
        let (word, memory) = (host_memory(4), device_memory(4));
        let (waiter, other) = (stream(), stream());
        let (module, function) = kernel("symmem_copy_vector", size_of::<TransferArguments>());
        ok(cuStreamWaitValue32(waiter, word, 1, 1));
        let copy = TransferArguments {
            destination: DeviceAddress(memory),
            source: DeviceAddress(memory),
            bytes: 4,
            ..Default::default()
        };
        ok(launch(function, 1, 32, 0, other, &copy));
        violated("load functions eagerly");
        ok(cuStreamWriteValue32(other, word, 1, 0));
        ok(cuStreamSynchronize(waiter));
        ok(cuModuleUnload(module));
        assert_eq!(launch(function, 1, 32, 0, other, &copy), 400);
        violated("was destroyed before");
    });
}

#[test]
fn launches_and_modules_that_cannot_be_are_refused() {
    alone(&[], || {
        context(0);
        let mut module = 0;
        // SAFETY: the texts are zero-terminated; one of them is not PTX.
        unsafe {
            assert_eq!(
                cuModuleLoadData(Some(&mut module), c"not PTX".as_ptr().cast()),
                218
            );
            assert_eq!(
                cuModuleLoadData(Some(&mut module), b"\x7f\x01\x02\x03".as_ptr().cast()),
                200
            );
        }
        let (module, fill) = kernel("symmem_test_fill", 20);
        let mut function = 0;
        // SAFETY: the name is zero-terminated.
        let missing =
            unsafe { cuModuleGetFunction(Some(&mut function), module, c"symmem_wait".as_ptr()) };
        assert_eq!(missing, 500);
        assert_eq!(launch(fill, 1, 2048, 0, 0, &0u64), 1);
        violated("cannot be launched");
        assert_eq!(launch(fill, 0, 32, 0, 0, &0u64), 1);
        violated("cannot be launched");
        let (_, unknown) = kernel("somebody_elses", 8);
        assert_eq!(launch(unknown, 1, 32, 0, 0, &0u64), 801);
        violated("the fake does not know what it does");
        let (_, wrong) = kernel("symmem_signal", 40);
        ok(launch(wrong, 1, 32, 0, 0, &SignalTarget::default()));
        violated("declares 40 bytes of parameters, not 32");
        report::fake_device_clear_violations();
    });
}
