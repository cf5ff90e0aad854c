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
fn an_atomic_outside_of_registered_memory_fails_and_touches_nothing() {
    let Some(library) = ucx() else { return };
    let context = Context::new(&library, &tcp()).expect("a context");
    let worker = Worker::new(&context).expect("a worker");
    let to_self = worker.connect(9, worker.address()).expect("an endpoint");
    let memory = Bytes::filled(&[0; 64]);
    // SAFETY: dropped before `memory`.
    let registered = unsafe { context.register(memory.at(8), 40) }.expect("memory");
    let key = registered.packed_key().expect("a key");
    let key = to_self.unpack(&key).expect("a key");
    for (offset, inside) in [(-8_i64, false), (0, true), (32, true), (40, false)] {
        let (null, at) = (std::ptr::null_mut(), registered.address());
        let at = at.wrapping_add_signed(offset);
        // SAFETY: there is no result.
        let add = unsafe { to_self.atomic(Atomic::Add, 64, 1, 0, null, at, &key) };
        match finish(&worker, &add.expect("an atomic")) {
            Poll::Done => assert!(inside, "offset {offset}"),
            Poll::Failed(failure) => assert!(!inside && failure.peer == Some(9), "{failure}"),
            Poll::Pending => panic!("offset {offset} is pending"),
        }
    }
    let words: Vec<u64> = (0..8).map(|index| memory.word(8 * index)).collect();
    assert_eq!(words, [0, 1, 0, 0, 0, 1, 0, 0]);
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
