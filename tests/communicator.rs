//! Guarantees of a communicator whatever its callers do. Ranks are threads on the host backend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use symmem::backend::abi::DeviceAddress;
use symmem::bootstrap::LaunchEnvironment;
use symmem::{
    BackendSource, Communicator, Configuration, DeviceSlice, Error, ReduceOp, Result,
    SignalPlacement,
};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

fn configuration(rank: u32, world: u32, job: &str) -> Configuration {
    let launch = LaunchEnvironment::local(rank, world, job).expect("a rank of the world");
    let mut configuration = Configuration::new(launch);
    configuration.deadline = PATIENCE;
    configuration.setup_deadline = PATIENCE;
    configuration
}

/// Runs `rank` as each rank of a world and returns the results.
fn world<T: Send>(world: u32, rank: impl Fn(Communicator) -> T + Sync) -> Vec<T> {
    world_with(world, |_| {}, rank)
}

/// The same with changed settings.
fn world_with<T: Send>(
    world: u32,
    change: impl Fn(&mut Configuration) + Sync,
    rank: impl Fn(Communicator) -> T + Sync,
) -> Vec<T> {
    let now = Instant::now();
    let job = format!("communicator-{}-{now:?}", std::process::id());
    std::thread::scope(|scope| {
        let ranks: Vec<_> = (0..world)
            .map(|number| {
                let (job, rank, change) = (&job, &rank, &change);
                scope.spawn(move || {
                    let mut configuration = configuration(number, world, job);
                    change(&mut configuration);
                    let opened = Communicator::open(&BackendSource::Host, configuration);
                    rank(opened.expect("the world comes up"))
                })
            })
            .collect();
        let results = ranks.into_iter().map(|rank| rank.join().expect("no panic"));
        results.collect()
    })
}

#[test]
fn what_does_not_fit_into_a_ranks_own_memory_is_refused_on_every_rank() {
    let kinds = world(2, |communicator| {
        let rank = communicator.rank();
        // Of rank 0, a page.
        let memory = communicator.allocate_local(1 + rank * (1 << 16))?;
        let refused = |offset, shape: &[usize]| {
            let met = communicator.rendezvous::<u64>(&memory, offset, shape);
            met.expect_err("it does not fit").kind()
        };
        let end = communicator.allocate_local(1)?.bytes();
        let seen = [
            refused(0, &[1 << 12]),
            refused(end, &[1]),
            refused(usize::MAX - 7, &[1]),
            refused(0, &[0]),
            communicator.allocate_local(0).expect_err("0 bytes").kind(),
        ];
        let fits = communicator.rendezvous::<u64>(&memory, 8 * (1 + rank), &[16])?;
        drop(memory);
        fits.free()?;
        communicator.finalize()?;
        Result::Ok(seen)
    });
    let [first, second] = [0, 1].map(|rank| kinds[rank].as_ref().expect("the rest works"));
    use symmem::ErrorKind::{InvalidArgument, PeerFailed};
    let other = |fits| if fits { PeerFailed } else { InvalidArgument };
    assert_eq!(*first, [InvalidArgument; 5]);
    // Rank 1's memory is larger, but a buffer past the end of all addresses is in none.
    let expected = [
        other(true),
        other(true),
        other(false),
        other(false),
        InvalidArgument,
    ];
    assert_eq!(*second, expected);
}

#[test]
fn a_buffer_that_a_graph_uses_is_not_freed_under_it() {
    let results = world(2, |communicator| {
        let mut stream = communicator.stream()?;
        let buffer = communicator.allocate::<u8>(&[1 << 20])?;
        let half = 1 << 19;
        // Only one rank has a graph; the other is told the reason.
        let graph = (communicator.rank() == 0)
            .then(|| {
                stream.capture(|queue| {
                    queue.put(1, buffer.slice(half..2 * half)?, buffer.slice(..half)?)
                })
            })
            .transpose()?;
        let freed = buffer.free();
        // The graph still has the memory that it uses.
        if let Some(graph) = &graph {
            stream.launch_graph(graph)?;
            stream.synchronize()?;
        }
        drop(graph);
        communicator.check()?;
        let again = communicator.allocate::<u8>(&[64])?;
        again.free()?;
        let leaks = communicator.finalize()?;
        Result::Ok((freed, leaks))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (freed, leaks) = result.expect("everything else goes on");
        let error = freed.expect_err("a graph uses the buffer");
        match rank {
            0 => assert!(matches!(error, Error::InvalidArgument { .. }), "{error}"),
            _ => assert!(
                matches!(error, Error::PeerFailed { peer: 0, .. }),
                "{error}"
            ),
        }
        assert!(error.to_string().contains("graph"), "{error}");
        assert!(leaks.is_empty(), "{leaks:?}");
    }
}

#[test]
fn a_graph_that_was_dropped_keeps_no_buffer_from_being_freed() {
    for result in world(2, |communicator| {
        let mut stream = communicator.stream()?;
        let buffer = communicator.allocate::<u8>(&[64])?;
        let graph =
            stream.capture(|queue| queue.put(0, buffer.slice(32..64)?, buffer.slice(..32)?))?;
        stream.launch_graph(&graph)?;
        drop(graph);
        buffer.free()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("freed");
    }
}

#[test]
fn an_address_that_is_misaligned_on_one_rank_fails_all_at_once() {
    let start = Instant::now();
    let results = world(2, |communicator| {
        let memory = communicator.allocate::<u64>(&[64])?;
        let skew = if communicator.rank() == 1 { 4 } else { 0 };
        let address = DeviceAddress(memory.local().address().0 + skew);
        // SAFETY: the range is inside `memory`, which outlives the registration.
        let registered = unsafe { communicator.register::<u64>(address, &[8]) }.map(drop);
        communicator.check()?;
        memory.free()?;
        communicator.finalize()?;
        Result::Ok(registered)
    });
    assert!(start.elapsed() < PATIENCE / 2, "a rank was left waiting");
    let errors: Vec<Error> = results
        .into_iter()
        .map(|result| result.expect("the ranks are in step").expect_err("refused"))
        .collect();
    assert!(
        matches!(&errors[0], Error::PeerFailed { peer: 1, reason, .. } if reason.contains("aligned")),
        "{}",
        errors[0]
    );
    assert!(
        matches!(&errors[1], Error::InvalidArgument { .. }),
        "{}",
        errors[1]
    );
}

/// Another wrapper of the stream does not know of the capture, as if the vendor's own API had begun it. On the captured
/// value itself these calls do not compile: `tests/compile-fail/programs/host_write_in_a_capture.rs`.
#[test]
fn what_cannot_be_captured_is_refused_and_harms_nothing() {
    for result in world(1, |communicator| {
        let mut stream = communicator.stream()?;
        // SAFETY: the stream outlives this wrapper.
        let other = unsafe { communicator.stream_from_raw(stream.raw()) };
        let buffer = communicator.allocate::<u8>(&[64])?;
        let mut bytes = [0; 8];
        let graph = stream.capture(|queue| {
            let refused = [
                buffer.write(&other, 0, &[1; 8]),
                buffer.read(&other, 0, &mut bytes),
                other.synchronize(),
                other.is_idle().map(drop),
            ];
            for (call, refused) in refused.into_iter().enumerate() {
                let error = refused.expect_err("it cannot be captured");
                assert!(
                    matches!(error, Error::InvalidArgument { .. }),
                    "call {call}: {error}"
                );
            }
            queue.put(0, buffer.slice(8..16)?, buffer.slice(..8)?)
        })?;
        buffer.write(&stream, 0, &[7; 8])?;
        stream.launch_graph(&graph)?;
        buffer.read(&stream, 8, &mut bytes)?;
        assert_eq!(bytes, [7; 8]);
        drop(graph);
        buffer.free()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("the communicator still works");
    }
}

#[test]
fn a_read_that_waits_for_a_peer_holds_up_no_write_of_another_thread() {
    let start = Instant::now();
    for result in world(2, |communicator| {
        let (rank, peer) = (communicator.rank(), 1 - communicator.rank());
        let buffer = communicator.allocate::<u32>(&[2])?;
        let (reading, writing) = (communicator.stream()?, communicator.stream()?);
        // The peer signals only after the other thread has written to it.
        reading.wait_signal(peer, 0)?;
        std::thread::scope(|scope| {
            let other = scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                buffer.write(&writing, 0, &[rank as u32 + 1])?;
                let (to, from) = (buffer.slice(1..2)?, buffer.slice(..1)?);
                writing.put_signal(peer, to, from, 0)
            });
            let mut got = [0];
            buffer.read(&reading, 1, &mut got)?;
            assert_eq!(got, [peer as u32 + 1]);
            other.join().expect("no panic")
        })?;
        buffer.free()?;
        communicator.finalize().map(drop)
    }) {
        result.expect("every rank read what its peer put");
    }
    assert!(
        start.elapsed() < PATIENCE / 2,
        "the wait lasted until the deadline"
    );
}

#[test]
fn a_rank_whose_communicator_is_poisoned_keeps_no_peer_in_a_collective_call() {
    let results = world(3, |communicator| {
        if communicator.rank() == 2 {
            let stream = communicator.stream().expect("a stream");
            let limit = Duration::from_millis(50);
            stream.wait_signal_within(0, 0, limit).expect("enqueued");
            let error = stream.synchronize().expect_err("no rank signals");
            assert!(matches!(error, Error::Timeout { peer: 0, .. }), "{error}");
            // Peers are in the exchange by now, which this rank does not join.
            let start = Instant::now();
            let again = communicator.allocate::<u8>(&[1]).map(drop);
            assert_eq!(format!("{again:?}"), format!("{:?}", Err::<(), _>(error)));
            return start.elapsed();
        }
        let start = Instant::now();
        let error = communicator.allocate::<u8>(&[1]).map(drop);
        let error = error.expect_err("rank 2 never arrives");
        assert!(matches!(error, Error::PeerFailed { .. }), "{error}");
        start.elapsed()
    });
    for elapsed in results {
        assert!(elapsed < PATIENCE / 2, "took {elapsed:?}");
    }
}

#[test]
fn deadlines_that_no_clock_can_express_are_as_good_as_none() {
    let mut configuration = configuration(0, 1, "communicator-deadlines");
    configuration.launch = LaunchEnvironment::alone().expect("random bytes");
    configuration.deadline = Duration::MAX;
    configuration.setup_deadline = Duration::MAX;
    configuration.signal_placement = SignalPlacement::Host;
    let communicator = Communicator::open(&BackendSource::Host, configuration).expect("opened");
    let stream = communicator.stream().expect("a stream");
    let buffer = communicator.allocate::<u8>(&[2]).expect("memory");
    let (to, from) = (buffer.slice(1..2).unwrap(), buffer.slice(..1).unwrap());
    stream.put_signal(0, to, from, 0).expect("enqueued");
    stream.wait_signal(0, 0).expect("enqueued");
    stream.barrier().expect("enqueued");
    stream.synchronize().expect("done");
    communicator.host_barrier().expect("alone");
    buffer.free().expect("freed");
    assert!(communicator.finalize().expect("finalized").is_empty());
}

#[test]
fn a_rebuild_whose_deadline_no_clock_can_express_succeeds() {
    let mut configuration = configuration(0, 1, "communicator-rebuild");
    configuration.launch = LaunchEnvironment::alone().expect("random bytes");
    configuration.setup_deadline = Duration::MAX;
    let communicator = Communicator::open(&BackendSource::Host, configuration).expect("opened");
    let rebuilt = communicator.rebuild().expect("alone");
    assert!(rebuilt.finalize().expect("finalized").is_empty());
}

#[test]
fn a_stream_is_captured_once_at_a_time() {
    for result in world(1, |communicator| {
        let mut stream = communicator.stream()?;
        // SAFETY: the stream outlives this wrapper.
        let mut other = unsafe { communicator.stream_from_raw(stream.raw()) };
        let graph = stream.capture(|queue| {
            assert!(queue.is_capturing());
            let nested = other.capture(|_| Ok(())).map(drop);
            let error = nested.expect_err("captured already");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
            queue.barrier()
        })?;
        assert!(!stream.is_capturing());
        stream.launch_graph(&graph)?;
        stream.synchronize()?;
        drop(graph);
        communicator.finalize().map(drop)
    }) {
        result.expect("the outer capture goes on");
    }
}

/// The address of an element of a vector, for a [`DeviceSlice`].
fn address_of<T>(elements: &mut [T]) -> DeviceAddress {
    DeviceAddress(elements.as_mut_ptr() as u64)
}

#[test]
fn vectors_at_any_address_are_summed_and_gathered_as_they_are() {
    const LENGTH: usize = 1003;
    let results = world(3, |communicator| {
        let rank = communicator.rank();
        let stream = communicator.stream()?;
        // Each rank begins elsewhere, rank 1 at an odd address.
        let mut bytes = vec![0xa5u8; (LENGTH + 8) * 4];
        let first = 4 * rank + rank % 2;
        let source: Vec<u8> = (0..LENGTH as u32)
            .flat_map(|index| (index * 3 + rank as u32).to_ne_bytes())
            .collect();
        bytes[first..][..source.len()].copy_from_slice(&source);
        let mut sum = vec![7u32; LENGTH + 2];
        let mut all = vec![9u32; 3 * LENGTH];
        // SAFETY: all three vectors live until the stream was synchronized below, and nothing else touches them.
        let (part, to, whole) = unsafe {
            (
                communicator.device_slice::<u32>(address_of(&mut bytes[first..]), LENGTH)?,
                communicator.device_slice::<u32>(address_of(&mut sum), LENGTH + 2)?,
                communicator.device_slice::<u32>(address_of(&mut all), 3 * LENGTH)?,
            )
        };
        stream.all_reduce(to.slice(1..=LENGTH)?, part, ReduceOp::Sum)?;
        stream.all_gather(whole, part)?;
        stream.synchronize()?;
        let intact = bytes[..first].iter().all(|byte| *byte == 0xa5)
            && bytes[first + 4 * LENGTH..].iter().all(|byte| *byte == 0xa5);
        Result::Ok((sum, all, intact))
    });
    for result in results {
        let (sum, all, intact) = result.expect("every call is served");
        assert_eq!(
            (sum[0], sum[LENGTH + 1]),
            (7, 7),
            "what is beside the range"
        );
        for index in 0..LENGTH {
            assert_eq!(sum[1 + index], 9 * index as u32 + 3);
            for rank in 0..3 {
                assert_eq!(all[rank * LENGTH + index], 3 * index as u32 + rank as u32);
            }
        }
        assert!(intact);
    }
}

#[test]
fn a_slice_that_no_memory_can_be_is_refused() {
    world(1, |communicator| {
        let refused = |address, length| {
            // SAFETY: nothing uses the slice.
            let made = unsafe { communicator.device_slice::<u64>(DeviceAddress(address), length) };
            made.expect_err("there is no such memory").to_string()
        };
        assert!(refused(0, 1).contains("1 elements of 8 bytes at 0x0"));
        refused(8, usize::MAX);
        refused(u64::MAX - 7, 2);
        // SAFETY: it has no elements.
        let empty = unsafe { communicator.device_slice::<u64>(DeviceAddress::NULL, 0) };
        assert!(empty.expect("no elements need no memory").is_empty());
    });
}

/// Enqueues the receives of two messages.
fn two_arrive(
    stream: &symmem::Stream,
    one: DeviceSlice<'_, u32>,
    other: DeviceSlice<'_, u32>,
) -> symmem::Result<()> {
    let peer = 0;
    let mut exchange = stream.exchange();
    exchange.recv(peer, one)?;
    exchange.recv(peer, other)?;
    exchange.enqueue()
}

#[test]
fn memory_that_is_not_mapped_is_refused_on_the_host() {
    world(1, |communicator| {
        // SAFETY: refused, or not used.
        let slice = |address| unsafe {
            communicator.device_slice::<u8>(symmem::DeviceAddress(address), 1 << 20)
        };
        for address in [8, 1 << 40, u64::MAX << 21] {
            let error = slice(address).expect_err("nothing is there");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        let memory = vec![0u8; 1 << 20];
        slice(memory.as_ptr().expose_provenance() as u64).expect("mapped memory");
    });
}

#[test]
fn a_value_is_kept_until_the_work_is_done() {
    world(1, |communicator| {
        let stream = communicator.stream().expect("a stream");
        let buffer = communicator.allocate::<u8>(&[32]).expect("a buffer");
        let part = |range| buffer.slice(range).expect("a part");
        let kept = std::sync::Arc::new(());
        // Nobody signals, so this waits.
        stream.wait_signal(0, 3).expect("enqueued");
        communicator.keep_until_idle(std::sync::Arc::clone(&kept));
        let late = stream.idle_within(Duration::from_millis(20));
        assert!(!late.expect("it waits"));
        communicator
            .check()
            .expect("a wait that is too short is no failure");
        assert_eq!(std::sync::Arc::strong_count(&kept), 2);
        let other = communicator.stream().expect("another");
        let sent = other.put_signal(0, part(0..16), part(16..32), 3);
        sent.expect("a signal");
        other.synchronize().expect("the signal is there");
        assert!(stream.idle_within(Duration::from_secs(60)).expect("done"));
        communicator
            .stream()
            .expect("idle")
            .synchronize()
            .expect("reclaims");
        assert_eq!(std::sync::Arc::strong_count(&kept), 1);
    });
}

#[test]
fn lengths_and_overlaps_of_vectors_are_checked_before_anything_is_enqueued() {
    world(2, |communicator| {
        let stream = communicator.stream().expect("a stream");
        let mut numbers = vec![0u32; 100];
        // SAFETY: every call below is refused.
        let all = unsafe { communicator.device_slice::<u32>(address_of(&mut numbers), 100) };
        let all = all.expect("a vector of the host");
        let part = |range| all.slice(range).expect("a part");
        for refused in [
            stream.all_reduce(part(0..10), part(20..31), ReduceOp::Sum),
            stream.all_reduce(part(0..10), part(5..15), ReduceOp::Sum),
            stream.all_gather(part(0..10), part(20..26)),
            stream.broadcast(2, part(0..10), part(20..30)),
            two_arrive(&stream, part(0..10), part(9..19)),
        ] {
            let error = refused.expect_err("refused");
            assert!(matches!(error, Error::InvalidArgument { .. }), "{error}");
        }
        assert!(all.slice(99..101).is_err());
        assert_eq!(numbers, vec![0; 100]);
        communicator.check().expect("nothing has happened");
    });
}

#[test]
fn an_algorithm_that_loads_from_peers_is_refused_for_memory_that_they_do_not_know() {
    world(2, |communicator| {
        let stream = communicator.stream().expect("a stream");
        let buffer = communicator.allocate::<f32>(&[64]).expect("a buffer");
        let own = DeviceSlice::from(buffer.slice(..).expect("all of it"));
        let options = symmem::CollectiveOptions::new().algorithm(symmem::Algorithm::TwoShot);
        let refused = stream.with(&options).all_reduce(own, own, ReduceOp::Sum);
        let error = refused.expect_err("there are no addresses").to_string();
        assert!(error.contains("needs symmetric buffers"), "{error}");
        assert!(error.contains("PACKETS_TWO_SHOT"), "{error}");
    });
}

#[test]
fn ranks_compare_whether_memory_is_symmetric_but_not_where_their_own_is() {
    let compared = |configuration: &mut Configuration| configuration.check_calls = true;
    let results = world_with(2, compared, |communicator| {
        let (rank, stream) = (communicator.rank(), communicator.stream()?);
        let buffer = communicator.allocate::<u16>(&[64])?;
        let part = |first: usize| buffer.slice(first..first + 8);
        // Another part at each rank, at one of them in place.
        let own = DeviceSlice::from(part(8 * rank)?);
        stream.all_reduce(own, part(0)?, ReduceOp::Sum)?;
        let mixed = match rank {
            0 => stream.all_reduce(part(0)?, part(16)?, ReduceOp::Sum),
            _ => stream.all_reduce(own, part(16)?, ReduceOp::Sum),
        };
        Result::Ok(mixed.expect_err("the ranks differ"))
    });
    for result in results {
        let error = result.expect("everything else is done");
        assert!(matches!(error, Error::Mismatch { .. }), "{error}");
        assert!(
            error.to_string().contains("16 bytes of device memory"),
            "{error}"
        );
    }
}

#[test]
fn work_that_ends_after_a_peer_has_failed_is_no_success_though_no_watcher_has_looked_yet() {
    let failed = AtomicBool::new(false);
    let failed = &failed;
    let results = world(2, |communicator| {
        let stream = communicator.stream()?;
        if communicator.rank() == 0 {
            communicator.abort();
            failed.store(true, Ordering::Release);
            return Ok(());
        }
        while !failed.load(Ordering::Acquire) {
            std::hint::spin_loop();
        }
        // A watcher looks every 50 ms; this is a few microseconds later.
        stream.synchronize()
    });
    let told = results[1].as_ref().expect_err("rank 0 has failed");
    assert!(matches!(told, Error::PeerFailed { peer: 0, .. }), "{told}");
}
