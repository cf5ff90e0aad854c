//! Bandwidth of puts and latency of signals between two processes, for comparison with `ucx_perftest`.
//!
//! ```text
//! perf server 0.0.0.0:7000
//! perf client HOST:7000
//! ```
//!
//! Transports and devices come from `UCX_TLS` and `UCX_NET_DEVICES`. Both processes poll. Prints a line per size:
//! the bandwidth in MB/s (10^6 bytes) of a window of puts and a flush, median and best window; then one-way latencies.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use symmem_ucx::{Config, Context, Endpoint, Library, Operation, Poll, RemoteKey, Worker};

/// The largest put, in bytes.
const MOST: usize = 64 << 20;
/// Bytes in flight at most, unless one put has more.
const WINDOW: usize = 64 << 20;
/// Measured for each size.
const TIME: Duration = Duration::from_millis(1500);
const SIGNAL: u16 = 1;
const STOP: u64 = u64::MAX;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, role, place] = &arguments[..] else {
        eprintln!("usage: perf server|client HOST:PORT");
        std::process::exit(2);
    };
    let mut socket = match role.as_str() {
        "server" => {
            TcpListener::bind(place)
                .expect("a free port")
                .accept()
                .expect("a client")
                .0
        }
        _ => connect(place),
    };
    let side = Side::open(&mut socket);
    match role.as_str() {
        "server" => side.serve(),
        _ => side.measure(),
    }
}

fn connect(place: &str) -> TcpStream {
    let start = Instant::now();
    loop {
        match TcpStream::connect(place) {
            Ok(socket) => return socket,
            Err(error) if start.elapsed() > Duration::from_secs(10) => panic!("{place}: {error}"),
            Err(_) => std::thread::sleep(Duration::from_millis(20)),
        }
    }
}

fn exchange(socket: &mut TcpStream, content: &[u8]) -> Vec<u8> {
    socket
        .write_all(&(content.len() as u64).to_le_bytes())
        .expect("sent");
    socket.write_all(content).expect("sent");
    let mut length = [0; 8];
    socket.read_exact(&mut length).expect("received");
    let mut answer = vec![0; u64::from_le_bytes(length) as usize];
    socket.read_exact(&mut answer).expect("received");
    answer
}

struct Side {
    worker: Worker,
    endpoint: Endpoint,
    key: RemoteKey,
    remote: u64,
    memory: *mut u8,
    /// The newest signal's number.
    arrived: Arc<AtomicU64>,
}

impl Side {
    fn open(socket: &mut TcpStream) -> Self {
        let library = Library::open().expect("UCX");
        let context = Context::new(&library, &Config::default()).expect("a context");
        let memory = vec![1_u8; MOST].leak().as_mut_ptr();
        // SAFETY: the memory is never freed.
        let registered = unsafe { context.register(memory, MOST) }.expect("memory");
        let registered = Box::leak(Box::new(registered));
        let worker = Worker::new(&context).expect("a worker");
        let arrived = Arc::<AtomicU64>::default();
        let newest = arrived.clone();
        let raise = move |header: &[u8], _: &[u8]| {
            let number = u64::from_le_bytes(header.try_into().expect("8 bytes"));
            newest.store(number, Ordering::Release);
        };
        worker
            .on_message(SIGNAL, Box::new(raise))
            .expect("a handler");
        let address = exchange(socket, worker.address());
        let key = exchange(socket, &registered.packed_key().expect("a key"));
        let remote = exchange(socket, &registered.address().to_le_bytes());
        let endpoint = worker.connect(1, &address).expect("an endpoint");
        let key = endpoint.unpack(&key).expect("a key");
        println!("UCX {}: {}", library.version(), worker.transports());
        Self {
            worker,
            endpoint,
            key,
            remote: u64::from_le_bytes(remote.try_into().expect("8 bytes")),
            memory,
            arrived,
        }
    }

    fn finish(&self, operation: &Operation) {
        loop {
            match operation.poll() {
                Poll::Pending => self.worker.progress(),
                Poll::Done => return,
                Poll::Failed(failure) => panic!("{failure}"),
            };
        }
    }

    fn put(&self, bytes: usize) -> Operation {
        // SAFETY: the memory is never freed, nor the peer's.
        unsafe {
            self.endpoint
                .put(self.memory, bytes, self.remote, &self.key)
        }
        .expect("a put")
    }

    fn flush(&self) {
        self.finish(&self.endpoint.flush().expect("a flush"));
    }

    fn wait_for(&self, number: u64) {
        while self.arrived.load(Ordering::Acquire) < number {
            self.worker.progress();
        }
    }

    /// Answers signal by signal, in the way of the latest kind: the number's upper half says which.
    fn serve(&self) {
        let mut last = 0;
        loop {
            let number = self.arrived.load(Ordering::Acquire);
            if number == STOP {
                return;
            }
            if number == last {
                self.worker.progress();
                continue;
            }
            last = number;
            self.send((number >> 32) as usize, number);
        }
    }

    /// Sends 8 bytes and a signal. Kind 0: the signal alone; 1: put, flush, signal; 2: put and signal, not ordered; 3:
    /// both in one message.
    fn send(&self, kind: usize, number: u64) {
        match kind {
            1 => {
                drop(self.put(8));
                self.flush();
            }
            2 => drop(self.put(8)),
            _ => {}
        }
        let signal = match kind {
            3 => {
                let header = number.to_le_bytes();
                // SAFETY: the source is readable.
                unsafe {
                    let source = [7; 8].as_ptr();
                    self.endpoint
                        .put_and_send(source, 8, self.remote, &self.key, SIGNAL, &header)
                }
            }
            _ => self.endpoint.send(SIGNAL, &number.to_le_bytes(), &[]),
        };
        self.finish(&signal.expect("a signal"));
    }

    fn measure(&self) {
        let mut bytes = 64 << 10;
        while bytes <= MOST {
            let count = (WINDOW / bytes).clamp(1, 64);
            let window = || {
                let puts: Vec<_> = (0..count).map(|_| self.put(bytes)).collect();
                for put in &puts {
                    self.finish(put);
                }
            };
            window();
            self.flush();
            let (start, mut rates) = (Instant::now(), Vec::new());
            while start.elapsed() < TIME {
                let begin = Instant::now();
                window();
                self.flush();
                rates.push((count * bytes) as f64 / begin.elapsed().as_secs_f64() / 1e6);
            }
            rates.sort_by(f64::total_cmp);
            let (median, best) = (rates[rates.len() / 2], rates[rates.len() - 1]);
            println!("put {bytes:>9} bytes: {median:8.1} MB/s, best {best:8.1}");
            bytes *= 4;
        }
        let names = ["signal", "put+flush+signal", "put+signal", "put_and_send"];
        for (kind, name) in names.into_iter().enumerate() {
            let mut times = Vec::new();
            for turn in 1..=20_000 {
                let number = (kind as u64) << 32 | turn;
                let start = Instant::now();
                self.send(kind, number);
                self.wait_for(number);
                times.push(start.elapsed() / 2);
            }
            times.sort();
            let mean = times.iter().sum::<Duration>() / times.len() as u32;
            let microseconds = |time: Duration| time.as_secs_f64() * 1e6;
            println!(
                "{name:>17}: {:6.2} us one way (mean {:.2})",
                microseconds(times[times.len() / 2]),
                microseconds(mean)
            );
        }
        let stop = self.endpoint.send(SIGNAL, &STOP.to_le_bytes(), &[]);
        self.finish(&stop.expect("a signal"));
        // The peer ends when it has read this.
        while self.endpoint.failure().is_none() {
            self.worker.progress();
        }
    }
}
