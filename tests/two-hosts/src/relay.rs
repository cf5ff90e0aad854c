//! A switch that delays: it reads frames from each port and writes them to another one after a fixed time.

use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use std::collections::VecDeque;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Length of the header with the state of offloads, `struct virtio_net_hdr`, that comes with each frame.
const OFFLOADS: usize = 10;

/// The longest frame, with its header: 64 KiB joined by offload, and room for Ethernet's.
const LONGEST: usize = OFFLOADS + (64 << 10) + 64;

/// Bytes of a socket's queues. What does not fit is lost, as in a switch.
const QUEUE: libc::c_int = 64 << 20;

/// A relay under way; it ends when dropped.
pub struct Relay {
    end: Arc<OwnedFd>,
    thread: Option<JoinHandle<()>>,
}

/// A frame on its way.
struct Frame {
    due: Instant,
    from: usize,
    bytes: Vec<u8>,
}

impl Relay {
    /// Joins interfaces of the calling thread's network namespace.
    pub fn start(ports: &[String], delay: Duration) -> io::Result<Self> {
        let ports: Vec<OwnedFd> = ports
            .iter()
            .map(|name| packet_socket(name))
            .collect::<io::Result<_>>()?;
        let end = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let ends = Arc::clone(&end);
        let thread = std::thread::Builder::new()
            .name("two-hosts-relay".into())
            .spawn(move || run(&ports, &ends, delay))?;
        Ok(Self {
            end,
            thread: Some(thread),
        })
    }
}

impl Drop for Relay {
    fn drop(&mut self) {
        let _ = rustix::io::write(&self.end, &1_u64.to_ne_bytes());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn run(ports: &[OwnedFd], end: &OwnedFd, delay: Duration) {
    // The delay is the same for all, so the frames are in the order of their times.
    let mut waiting = VecDeque::<Frame>::new();
    let mut buffer = vec![0; LONGEST];
    loop {
        let left = waiting.front().map(|frame| {
            let left = frame.due.saturating_duration_since(Instant::now());
            Timespec {
                tv_sec: left.as_secs() as i64,
                tv_nsec: left.subsec_nanos().into(),
            }
        });
        let mut events: Vec<PollFd> = ports
            .iter()
            .chain([end])
            .map(|socket| PollFd::new(socket, PollFlags::IN))
            .collect();
        // Interrupted at worst.
        let _ = poll(&mut events, left.as_ref());
        if events[ports.len()].revents() != PollFlags::empty() {
            return;
        }
        for (from, port) in ports.iter().enumerate() {
            if events[from].revents() != PollFlags::empty() {
                // A link that goes down is an error once, which this call takes away.
                while let Ok(length @ 1..) =
                    rustix::net::recv(port, &mut buffer[..], rustix::net::RecvFlags::DONTWAIT)
                        .map(|(length, _)| length)
                {
                    let bytes = buffer[..length].to_vec();
                    let due = Instant::now() + delay;
                    waiting.push_back(Frame { due, from, bytes });
                }
            }
        }
        let now = Instant::now();
        while waiting.front().is_some_and(|frame| frame.due <= now) {
            if let Some(frame) = waiting.pop_front() {
                frame.send(ports);
            }
        }
    }
}

impl Frame {
    /// Sends the frame to the port of its address, or to all others.
    fn send(&self, ports: &[OwnedFd]) {
        let Some(address) = self.bytes.get(OFFLOADS..OFFLOADS + 6) else {
            return;
        };
        let is_for_all = address[0] & 1 == 1;
        let to = usize::from(address[5]);
        for (number, port) in ports.iter().enumerate() {
            if number != self.from && (is_for_all || number == to) {
                // A link that is down or a queue that is full loses the frame.
                let flags = rustix::net::SendFlags::DONTWAIT;
                let _ = rustix::net::send(port, &self.bytes, flags);
            }
        }
    }
}

/// Opens a socket for all frames that arrive at an interface.
fn packet_socket(interface: &str) -> io::Result<OwnedFd> {
    let name = CString::new(interface)?;
    // SAFETY: the name ends with a zero byte.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // Without a protocol it receives nothing until it is bound.
    // SAFETY: the call takes numbers only.
    let socket = check(unsafe { libc::socket(libc::AF_PACKET, kind, 0) })?;
    // SAFETY: the descriptor is new, and nothing else owns it.
    let socket = unsafe { OwnedFd::from_raw_fd(socket) };
    // With the state of offloads, frames stay joined and checksums may be left to the receiver.
    set(&socket, libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
    // Else it would receive what it sends.
    set(&socket, libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
    set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, QUEUE)
        .or_else(|_| set(&socket, libc::SOL_SOCKET, libc::SO_RCVBUF, QUEUE))?;
    set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUFFORCE, QUEUE)
        .or_else(|_| set(&socket, libc::SOL_SOCKET, libc::SO_SNDBUF, QUEUE))?;
    // SAFETY: all zeros is a value of this structure of numbers.
    let mut address: libc::sockaddr_ll = unsafe { std::mem::zeroed() };
    address.sll_family = libc::AF_PACKET as u16;
    address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
    address.sll_ifindex = index as i32;
    let length = size_of_val(&address) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of the structure.
    check(unsafe { libc::bind(socket.as_raw_fd(), (&raw const address).cast(), length) })?;
    Ok(socket)
}

fn set(socket: &OwnedFd, level: i32, option: i32, value: libc::c_int) -> io::Result<()> {
    let length = size_of_val(&value) as libc::socklen_t;
    // SAFETY: the pointer and the length are those of `value`.
    let result = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            level,
            option,
            (&raw const value).cast(),
            length,
        )
    };
    check(result).map(drop)
}

fn check(result: libc::c_int) -> io::Result<libc::c_int> {
    match result {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(result),
    }
}
