//! Operations between two processes over TCP.

mod common;

use common::{Bytes, COLLECTED, LIMIT, MEMORY_BYTES, Pair, RETURNED, random, serve, ucx};
use std::time::{Duration, Instant};
use symmem_ucx::{Atomic, Poll};

#[test]
fn the_other_process() {
    serve();
}

/// Sizes around UCX's protocols: short, copied, fragmented, without a copy.
const SIZES: [usize; 10] = [
    1,
    8,
    100,
    1000,
    8191,
    8192,
    65_537,
    300_001,
    1 << 20,
    5_000_003,
];

#[test]
fn a_put_is_in_the_peers_memory_after_a_flush() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    for registered in [false, true] {
        for (seed, bytes) in SIZES.into_iter().enumerate() {
            let content = random(seed as u64 + u64::from(registered), bytes);
            let source = Bytes::filled(&content);
            let memory = registered.then(|| {
                // SAFETY: dropped before `source`.
                unsafe { pair.context.register(source.at(0), bytes) }.expect("memory")
            });
            let offset = seed * 7;
            // SAFETY: the source lives until the flush, and the peer's memory is large enough.
            let put = unsafe {
                let remote = pair.remote + offset as u64;
                pair.endpoint().put(source.at(0), bytes, remote, &pair.key)
            };
            let put = put.expect("a put");
            pair.flush();
            assert_eq!(pair.finish(&put), Poll::Done);
            assert_eq!(pair.peek(offset, bytes), content, "{bytes} bytes");
            drop(memory);
        }
    }
}

#[test]
fn a_get_returns_the_peers_bytes() {
    let Some(library) = ucx() else { return };
    let pair = Pair::start(&library);
    let content = random(3, MEMORY_BYTES);
    let source = Bytes::filled(&content);
    // SAFETY: the source lives until the flush.
    let put = unsafe {
        pair.endpoint()
            .put(source.at(0), MEMORY_BYTES, pair.remote, &pair.key)
    };
    pair.flush();
    assert_eq!(pair.finish(&put.expect("a put")), Poll::Done);
    for bytes in SIZES {
        let destination = Bytes::new(bytes + 16);
        let offset = MEMORY_BYTES - bytes;
        // SAFETY: the destination lives until the operation is complete.
        let get = unsafe {
            let remote = pair.remote + offset as u64;
            pair.endpoint()
                .get(destination.at(8), bytes, remote, &pair.key)
        };
        assert_eq!(pair.finish(&get.expect("a get")), Poll::Done);
        assert_eq!(destination.read(8, bytes), content[offset..]);
        assert_eq!(destination.read(0, 8), [0x55; 8], "before the destination");
        assert_eq!(destination.read(8 + bytes, 8), [0x55; 8], "behind it");
    }
}

#[test]
fn many_puts_in_flight_are_all_complete_after_one_flush() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    let content = random(11, MEMORY_BYTES);
    let source = Bytes::filled(&content);
    for piece in [64, 4096, 100_000] {
        for offset in (0..MEMORY_BYTES).step_by(piece).take(256) {
            let bytes = piece.min(MEMORY_BYTES - offset);
            let put = unsafe {
                // SAFETY: the source lives until the flush.
                let remote = pair.remote + offset as u64;
                pair.endpoint()
                    .put(source.at(offset), bytes, remote, &pair.key)
            };
            // Dropped while it is pending.
            drop(put.expect("a put"));
        }
        pair.flush();
        assert_eq!(pair.worker.in_flight(), 0, "all were called back");
        let bytes = (256 * piece).min(MEMORY_BYTES);
        assert!(pair.peek(0, bytes) == content[..bytes], "pieces of {piece}");
    }
}

/// Applies an update as the specification says; returns the new value.
fn expected(update: Atomic, word: u64, operand: u64, compare: u64) -> u64 {
    match update {
        Atomic::Add | Atomic::FetchAdd => word.wrapping_add(operand),
        Atomic::And | Atomic::FetchAnd => word & operand,
        Atomic::Or | Atomic::FetchOr => word | operand,
        Atomic::Xor | Atomic::FetchXor => word ^ operand,
        Atomic::Swap => operand,
        _ if word == compare => operand,
        _ => word,
    }
}

#[test]
fn atomics_of_32_and_64_bits_update_the_word_and_return_the_earlier_one() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    let updates = [
        (Atomic::Add, false),
        (Atomic::And, false),
        (Atomic::Or, false),
        (Atomic::Xor, false),
        (Atomic::Swap, true),
        (Atomic::CompareSwap, true),
        (Atomic::FetchAdd, true),
        (Atomic::FetchAnd, true),
        (Atomic::FetchOr, true),
        (Atomic::FetchXor, true),
    ];
    let place = Bytes::new(8);
    for bits in [32_u32, 64] {
        let bytes = bits as usize / 8;
        let mask = u64::MAX >> (64 - bits);
        for (turn, (update, fetches)) in updates.into_iter().cycle().take(60).enumerate() {
            let offset = 64 + 8 * (turn % 5);
            let word = |content: &[u8]| {
                let mut word = [0; 8];
                word[..content.len()].copy_from_slice(content);
                u64::from_le_bytes(word)
            };
            let before = word(&pair.peek(offset, bytes));
            let beside = pair.peek(offset + bytes, 8);
            let numbers = random(turn as u64, 16);
            let operand = word(&numbers[..8]) & mask;
            // The comparison succeeds in every other round.
            let compare = match turn / 10 % 2 {
                0 => before,
                _ => word(&numbers[8..]) & mask,
            };
            place.write(0, &[0xaa; 8]);
            let result = match turn % 3 {
                0 => std::ptr::null_mut(),
                _ => place.at(0),
            };
            let remote = pair.remote + offset as u64;
            // SAFETY: `place` lives until the operation is complete.
            let operation = unsafe {
                pair.endpoint()
                    .atomic(update, bits, operand, compare, result, remote, &pair.key)
            };
            assert_eq!(pair.finish(&operation.expect("an atomic")), Poll::Done);
            pair.flush();
            let after = word(&pair.peek(offset, bytes));
            let want = expected(update, before, operand, compare) & mask;
            assert_eq!(after, want, "{update:?} of {bits} bits, turn {turn}");
            assert_eq!(pair.peek(offset + bytes, 8), beside, "behind the word");
            if fetches && !result.is_null() {
                assert_eq!(word(&place.read(0, bytes)), before, "{update:?}: result");
            }
        }
    }
}

#[test]
fn an_atomic_on_an_unaligned_word_or_of_another_size_is_refused() {
    let Some(library) = ucx() else { return };
    let pair = Pair::start(&library);
    for (bits, offset) in [(16, 0), (0, 0), (32, 2), (64, 4)] {
        let remote = pair.remote + offset;
        let null = std::ptr::null_mut();
        // SAFETY: there is no result.
        let refused = unsafe {
            pair.endpoint()
                .atomic(Atomic::Add, bits, 1, 0, null, remote, &pair.key)
        };
        let failure = refused.err().expect("refused");
        assert_eq!(failure.peer, Some(1), "{failure}");
    }
}

#[test]
fn messages_of_all_sizes_arrive_once_and_in_order() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    let sizes = [0, 1, 40, 900, 20_000, 3, 9000, 200_000, 0, 64];
    let message = |turn: usize| {
        let header = (turn as u64).to_le_bytes();
        (header, random(turn as u64, sizes[turn % sizes.len()]))
    };
    const COUNT: usize = 500;
    let mut pending = Vec::new();
    let mut received = Vec::new();
    for turn in 0..COUNT {
        let (header, data) = message(turn);
        let endpoint = pair.endpoint();
        // Every third message carries its data to memory.
        let sent = match turn % 3 {
            0 => {
                let (source, bytes) = (data.as_ptr(), data.len());
                // SAFETY: the source is readable.
                unsafe {
                    endpoint.put_and_send(source, bytes, pair.remote, &pair.key, COLLECTED, &header)
                }
            }
            _ => endpoint.send(COLLECTED, &header, &data),
        };
        pending.push(sent.expect("sent"));
        if turn % 50 == 0 {
            received.extend(pair.collected());
        }
    }
    for operation in &pending {
        assert_eq!(pair.finish(operation), Poll::Done);
    }
    let start = Instant::now();
    while received.len() < COUNT && start.elapsed() < LIMIT {
        pair.worker.progress();
        received.extend(pair.collected());
    }
    assert_eq!(received.len(), COUNT);
    for (turn, got) in received.into_iter().enumerate() {
        let (header, mut data) = message(turn);
        if turn % 3 == 0 {
            data.clear();
        }
        assert_eq!(got.0, header, "the header of message {turn}");
        assert!(got.1 == data, "the data of message {turn}");
    }
}

#[test]
fn a_message_comes_back_with_its_data_also_by_rendezvous() {
    let Some(library) = ucx() else { return };
    let pair = Pair::start(&library);
    for (turn, bytes) in [1_usize, 5000, 1 << 20, 3_000_001].into_iter().enumerate() {
        let data = random(turn as u64, bytes);
        let source = Bytes::filled(&data);
        // SAFETY: the source lives until the operation is complete.
        let operation = unsafe {
            pair.endpoint()
                .send_rendezvous(RETURNED, b"header", source.at(0), bytes)
        };
        let operation = operation.expect("sent");
        pair.until("the message comes back", || {
            pair.returned.lock().expect("a lock").len() > turn
        });
        assert_eq!(pair.finish(&operation), Poll::Done);
        let returned = pair.returned.lock().expect("a lock");
        assert_eq!(returned[turn].0, b"header");
        assert!(returned[turn].1 == data, "{bytes} bytes");
    }
}

#[test]
fn a_message_after_a_flush_finds_the_put_in_memory() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    for turn in 0..50_u64 {
        let content = random(turn, 70_000);
        let source = Bytes::filled(&content);
        // SAFETY: the source lives until the flush.
        let put = unsafe {
            pair.endpoint()
                .put(source.at(0), content.len(), pair.remote, &pair.key)
        };
        pair.flush();
        drop(put.expect("a put"));
        let sent = pair.endpoint().send(COLLECTED, &turn.to_le_bytes(), &[]);
        assert_eq!(pair.finish(&sent.expect("sent")), Poll::Done);
        let start = Instant::now();
        while pair.collected().is_empty() {
            pair.worker.progress();
            assert!(start.elapsed() < LIMIT);
        }
        assert!(pair.peek(0, content.len()) == content, "turn {turn}");
    }
}

#[test]
fn the_header_of_a_message_has_a_limit() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    let most = pair.worker.max_header();
    let header = random(1, most + 1);
    let sent = pair.endpoint().send(COLLECTED, &header[..most], b"data");
    assert_eq!(pair.finish(&sent.expect("sent")), Poll::Done);
    let refused = pair.endpoint().send(COLLECTED, &header, b"data");
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains(&most.to_string()), "{text}");
    let start = Instant::now();
    loop {
        pair.worker.progress();
        if let Some((got, _)) = pair.collected().first() {
            assert!(*got == header[..most]);
            break;
        }
        assert!(start.elapsed() < LIMIT);
    }
}

/// Within this time after the peer's death, every operation has failed.
const NOTICED: Duration = Duration::from_secs(1);

#[test]
fn the_death_of_the_peer_fails_every_pending_operation() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    pair.flush();
    let source = Bytes::filled(&random(5, 4 << 20));
    let destination = Bytes::new(4 << 20);
    // The peer is alive, but does not help any more: operations stay pending.
    pair.pause(LIMIT);
    let mut pending = Vec::new();
    for turn in 0..8_u64 {
        let endpoint = pair.endpoint();
        let bytes = 1 << (2 * turn + 5);
        let place = destination.at(8 * turn as usize);
        // SAFETY: source and destination live until the endpoint is closed.
        unsafe {
            pending.push(endpoint.put(source.at(0), bytes, pair.remote, &pair.key));
            let add = Atomic::FetchAdd;
            pending.push(endpoint.atomic(add, 64, 1, 0, place, pair.remote, &pair.key));
            let destination = destination.at(1 << 16);
            pending.push(endpoint.get(destination, bytes, pair.remote, &pair.key));
        }
        pending.push(endpoint.send(COLLECTED, b"header", &random(turn, bytes)));
        pending.push(endpoint.flush());
    }
    let pending: Vec<_> = pending
        .into_iter()
        .map(|one| one.expect("started"))
        .collect();
    let flush = pair.endpoint().flush().expect("a flush");
    for _ in 0..1000 {
        pair.worker.progress();
    }
    assert_eq!(flush.poll(), Poll::Pending, "nobody answers");
    pair.kill();
    let death = Instant::now();
    for operation in &pending {
        let left = NOTICED.saturating_sub(death.elapsed());
        let state = pair.within(left, operation);
        assert_ne!(state, Poll::Pending, "after {:?}", death.elapsed());
    }
    let Poll::Failed(failure) = pair.finish(&flush) else {
        panic!("the flush cannot have succeeded");
    };
    println!("noticed after {:?}: {failure}", death.elapsed());
    assert_eq!(failure.peer, Some(1));
    let failure = pair.endpoint().failure().expect("the endpoint has failed");
    assert!(failure.status < 0 && failure.peer == Some(1), "{failure}");
    // What is started afterwards fails at once.
    assert!(pair.endpoint().flush().is_err());
    assert!(pair.endpoint().send(COLLECTED, b"", b"").is_err());
    let close = pair.endpoint.take().expect("open").close(true);
    assert_ne!(
        pair.within(NOTICED, &close),
        Poll::Pending,
        "the close ends"
    );
    assert_eq!(pair.worker.in_flight(), 0);
}

#[test]
fn closing_with_force_ends_the_operations_of_a_peer_that_does_not_answer() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    pair.flush();
    pair.pause(LIMIT);
    let source = Bytes::filled(&random(6, 4 << 20));
    // SAFETY: the source lives until the endpoint is closed.
    let put = unsafe {
        pair.endpoint()
            .put(source.at(0), 4 << 20, pair.remote, &pair.key)
    };
    let (null, at) = (std::ptr::null_mut(), pair.remote);
    // SAFETY: there is no result.
    let add = unsafe {
        pair.endpoint()
            .atomic(Atomic::Add, 64, 1, 0, null, at, &pair.key)
    };
    let add = add.expect("an atomic");
    let flush = pair.endpoint().flush().expect("a flush");
    pair.worker.progress();
    let start = Instant::now();
    let close = pair.endpoint.take().expect("open").close(true);
    assert_ne!(pair.within(NOTICED, &close), Poll::Pending);
    assert_ne!(pair.within(NOTICED, &flush), Poll::Pending);
    assert_ne!(pair.within(NOTICED, &add), Poll::Pending);
    assert_ne!(pair.within(NOTICED, &put.expect("a put")), Poll::Pending);
    println!("closed after {:?}", start.elapsed());
    assert_eq!(pair.worker.in_flight(), 0);
}

#[test]
fn an_endpoint_and_its_worker_may_be_dropped_while_operations_are_pending() {
    let Some(library) = ucx() else { return };
    let mut pair = Pair::start(&library);
    pair.flush();
    pair.pause(LIMIT);
    let source = Box::leak(Box::new(Bytes::filled(&random(6, 4 << 20))));
    for _ in 0..20 {
        // SAFETY: the source lives for ever.
        let put = unsafe {
            pair.endpoint()
                .put(source.at(0), 4 << 20, pair.remote, &pair.key)
        };
        drop(put.expect("a put"));
        drop(
            pair.endpoint()
                .send(COLLECTED, b"header", &random(1, 50_000)),
        );
        drop(pair.endpoint().flush());
    }
    pair.worker.progress();
    let start = Instant::now();
    drop(pair);
    assert!(start.elapsed() < NOTICED, "{:?}", start.elapsed());
}

#[test]
fn an_endpoint_is_closed_without_force_whether_the_peer_has_closed_its_own_or_not() {
    let Some(library) = ucx() else { return };
    for leaves in [false, true] {
        let mut pair = Pair::start(&library);
        pair.flush();
        if leaves {
            pair.leave();
            let start = Instant::now();
            while pair.endpoint().failure().is_none() && start.elapsed() < NOTICED {
                pair.worker.progress();
            }
            println!("the peer has closed: {:?}", pair.endpoint().failure());
        }
        let close = pair.endpoint.take().expect("open").close(false);
        assert_ne!(pair.within(NOTICED, &close), Poll::Pending, "{leaves}");
    }
}

#[test]
fn a_wait_ends_by_a_waker_of_another_thread_and_not_later_than_its_time() {
    let Some(library) = ucx() else { return };
    let pair = Pair::start(&library);
    pair.flush();
    while pair.worker.progress() {}
    let start = Instant::now();
    while start.elapsed() < Duration::from_millis(50) {
        let left = Duration::from_millis(50).saturating_sub(start.elapsed());
        pair.worker.wait(left).expect("a wait");
        pair.worker.progress();
    }
    assert!(start.elapsed() < LIMIT);
    let waker = pair.worker.waker();
    let start = Instant::now();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            std::thread::sleep(Duration::from_millis(20));
            waker.wake();
        });
        while start.elapsed() < Duration::from_millis(20) {
            pair.worker.wait(LIMIT).expect("a wait");
            pair.worker.progress();
        }
    });
    assert!(start.elapsed() < LIMIT);
}

#[test]
fn a_key_of_another_endpoint_and_damaged_addresses_and_keys_are_refused() {
    let Some(library) = ucx() else { return };
    let pair = Pair::start(&library);
    let own = Bytes::new(64);
    // SAFETY: dropped before `own`.
    let memory = unsafe { pair.context.register(own.at(0), 64) }.expect("memory");
    let to_self = pair.worker.connect(0, pair.worker.address());
    let to_self = to_self.expect("an endpoint");
    let packed = memory.packed_key().expect("a key");
    let key = to_self.unpack(&packed).expect("a key");
    // SAFETY: refused before it is used.
    let refused = unsafe { pair.endpoint().put(own.at(0), 8, memory.address(), &key) };
    let text = refused.err().expect("refused").to_string();
    assert!(text.contains("peer 0"), "{text}");
    assert!(to_self.unpack(&packed[1..]).is_err());
    assert!(to_self.unpack(pair.worker.address()).is_err());
    assert!(pair.worker.connect(2, &packed).is_err());
    assert!(pair.worker.connect(2, &[]).is_err());
    drop(key);
}
