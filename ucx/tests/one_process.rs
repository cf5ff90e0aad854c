//! A worker that is its own peer.

mod common;

use common::{Bytes, LIMIT, tcp, ucx};
use std::sync::{Arc, Mutex};
use std::time::Instant;
use symmem_ucx::{Atomic, Config, Context, Endpoint, Operation, Poll, Worker};

fn finish(worker: &Worker, operation: &Operation) -> Poll {
    let start = Instant::now();
    while operation.poll() == Poll::Pending && start.elapsed() < LIMIT {
        worker.progress();
    }
    operation.poll()
}

#[test]
fn a_worker_reaches_its_own_memory() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(0, worker.address()).expect("an endpoint");
    let (memory, source) = (Bytes::new(4096), Bytes::filled(&[7; 4096]));
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(0), 4096) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    // SAFETY: the source lives until the flush.
    let put = unsafe { to_self.put(source.at(0), 4096, registered.address(), &key) };
    assert_eq!(finish(&worker, &put.expect("a put")), Poll::Done);
    let flush = to_self.flush().expect("a flush");
    assert_eq!(finish(&worker, &flush), Poll::Done);
    assert_eq!(memory.read(0, 4096), [7; 4096]);
    let null = std::ptr::null_mut();
    let at = registered.address();
    // SAFETY: there is no result.
    let add = unsafe { to_self.atomic(Atomic::Add, 64, 1, 0, null, at, &key) };
    assert_eq!(finish(&worker, &add.expect("an atomic")), Poll::Done);
    let flush = to_self.flush().expect("a flush");
    assert_eq!(finish(&worker, &flush), Poll::Done);
    assert_eq!(memory.word(0), 0x0707_0707_0707_0708);
}

#[test]
fn a_handler_that_sends_to_itself_is_not_called_inside_of_itself() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let endpoint: Arc<Mutex<Option<Arc<Endpoint>>>> = Arc::default();
    let seen = Arc::new(Mutex::new(Vec::new()));
    let (for_handler, log) = (endpoint.clone(), seen.clone());
    let mut depth = 0;
    let handler = move |header: &[u8], _: &[u8]| {
        depth += 1;
        assert_eq!(depth, 1, "called inside of itself");
        log.lock().expect("a lock").push(header[0]);
        let target = for_handler.lock().expect("a lock").clone();
        if let (Some(target), 1..=20) = (target, header[0]) {
            let _ = target.send(3, &[header[0] - 1], &[]);
        }
        depth -= 1;
    };
    worker.on_message(3, Box::new(handler)).expect("a handler");
    let to_self = worker.connect(0, worker.address()).expect("an endpoint");
    *endpoint.lock().expect("a lock") = Some(Arc::new(to_self));
    let target = endpoint.lock().expect("a lock").clone().expect("set");
    let sent = target.send(3, &[20], &[]).expect("sent");
    assert_eq!(finish(&worker, &sent), Poll::Done);
    let start = Instant::now();
    while seen.lock().expect("a lock").len() < 21 && start.elapsed() < LIMIT {
        worker.progress();
    }
    let expected: Vec<u8> = (0..=20).rev().collect();
    assert_eq!(*seen.lock().expect("a lock"), expected);
    // The handler would keep the endpoint, and that the worker.
    *endpoint.lock().expect("a lock") = None;
}

#[test]
fn threads_may_use_one_worker_at_the_same_time() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(0, worker.address()).expect("an endpoint");
    let memory = Bytes::new(64);
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(0), 64) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    memory.write(0, &[0; 8]);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..500 {
                    let (null, at) = (std::ptr::null_mut(), registered.address());
                    // SAFETY: there is no result.
                    let add = unsafe { to_self.atomic(Atomic::Add, 64, 1, 0, null, at, &key) };
                    assert_eq!(finish(&worker, &add.expect("an atomic")), Poll::Done);
                }
            });
        }
    });
    let flush = to_self.flush().expect("a flush");
    assert_eq!(finish(&worker, &flush), Poll::Done);
    assert_eq!(memory.word(0), 2000);
}

#[test]
fn atomics_are_atomic_with_the_owners_cpu() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(0, worker.address()).expect("an endpoint");
    let memory = Bytes::filled(&[0; 8]);
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(0), 8) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    // SAFETY: the word is aligned, lives longer, and is only accessed atomically.
    let word = unsafe { std::sync::atomic::AtomicU64::from_ptr(memory.at(0).cast()) };
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..1_000_000 {
                word.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
        });
        for _ in 0..2000 {
            let null = std::ptr::null_mut();
            // SAFETY: there is no result.
            let add =
                unsafe { to_self.atomic(Atomic::Add, 64, 1, 0, null, registered.address(), &key) };
            assert_eq!(finish(&worker, &add.expect("an atomic")), Poll::Done);
        }
    });
    assert_eq!(memory.word(0), 1_002_000);
}

#[test]
fn bytes_outside_of_the_keys_memory_are_refused() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(9, worker.address()).expect("an endpoint");
    let memory = Bytes::filled(&[0; 64]);
    let own = Bytes::new(64);
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(8), 40) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    let place = own.at(0);
    for (offset, inside) in [(-8_i64, false), (0, true), (32, true), (40, false)] {
        let at = registered.address().wrapping_add_signed(offset);
        // SAFETY: `own` lives longer than the operations.
        let started = unsafe {
            [
                to_self.put(place, 8, at, &key),
                to_self.get(place, 8, at, &key),
                to_self.atomic(Atomic::Add, 64, 1, 0, place, at, &key),
                to_self.put_and_send(place, 8, at, &key, 1, b"header"),
            ]
        };
        for one in started {
            match one {
                Ok(one) => {
                    assert!(inside, "offset {offset}");
                    assert_eq!(finish(&worker, &one), Poll::Done);
                }
                Err(failure) => {
                    assert!(!inside && failure.peer == Some(9), "{failure}");
                    assert!(failure.to_string().contains("outside"), "{failure}");
                }
            }
        }
    }
    assert_eq!([memory.word(0), memory.word(48), memory.word(56)], [0; 3]);
}

#[test]
fn what_the_owner_executes_does_not_touch_memory_that_is_not_registered_any_more() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(9, worker.address()).expect("an endpoint");
    let memory = Bytes::filled(&[0; 64]);
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(0), 64) }.expect("memory");
    let at = registered.address();
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    let messages = common::collect(&worker, 1);
    drop(registered);
    let null = std::ptr::null_mut();
    // SAFETY: there is no result, and the source is readable.
    let (add, put) = unsafe {
        (
            to_self.atomic(Atomic::Add, 64, 1, 0, null, at, &key),
            to_self.put_and_send([1; 8].as_ptr(), 8, at, &key, 1, b"header"),
        )
    };
    let Poll::Failed(failure) = finish(&worker, &add.expect("an atomic")) else {
        panic!("there is no such word");
    };
    assert_eq!((failure.peer, failure.status), (Some(9), -7), "{failure}");
    assert_eq!(finish(&worker, &put.expect("sent")), Poll::Done);
    // A later message has overtaken none.
    let last = to_self.send(1, b"last", &[]).expect("sent");
    assert_eq!(finish(&worker, &last), Poll::Done);
    let start = Instant::now();
    while messages.lock().expect("a lock").is_empty() && start.elapsed() < LIMIT {
        worker.progress();
    }
    let headers: Vec<_> = std::mem::take(&mut *messages.lock().expect("a lock"));
    assert_eq!(headers, [(b"last".to_vec(), Vec::new())]);
    assert_eq!(memory.read(0, 64), [0; 64]);
}

#[test]
fn the_handler_finds_the_bytes_of_put_and_send_in_memory() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(0, worker.address()).expect("an endpoint");
    const MOST: usize = 100_000;
    let memory = Arc::new(Bytes::new(MOST + 64));
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(0), MOST + 64) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    let found = Arc::new(Mutex::new(Vec::new()));
    let (log, reader) = (found.clone(), memory.clone());
    let handler = move |header: &[u8], data: &[u8]| {
        assert!(data.is_empty());
        let bytes = u64::from_le_bytes(header.try_into().expect("8 bytes")) as usize;
        log.lock().expect("a lock").push(reader.read(0, bytes + 32));
    };
    worker.on_message(6, Box::new(handler)).expect("a handler");
    let mut expected = common::random(99, MOST + 64);
    memory.write(0, &expected);
    for (turn, bytes) in [8, 0, 1, 1000, 8192, 16_384, MOST].into_iter().enumerate() {
        let content = common::random(turn as u64, bytes);
        let at = registered.address() + 8;
        let header = (bytes as u64).to_le_bytes();
        // SAFETY: the source is readable.
        let sent = unsafe { to_self.put_and_send(content.as_ptr(), bytes, at, &key, 6, &header) };
        assert_eq!(finish(&worker, &sent.expect("sent")), Poll::Done);
        let start = Instant::now();
        while found.lock().expect("a lock").len() <= turn && start.elapsed() < LIMIT {
            worker.progress();
        }
        expected[8..8 + bytes].copy_from_slice(&content);
        let found = found.lock().expect("a lock");
        assert!(found[turn] == expected[..bytes + 32], "{bytes} bytes");
    }
}

#[test]
fn registered_memory_must_not_be_nothing_nor_overlap() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let memory = Bytes::new(8192);
    // SAFETY: all are dropped before `memory`.
    unsafe {
        assert!(context.register(memory.at(0), 0).is_err());
        assert!(context.register(std::ptr::null_mut(), 8).is_err());
        let first = context.register(memory.at(4096), 4096).expect("memory");
        let overlapping = context.register(memory.at(0), 4097);
        let text = overlapping.err().expect("refused").to_string();
        assert!(text.contains("overlap"), "{text}");
        assert!(context.register(memory.at(5000), 8).is_err());
        let _second = context.register(memory.at(0), 4096).expect("memory");
        drop(first);
        let _again = context.register(memory.at(4096), 4096).expect("memory");
    }
}

#[test]
fn transports_name_the_devices() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let transports = context.transports();
    assert!(
        transports.split(' ').any(|one| one == "tcp/lo"),
        "{transports}"
    );
    let worker = Worker::new(&context).expect("a worker");
    assert_eq!(worker.transports(), context.transports());
}

#[test]
fn unknown_devices_and_texts_with_a_zero_byte_are_errors() {
    let Some(library) = ucx() else { return };
    let none = Config {
        tls: Some("tcp".into()),
        net_devices: Some("nowhere0".into()),
        ..Config::default()
    };
    let failure = Context::new(&library, &none).err().expect("no device");
    assert_eq!(failure.call, "ucp_init", "{failure}");
    let zero = Config {
        tls: Some("tcp\0".into()),
        ..Config::default()
    };
    assert!(Context::new(&library, &zero).is_err());
}
