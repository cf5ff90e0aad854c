//! Tests of a rendezvous at `host:port`.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU16, Ordering};

use rustix::process::{Pid, Signal, kill_process};

use super::key::Key;
use super::*;

/// Returns an address that no process listens at. Its port is none that the kernel gives to those who connect: such a
/// connection could take it before rank 0 does.
pub(super) fn tcp_address() -> String {
    static NEXT: AtomicU16 = AtomicU16::new(0);
    let first = (std::process::id() % 1_000) as u16 * 10;
    loop {
        let port = 10_000 + (first + NEXT.fetch_add(1, Ordering::Relaxed)) % 6_000;
        let address = format!("127.0.0.1:{port}");
        if TcpListener::bind(&address).is_ok() {
            return address;
        }
    }
}

pub(super) fn tcp_place(
    rank: u32,
    world: u32,
    address: &str,
    secret: &Secret,
) -> LaunchEnvironment {
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
fn a_rank_of_the_next_version_is_told_of_the_versions() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let environment = tcp_place(1, 2, &address, &secret);
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(tcp_place(0, 2, &address, &secret), LONG));
        let meeting = Meeting::of(&environment, LONG, None).unwrap();
        let store = Store::new(1, 2, meeting.reach(&meeting.address).unwrap(), None);
        let (version, rank) = (VERSION + 1, 1);
        let join = Request::ForeignJoin { version, rank };
        for error in [
            store.join(&join, LONG, None).unwrap_err(),
            rank_0.join().unwrap().unwrap_err(),
        ] {
            let named = matches!(
                error,
                BootstrapError::VersionMismatch { peer: 1, version, .. } if version == VERSION + 1
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
    let ends_with = |mut refused: TcpStream, answer: &[u8]| {
        refused.set_read_timeout(Some(LONG)).unwrap();
        let mut received = Vec::new();
        let _ = refused.read_to_end(&mut received);
        assert_eq!(received, answer);
    };
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(tcp_place(0, 2, &address, &secret), LONG));
        let mut garbage = raw();
        garbage.write_all(&[0xff; 56]).unwrap();
        ends_with(garbage, b"");
        let mut shown = raw();
        let hello = handshake::unix::hello(&Key::Secret(secret.clone()));
        shown.write_all(&[hello, vec![0; 56]].concat()).unwrap();
        ends_with(shown, b"");
        let mut false_proof = raw();
        let hello = [b"symmem\0N".as_slice(), &[1; 48]].concat();
        false_proof.write_all(&hello).unwrap();
        // The bytes behind the greeting would be a valid message; the store never reads them.
        let join = Request::ForeignJoin {
            version: 9,
            rank: 1,
        };
        let _ = false_proof.write_all(&join.encode(1, 0));
        ends_with(false_proof, b"refused\n");
        let rank_1 = Bootstrap::connect(tcp_place(1, 2, &address, &secret), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

/// What becomes of a rank whose connections `listener` treats in this way.
fn rank_1_at(listener: impl FnOnce(TcpListener) + Send + 'static) -> (String, String) {
    let socket = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap().to_string();
    std::thread::spawn(move || listener(socket));
    let secret = Secret::random().unwrap();
    let error = Bootstrap::connect(tcp_place(1, 2, &address, &secret), SHORT).unwrap_err();
    let BootstrapError::ConnectionLost {
        rank: 1,
        ref connection,
        ref ranks,
        ref reason,
    } = error
    else {
        panic!("{error}");
    };
    assert_eq!(error.peer(), None, "no rank is to blame");
    assert_eq!(*ranks, [1], "{error}");
    assert!(connection.ends_with(&format!(" to {address}")), "{error}");
    (connection.clone(), reason.clone())
}

#[test]
fn a_listener_that_is_silent_or_closes_is_named_by_its_connection() {
    let (_, reason) = rank_1_at(|listener| {
        let _held = listener.accept().unwrap();
        std::thread::sleep(LONG);
    });
    assert!(reason.contains("no answer"), "{reason}");
    let (_, reason) = rank_1_at(|listener| {
        while let Ok((stream, _)) = listener.accept() {
            drop(stream);
        }
    });
    assert!(reason.contains("cut"), "{reason}");
}

#[test]
fn a_listener_that_cannot_prove_the_secret_is_refused() {
    for answer in [
        &b"refused\n"[..],
        b"HTTP/1.1",
        &[b"welcome\n".as_slice(), &[7; 48]].concat(),
    ] {
        let answer = answer.to_vec();
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = socket.local_addr().unwrap().to_string();
        let secret = Secret::random().unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let (mut stream, _) = socket.accept().unwrap();
                stream.write_all(&answer).unwrap();
                let _ = stream.read_to_end(&mut Vec::new());
            });
            let error = Bootstrap::connect(tcp_place(1, 2, &address, &secret), LONG).unwrap_err();
            let BootstrapError::WrongSecret { address: named, .. } = &error else {
                panic!("{error}");
            };
            assert!(named.contains(&format!(" to {address}")), "{named}");
        });
    }
}

#[test]
fn a_connection_that_is_cut_after_the_proof_fails_the_rendezvous_at_once_and_is_named() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    let places = [0, 1, 2].map(|rank| tcp_place(rank, 4, &address, &secret));
    let [rank_0, rank_1, cut] = places;
    let start = Instant::now();
    std::thread::scope(|scope| {
        let ranks = [rank_0, rank_1].map(|place| scope.spawn(|| Bootstrap::connect(place, LONG)));
        let meeting = Meeting::of(&cut, LONG, None).unwrap();
        let proved = meeting.reach(&meeting.address).unwrap();
        let name = proved.connection().unwrap();
        // The proof travels with the first bytes.
        proved.send_all(&[0], meeting.until).unwrap();
        drop(proved);
        for rank in ranks {
            let error = rank.join().unwrap().unwrap_err();
            assert_eq!(error.peer(), None, "{error}");
            let named = matches!(
                &error,
                BootstrapError::ConnectionLost { connection, ranks, .. }
                    if *connection == name && ranks.contains(&2)
            );
            assert!(named, "{error}");
        }
    });
    assert!(start.elapsed() < AT_ONCE + coordinator::FAREWELL);
}

#[test]
fn a_rank_that_gives_up_says_so_and_fails_nobody() {
    let (address, secret) = (tcp_address(), Secret::random().unwrap());
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(tcp_place(0, 2, &address, &secret), LONG));
        let gives_up = tcp_place(1, 2, &address, &secret);
        let meeting = Meeting::of(&gives_up, LONG, None).unwrap();
        let stream = meeting.reach(&meeting.address).unwrap();
        drop(Store::new(1, 2, stream, None));
        let rank_1 = Bootstrap::connect(gives_up.clone(), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

/// Carries a rank's connections to `store`. While the first is in the handshake, process `child` is stopped for longer
/// than a handshake may take: after the store's answer, before the rank's confirmation has arrived.
fn stop_in_the_handshake(listener: &TcpListener, store: &str, child: Pid) {
    let mut is_first = true;
    while let Ok((mut rank, _)) = listener.accept() {
        let mut rank_0 = loop {
            match TcpStream::connect(store) {
                Ok(stream) => break stream,
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        };
        if std::mem::take(&mut is_first) {
            let mut part = [0; 56];
            rank.read_exact(&mut part).unwrap();
            rank_0.write_all(&part).unwrap();
            rank_0.read_exact(&mut part).unwrap();
            kill_process(child, Signal::STOP).unwrap();
            let identity = ProcessIdentity::of(child.as_raw_nonzero().get() as u32).unwrap();
            while !identity.is_stopped() {
                std::thread::yield_now();
            }
            rank.write_all(&part).unwrap();
            std::thread::sleep(handshake::HANDSHAKE_DEADLINE + Duration::from_secs(1));
            std::thread::spawn(move || {
                std::thread::sleep(SHORT);
                kill_process(child, Signal::CONT).unwrap();
            });
        }
        let (mut from, mut to) = (rank.try_clone().unwrap(), rank_0.try_clone().unwrap());
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut from, &mut to);
            let _ = to.shutdown(Shutdown::Write);
        });
        std::thread::spawn(move || {
            let _ = std::io::copy(&mut rank_0, &mut rank);
            let _ = rank.shutdown(Shutdown::Write);
        });
    }
}

#[test]
fn a_process_that_is_stopped_for_longer_than_a_handshake_may_take_is_in_nonetheless() {
    const NAME: &str =
        "tcp::a_process_that_is_stopped_for_longer_than_a_handshake_may_take_is_in_nonetheless";
    if let Some(role) = role() {
        let [rank, address, secret] = role.split(' ').collect::<Vec<_>>().try_into().unwrap();
        let secret = Secret::from_hex(secret).unwrap();
        let place = tcp_place(rank.parse().unwrap(), 2, address, &secret);
        Bootstrap::connect(place, LONG).unwrap();
        return;
    }
    let run = |stopped: u32| {
        let (store, secret) = (tcp_address(), Secret::random().unwrap());
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let relay = listener.local_addr().unwrap().to_string();
        let addresses = [store.clone(), relay];
        let address = |rank: u32| &addresses[rank as usize];
        let role = format!("{stopped} {} {}", address(stopped), secret.to_hex());
        let mut child = child(NAME, &role);
        let pid = Pid::from_child(&child);
        std::thread::spawn(move || stop_in_the_handshake(&listener, &store, pid));
        let other = 1 - stopped;
        let met = Bootstrap::connect(tcp_place(other, 2, address(other), &secret), LONG);
        assert!(met.is_ok(), "rank {stopped} was stopped: {met:?}");
        assert!(child.wait().unwrap().success(), "rank {stopped}");
    };
    std::thread::scope(|scope| {
        for stopped in [0, 1] {
            scope.spawn(move || run(stopped));
        }
    });
}
