//! A second process with memory that the first one accesses, and a socket to command it.

#![allow(dead_code, reason = "each test file uses a part")]

use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use symmem_ucx::{Config, Context, Endpoint, Library, LoadError, Memory, Operation, Poll};
use symmem_ucx::{RemoteKey, Worker};

/// Set in the second process.
const ROLE: &str = "SYMMEM_UCX_TEST_PEER";
/// Bytes of the second process's memory.
pub const MEMORY_BYTES: usize = 8 << 20;
/// No test waits longer for anything.
pub const LIMIT: Duration = Duration::from_secs(20);
/// The identifier of messages that the second process collects.
pub const COLLECTED: u16 = 7;
/// The identifier of messages that the second process sends back.
pub const RETURNED: u16 = 8;

/// Returns UCX, or prints why the test is skipped.
pub fn ucx() -> Option<Library> {
    match Library::open() {
        Ok(library) => Some(library),
        Err(error @ LoadError::NotFound { .. }) => {
            let name = std::thread::current().name().map(str::to_owned);
            println!("skipped {}: {error}", name.unwrap_or_default());
            None
        }
        Err(error) => panic!("{error}"),
    }
}

pub fn tcp() -> Config {
    Config {
        tls: Some("tcp,self".into()),
        net_devices: Some("lo".into()),
        ..Config::default()
    }
}

/// Memory that two processes write: only raw pointers refer to it.
pub struct Bytes {
    start: *mut u64,
    bytes: usize,
}

// SAFETY: all access is volatile, by copying or atomic, as to memory that another process writes.
unsafe impl Send for Bytes {}
// SAFETY: as above.
unsafe impl Sync for Bytes {}

impl Bytes {
    pub fn new(bytes: usize) -> Self {
        let words = vec![0x5555_5555_5555_5555_u64; bytes.div_ceil(8)];
        let start = Box::into_raw(words.into_boxed_slice()).cast();
        Self { start, bytes }
    }

    pub fn filled(content: &[u8]) -> Self {
        let memory = Self::new(content.len().max(8));
        memory.write(0, content);
        memory
    }

    pub fn at(&self, offset: usize) -> *mut u8 {
        assert!(offset <= self.bytes);
        self.start.cast::<u8>().wrapping_add(offset)
    }

    pub fn read(&self, offset: usize, bytes: usize) -> Vec<u8> {
        assert!(offset + bytes <= self.bytes);
        (0..bytes)
            // SAFETY: in bounds, as asserted. A peer may write it: the read is volatile.
            .map(|index| unsafe { self.at(offset + index).read_volatile() })
            .collect()
    }

    pub fn write(&self, offset: usize, content: &[u8]) {
        assert!(offset + content.len() <= self.bytes);
        // SAFETY: in bounds, as asserted.
        unsafe { std::ptr::copy(content.as_ptr(), self.at(offset), content.len()) };
    }

    pub fn word(&self, offset: usize) -> u64 {
        u64::from_le_bytes(self.read(offset, 8).try_into().expect("8 bytes"))
    }
}

impl Drop for Bytes {
    fn drop(&mut self) {
        let words = std::ptr::slice_from_raw_parts_mut(self.start, self.bytes.div_ceil(8));
        // SAFETY: made by `into_raw` in `new`.
        drop(unsafe { Box::from_raw(words) });
    }
}

/// Random bytes that a seed determines (xorshift).
pub fn random(seed: u64, bytes: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..bytes)
        .map(|_| {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 32) as u8
        })
        .collect()
}

/// The first process's side.
pub struct Pair {
    pub worker: Worker,
    /// `None` once a test has closed it.
    pub endpoint: Option<Endpoint>,
    pub key: RemoteKey,
    /// Address of the second process's memory.
    pub remote: u64,
    pub context: Context,
    child: Child,
    socket: UnixStream,
    /// Messages that came back: header and data.
    pub returned: Messages,
}

pub type Messages = Arc<Mutex<Vec<(Vec<u8>, Vec<u8>)>>>;

impl Pair {
    /// Starts the second process, which must have a test `the_other_process` that calls [`serve`].
    pub fn start(library: &Library) -> Self {
        let (ours, theirs) = UnixStream::pair().expect("a socket pair");
        ours.set_read_timeout(Some(LIMIT)).expect("a timeout");
        let child = Command::new(std::env::current_exe().expect("this program"))
            .args(["--exact", "the_other_process", "--nocapture"])
            .env(ROLE, "1")
            .stdin(Stdio::from(OwnedFd::from(theirs)))
            .stdout(Stdio::null())
            .spawn()
            .expect("this program starts");
        let mut socket = ours;
        let context = Context::new(library, &tcp()).expect("a context");
        let worker = Worker::new(&context).expect("a worker");
        let returned = collect(&worker, RETURNED);
        send(&mut socket, worker.address());
        let address = receive(&mut socket);
        let key = receive(&mut socket);
        let remote = receive(&mut socket);
        let endpoint = worker.connect(1, &address).expect("an endpoint");
        let key = endpoint.unpack(&key).expect("a key");
        Self {
            worker,
            endpoint: Some(endpoint),
            key,
            remote: u64::from_le_bytes(remote.try_into().expect("8 bytes")),
            context,
            child,
            socket,
            returned,
        }
    }

    pub fn endpoint(&self) -> &Endpoint {
        self.endpoint.as_ref().expect("open")
    }

    /// Makes progress until the operation is complete.
    pub fn finish(&self, operation: &Operation) -> Poll {
        self.within(LIMIT, operation)
    }

    pub fn within(&self, limit: Duration, operation: &Operation) -> Poll {
        let start = Instant::now();
        while operation.poll() == Poll::Pending && start.elapsed() < limit {
            if !self.worker.progress() {
                self.worker.wait(Duration::from_millis(1)).expect("a wait");
            }
        }
        operation.poll()
    }

    pub fn flush(&self) {
        let flush = self.endpoint().flush().expect("a flush");
        assert_eq!(self.finish(&flush), Poll::Done);
    }

    /// Makes progress until the condition holds.
    pub fn until(&self, what: &str, condition: impl Fn() -> bool) {
        let start = Instant::now();
        while !condition() {
            assert!(start.elapsed() < LIMIT, "{what}");
            if !self.worker.progress() {
                self.worker.wait(Duration::from_millis(1)).expect("a wait");
            }
        }
    }

    /// Returns bytes of the second process's memory, as that process sees them.
    pub fn peek(&mut self, offset: usize, bytes: usize) -> Vec<u8> {
        let mut command = vec![b'r'];
        command.extend((offset as u64).to_le_bytes());
        command.extend((bytes as u64).to_le_bytes());
        send(&mut self.socket, &command);
        receive(&mut self.socket)
    }

    /// Returns the messages that the second process has collected: header and data.
    pub fn collected(&mut self) -> Vec<(Vec<u8>, Vec<u8>)> {
        send(&mut self.socket, b"m");
        let count = receive(&mut self.socket);
        let count = u64::from_le_bytes(count.try_into().expect("8 bytes"));
        (0..count)
            .map(|_| (receive(&mut self.socket), receive(&mut self.socket)))
            .collect()
    }

    /// Lets the second process stop calling UCX for a time.
    pub fn pause(&mut self, time: Duration) {
        let mut command = vec![b'p'];
        command.extend((time.as_millis() as u64).to_le_bytes());
        send(&mut self.socket, &command);
        assert_eq!(receive(&mut self.socket), b"paused");
    }

    /// Kills the second process (SIGKILL).
    pub fn kill(&mut self) {
        self.child.kill().expect("the child runs");
        self.child.wait().expect("the child has ended");
    }

    /// Lets the second process close its endpoint without force. It goes on running.
    pub fn leave(&mut self) {
        send(&mut self.socket, b"q");
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

pub fn collect(worker: &Worker, identifier: u16) -> Messages {
    let messages = Messages::default();
    let collected = messages.clone();
    let handler = move |header: &[u8], data: &[u8]| {
        let message = (header.to_vec(), data.to_vec());
        collected.lock().expect("a lock").push(message);
    };
    worker
        .on_message(identifier, Box::new(handler))
        .expect("a handler");
    messages
}

/// Runs the second process. Returns at once in the first one.
pub fn serve() {
    if std::env::var_os(ROLE).is_none() {
        return;
    }
    let stdin = std::io::stdin().as_fd().try_clone_to_owned();
    let mut socket = UnixStream::from(stdin.expect("a descriptor"));
    let library = Library::open().expect("UCX");
    let context = Context::new(&library, &tcp()).expect("a context");
    let bytes = Bytes::new(MEMORY_BYTES);
    // SAFETY: `bytes` is dropped later, when the first process has stopped.
    let memory: Memory = unsafe { context.register(bytes.at(0), MEMORY_BYTES) }.expect("memory");
    let worker = Worker::new(&context).expect("a worker");
    let collected = collect(&worker, COLLECTED);
    let address = receive(&mut socket);
    let endpoint = worker.connect(0, &address).expect("an endpoint");
    let endpoint = Arc::new(Mutex::new(Some(endpoint)));
    let back = endpoint.clone();
    let answer = move |header: &[u8], data: &[u8]| {
        // A handler may send. Its operation is dropped while it is pending.
        if let Some(back) = &*back.lock().expect("a lock") {
            drop(back.send(RETURNED, header, data));
        }
    };
    worker
        .on_message(RETURNED, Box::new(answer))
        .expect("a handler");
    send(&mut socket, worker.address());
    send(&mut socket, &memory.packed_key().expect("a key"));
    send(&mut socket, &memory.address().to_le_bytes());
    socket.set_nonblocking(true).expect("a mode");
    loop {
        while worker.progress() {}
        worker.wait(Duration::from_millis(1)).expect("a wait");
        let mut first = [0; 8];
        match socket.read(&mut first[..1]) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Ok(1) => {}
            // The first process has ended.
            _ => return,
        }
        socket.set_nonblocking(false).expect("a mode");
        socket.read_exact(&mut first[1..]).expect("a length");
        let mut command = vec![0; u64::from_le_bytes(first) as usize];
        socket.read_exact(&mut command).expect("a command");
        let number = |index: usize| {
            let at = 1 + 8 * index;
            u64::from_le_bytes(command[at..at + 8].try_into().expect("8 bytes")) as usize
        };
        match command[0] {
            b'r' => send(&mut socket, &bytes.read(number(0), number(1))),
            b'p' => {
                send(&mut socket, b"paused");
                std::thread::sleep(Duration::from_millis(number(0) as u64));
            }
            b'm' => {
                let messages = std::mem::take(&mut *collected.lock().expect("a lock"));
                send(&mut socket, &(messages.len() as u64).to_le_bytes());
                for (header, data) in messages {
                    send(&mut socket, &header);
                    send(&mut socket, &data);
                }
            }
            _ => {
                let left = endpoint.lock().expect("a lock").take().expect("open");
                drop(left.close(false));
            }
        }
        socket.set_nonblocking(true).expect("a mode");
    }
}

fn send(socket: &mut UnixStream, content: &[u8]) {
    let length = (content.len() as u64).to_le_bytes();
    socket.write_all(&length).expect("the other process reads");
    socket.write_all(content).expect("the other process reads");
}

fn receive(socket: &mut UnixStream) -> Vec<u8> {
    let mut length = [0; 8];
    socket
        .read_exact(&mut length)
        .expect("the other process writes");
    let mut content = vec![0; u64::from_le_bytes(length) as usize];
    socket
        .read_exact(&mut content)
        .expect("the other process writes");
    content
}
