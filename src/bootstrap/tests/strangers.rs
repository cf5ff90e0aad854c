//! Who is kept out, and that it costs the ranks nothing.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixStream;

use super::*;

fn raw(job: &str) -> UnixStream {
    raw_at(&Meeting::of(&place(1, 2, job), LONG, None).unwrap().address)
}

/// A connection to rank 0, as soon as it listens, that has not said anything.
fn raw_at(address: &Address) -> UnixStream {
    let Address::Unix(name) = address else {
        panic!("the default is a Unix socket")
    };
    let name = std::os::unix::net::SocketAddr::from_abstract_name(name).unwrap();
    let start = Instant::now();
    loop {
        match UnixStream::connect_addr(&name) {
            Ok(stream) => return stream,
            Err(error) => assert!(start.elapsed() < LONG, "{error}"),
        }
        std::thread::yield_now();
    }
}

#[test]
fn strangers_are_dropped_and_delay_nobody() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        // Silent, half a greeting, garbage, and a greeting with a false proof.
        let _silent: Vec<UnixStream> = (0..40).map(|_| raw(&job)).collect();
        let mut half = raw(&job);
        half.write_all(b"symmem").unwrap();
        let mut garbage = raw(&job);
        garbage.write_all(&[0xff; handshake::HELLO_BYTES]).unwrap();
        let mut false_proof = raw(&job);
        let hello = [b"symmem\0\n".as_slice(), &[1; 32]].concat();
        false_proof.write_all(&hello).unwrap();
        false_proof.read_exact(&mut [0; 64]).unwrap();
        // What follows the proof would be a valid message; it is never looked at.
        false_proof.write_all(&[2; 32]).unwrap();
        let _ = false_proof.write_all(
            &Request::ForeignJoin {
                version: 9,
                rank: 1,
            }
            .encode(1, 0),
        );
        for mut refused in [garbage, false_proof] {
            refused.set_read_timeout(Some(LONG)).unwrap();
            assert!(
                matches!(refused.read(&mut [0; 8]), Ok(0) | Err(_)),
                "not one byte in answer"
            );
        }
        let start = Instant::now();
        let rank_1 = Bootstrap::connect(place(1, 2, &job), LONG).unwrap();
        assert!(start.elapsed() < AT_ONCE, "{:?}", start.elapsed());
        let rank_0 = rank_0.join().unwrap().unwrap();
        scope.spawn(move || rank_0.store().barrier("both", LONG).unwrap());
        rank_1.store().barrier("both", LONG).unwrap();
    });
}

#[test]
fn a_rank_with_another_secret_is_refused() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        let stream = raw(&job);
        let environment = place(1, 2, &job);
        let mut meeting = Meeting::of(&environment, LONG, None).unwrap();
        meeting.secret = Secret::random().unwrap();
        drop(stream);
        let error = meeting.join(meeting.address.clone()).unwrap_err();
        assert!(
            matches!(error, BootstrapError::WrongSecret { rank: 1, .. }),
            "{error}"
        );
        assert!(rank_0.join().unwrap().is_err());
    });
}

#[test]
fn another_user_is_refused_on_both_sides() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let job = job();
    let environment = place(1, 2, &job);
    let meeting = Meeting::of(&environment, LONG, None).unwrap();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        drop(raw(&job));
        // The system call changes the user of this thread only.
        scope.spawn(|| {
            let (root, nobody) = (
                rustix::process::Uid::ROOT,
                rustix::process::Uid::from_raw(65534),
            );
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            let error = meeting.reach(&meeting.address).unwrap_err();
            assert!(
                matches!(
                    error,
                    BootstrapError::ForeignUser {
                        rank: 1,
                        uid: 0,
                        ..
                    }
                ),
                "{error}"
            );
            // One that does not look at who listens gets no further.
            let mut stranger = raw_at(&meeting.address);
            let _ = stranger.write_all(&[b"symmem\0\n".as_slice(), &[1; 32]].concat());
            assert!(
                matches!(stranger.read(&mut [0; 64]), Ok(0) | Err(_)),
                "not one byte in answer"
            );
        });
        assert!(matches!(
            rank_0.join().unwrap(),
            Err(BootstrapError::Timeout { .. })
        ));
    });
}

#[test]
fn an_oversized_message_ends_its_sender_and_is_reported() {
    let ranks = Bootstrap::threads(3, LONG).unwrap();
    let header = [
        &(frame::MAX_BODY as u32 + 1).to_le_bytes()[..],
        &[2, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0],
    ];
    rustix::io::write(ranks[1].store(), &header.concat()).unwrap();
    for rank in [&ranks[0], &ranks[2]] {
        let error = rank.store().barrier("all", LONG).unwrap_err();
        let named = matches!(&error, BootstrapError::PeerFailed { peer: 1, reason } if reason.contains("limit"));
        assert!(named, "{error}");
    }
}
