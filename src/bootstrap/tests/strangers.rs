//! Tests that strangers are refused, at no cost to the ranks.

use std::io::{Read, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};

use super::handshake::unix::hello;
use super::key::{Key, MAX_JOB};
use super::*;

/// A Unix greeting up to the key, with any length in it.
fn greeting(kind: u8, length: usize) -> Vec<u8> {
    let length = u16::try_from(length).unwrap().to_le_bytes();
    [b"symmem\0@".as_slice(), &[kind], &length].concat()
}

/// Asserts that the store closes the connection, with `answer` before the end.
#[track_caller]
fn ends_with(mut refused: UnixStream, answer: &[u8]) {
    refused.set_read_timeout(Some(LONG)).unwrap();
    let mut received = Vec::new();
    // A connection that is closed while it has unread bytes ends with an error.
    let _ = refused.read_to_end(&mut received);
    assert_eq!(received, answer);
}

fn raw(job: &str) -> UnixStream {
    raw_at(&Meeting::of(&place(1, 2, job), LONG, None).unwrap().address)
}

fn abstract_name(address: &Address) -> SocketAddr {
    match address {
        Address::Unix(name) => SocketAddr::from_abstract_name(name).unwrap(),
        #[cfg(feature = "tcp")]
        Address::Tcp(_) => panic!("the default is a Unix socket"),
    }
}

/// Returns a connection to rank 0, as soon as it listens, that has not sent anything.
fn raw_at(address: &Address) -> UnixStream {
    let name = abstract_name(address);
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
        // Silent, half a greeting, garbage, and greetings with a wrong key.
        let _silent: Vec<UnixStream> = (0..40).map(|_| raw(&job)).collect();
        let mut half = raw(&job);
        half.write_all(b"symmem").unwrap();
        let mut garbage = raw(&job);
        garbage.write_all(&[0xff; 40]).unwrap();
        ends_with(garbage, b"");
        let wrong = [
            Key::Job("another".into()),
            Key::Job(String::new()),
            // Of the right length, and different in the last byte only.
            Key::Job(format!("{}-", &job[..job.len() - 1])),
            Key::Secret(Secret::random().unwrap()),
        ];
        for key in wrong {
            let mut stranger = raw(&job);
            stranger.write_all(&hello(&key)).unwrap();
            // The bytes behind the key would be a valid message; the store never reads them.
            let _ = stranger.write_all(
                &Request::ForeignJoin {
                    version: 9,
                    rank: 1,
                }
                .encode(1, 0),
            );
            ends_with(stranger, b"refused\n");
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
fn a_rank_with_another_secret_or_job_is_refused() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), SHORT));
        drop(raw(&job));
        let environment = place(1, 2, &job);
        for key in [
            Key::Secret(Secret::random().unwrap()),
            Key::Job("another".into()),
        ] {
            let mut meeting = Meeting::of(&environment, LONG, None).unwrap();
            meeting.key = key;
            let error = meeting.join(meeting.address.clone()).unwrap_err();
            assert!(
                matches!(error, BootstrapError::WrongSecret { rank: 1, .. }),
                "{error}"
            );
        }
        assert!(rank_0.join().unwrap().is_err());
    });
}

#[test]
fn half_a_greeting_is_waited_for_until_the_deadline_of_the_handshake() {
    let job = job();
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &job), LONG));
        let start = Instant::now();
        let halves = [
            b"symmem".to_vec(),
            greeting(2, job.len()),
            hello(&Key::Job(job.clone()))[..20].to_vec(),
        ];
        let streams = halves.map(|half| {
            let mut stream = raw(&job);
            stream.write_all(&half).unwrap();
            stream
        });
        for stream in streams {
            ends_with(stream, b"");
            assert!(start.elapsed() >= handshake::HANDSHAKE_DEADLINE);
        }
        assert!(start.elapsed() < handshake::HANDSHAKE_DEADLINE + 5 * AT_ONCE);
        let rank_1 = Bootstrap::connect(place(1, 2, &job), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

#[test]
fn a_jobs_name_over_the_limit_is_refused_on_both_sides() {
    let (longest, longer) = ("j".repeat(MAX_JOB), "j".repeat(MAX_JOB + 1));
    let error = Bootstrap::connect(place(0, 1, &longer), LONG).unwrap_err();
    let named = matches!(error, BootstrapError::TooLarge { rank: 0, size, limit, .. }
        if (size, limit) == (MAX_JOB + 1, MAX_JOB));
    assert!(named, "{error}");
    std::thread::scope(|scope| {
        let rank_0 = scope.spawn(|| Bootstrap::connect(place(0, 2, &longest), LONG));
        let mut stranger = raw(&longest);
        stranger.write_all(&greeting(2, MAX_JOB + 1)).unwrap();
        ends_with(stranger, b"");
        let rank_1 = Bootstrap::connect(place(1, 2, &longest), LONG).unwrap();
        drop((rank_1, rank_0.join().unwrap().unwrap()));
    });
}

#[test]
fn a_secret_alone_is_enough_to_meet_by() {
    let secret = Secret::random().unwrap();
    let ranks = [0, 1].map(|rank| {
        let mut environment = place(rank, 2, "unused");
        environment.job = None;
        environment.secret = Some(secret.clone());
        environment
    });
    let ranks = connect_all(ranks.to_vec(), LONG);
    assert!(ranks.iter().all(Result::is_ok), "{ranks:?}");
}

#[test]
fn a_launcher_without_a_job_is_asked_for_one() {
    let mut environment = place(0, 1, "job");
    environment.job = None;
    let error = Bootstrap::connect(environment, SHORT).unwrap_err();
    assert!(
        matches!(error, BootstrapError::JobUnknown { .. }),
        "{error}"
    );
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
            // A stranger that does not check the listener's user gets no further.
            let mut stranger = raw_at(&meeting.address);
            let _ = stranger.write_all(&hello(&meeting.key));
            ends_with(stranger, b"");
        });
        assert!(matches!(
            rank_0.join().unwrap(),
            Err(BootstrapError::Timeout { .. })
        ));
    });
}

#[test]
fn a_listener_of_another_user_is_shown_no_key() {
    if !rustix::process::geteuid().is_root() {
        println!("skipped: only root can act as another user");
        return;
    }
    let environment = place(1, 2, &job());
    let meeting = Meeting::of(&environment, LONG, None).unwrap();
    let name = abstract_name(&meeting.address);
    std::thread::scope(|scope| {
        // The system call changes the user of that thread only; the listener's user is that of the thread that
        // called listen().
        let squatter = scope.spawn(|| {
            let (root, nobody) = (
                rustix::process::Uid::ROOT,
                rustix::process::Uid::from_raw(65534),
            );
            rustix::thread::set_thread_res_uid(root, nobody, root).unwrap();
            UnixListener::bind_addr(&name).unwrap()
        });
        let squatter = squatter.join().unwrap();
        let error = meeting.reach(&meeting.address).unwrap_err();
        assert!(
            matches!(error, BootstrapError::ForeignUser { uid: 65534, .. }),
            "{error}"
        );
        ends_with(squatter.accept().unwrap().0, b"");
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
