//! Tests of a rendezvous at `host:port`.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::os::fd::AsFd;

use super::key::Key;
use super::*;

/// A port that was free a moment ago.
fn tcp_address() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().to_string()
}

fn tcp_place(rank: u32, world: u32, address: &str, secret: &Secret) -> LaunchEnvironment {
    let mut environment = place(rank, world, "unused");
    environment.job = None;
    environment.address = Some(address.to_owned());
    environment.secret = Some(secret.clone());
    environment
}

#[test]
fn ranks_meet_at_a_tcp_address_and_still_exchange_descriptors() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = (0..4)
        .map(|rank| tcp_place(rank, 4, &address, &secret))
        .collect();
    let ranks: Vec<Bootstrap> = connect_all(ranks, LONG)
        .into_iter()
        .map(Result::unwrap)
        .collect();
    std::thread::scope(|scope| {
        for rank in &ranks {
            scope.spawn(|| {
                let null = std::fs::File::open("/dev/null").unwrap();
                let all = rank.store().all_gather_with_descriptors(
                    "share",
                    b"x",
                    Some(null.as_fd()),
                    LONG,
                );
                assert!(all.unwrap().iter().all(|part| part.descriptor.is_some()));
            });
        }
    });
}

#[test]
fn a_tcp_address_needs_a_secret_and_the_right_one() {
    let mut open = place(0, 1, "job");
    open.address = Some(tcp_address());
    let error = Bootstrap::connect(open, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::SecretMissing { .. }),
        "{error}"
    );
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let ranks = vec![
        tcp_place(0, 2, &address, &secret),
        tcp_place(1, 2, &address, &Secret::random().unwrap()),
    ];
    let mut results = connect_all(ranks, Duration::from_secs(1)).into_iter();
    assert!(
        matches!(results.next(), Some(Err(BootstrapError::Timeout { missing, .. })) if missing == [1])
    );
    assert!(matches!(
        results.next(),
        Some(Err(BootstrapError::WrongSecret { rank: 1, .. }))
    ));
}

#[test]
fn ranks_of_two_generations_at_one_tcp_address_are_told() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let mut late = tcp_place(1, 2, &address, &secret);
    late.generation = 1;
    for result in connect_all(vec![tcp_place(0, 2, &address, &secret), late], LONG) {
        let error = result.unwrap_err();
        assert!(
            matches!(error, BootstrapError::GenerationMismatch { peer: 1, .. }),
            "{error}"
        );
    }
}

#[test]
fn a_rank_of_the_version_before_is_told_of_the_versions() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let environment = tcp_place(1, 2, &address, &secret);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(tcp_place(0, 2, &address, &secret), LONG));
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let store = Store::new(1, 2, meeting.reach(&meeting.address).unwrap(), None);
        let (version, rank) = (VERSION - 1, 1);
        let join = Request::ForeignJoin { version, rank };
        for error in [
            store.join(&join, LONG, None).unwrap_err(),
            rank_0.join().unwrap().unwrap_err(),
        ] {
            let named = matches!(
                error,
                BootstrapError::VersionMismatch {
                    peer: 1,
                    version: 1,
                    ..
                }
            );
            assert!(named, "{error}");
        }
    });
}

#[test]
fn strangers_are_dropped_and_the_secret_itself_opens_nothing() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let raw = || {
        let start = Instant::now();
        loop {
            match TcpStream::connect(&address) {
                Ok(stream) => return stream,
                Err(error) => assert!(start.elapsed() < LONG, "{error}"),
            }
        }
    };
    let ends = |mut refused: TcpStream| {
        refused.set_read_timeout(Some(LONG)).unwrap();
        let mut received = Vec::new();
        let _ = refused.read_to_end(&mut received);
        assert_eq!(received, b"", "not one byte in answer");
    };
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(tcp_place(0, 2, &address, &secret), LONG));
        let mut garbage = raw();
        garbage.write_all(&[0xff; 40]).unwrap();
        ends(garbage);
        let mut shown = raw();
        let hello = handshake::unix::hello(&Key::Secret(secret.clone()));
        shown.write_all(&hello).unwrap();
        ends(shown);
        let mut false_proof = raw();
        let hello = [b"symmem\0\n".as_slice(), &[1; 32]].concat();
        false_proof.write_all(&hello).unwrap();
        false_proof.read_exact(&mut [0; 64]).unwrap();
        // The bytes behind the proof would be a valid message; the store never reads them.
        false_proof.write_all(&[2; 32]).unwrap();
        let join = Request::ForeignJoin {
            version: 9,
            rank: 1,
        };
        let _ = false_proof.write_all(&join.encode(1, 0));
        ends(false_proof);
        let rank_1 = Bootstrap::connect(tcp_place(1, 2, &address, &secret), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}
