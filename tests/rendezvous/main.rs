//! A rendezvous by TCP among processes that are not ranks, and over a relay that alters what it carries.
//!
//! A sample of both runs by default; `SYMMEM_TESTS=all` alters every byte and message once in each way, and floods 20
//! times for 20 s.
#![cfg(feature = "tcp")]

#[path = "../support/amount.rs"]
#[allow(dead_code, reason = "every test here runs in a sample, too")]
mod amount;
mod flood;
mod relay;

use std::net::TcpListener;
use std::sync::atomic::{AtomicU16, Ordering};

use symmem::bootstrap::{LaunchEnvironment, Secret};

/// Returns an address that no process listens at. Its port is none that the kernel gives to those who connect: such a
/// connection could take it before rank 0 does.
fn free_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = 16_000 + (std::process::id() % 1_500) as u16 * 10;
    loop {
        let port = 16_000 + (first - 16_000 + NEXT.fetch_add(1, Ordering::Relaxed)) % 15_000;
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

/// Returns the environment of a rank that goes to `address`.
fn place(rank: u32, world: u32, address: &str, secret: &Secret) -> LaunchEnvironment {
    let mut place = LaunchEnvironment::local(rank, world, "unused").unwrap();
    place.job = None;
    place.address = Some(address.to_owned());
    place.secret = Some(secret.clone());
    place
}
