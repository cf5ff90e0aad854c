//! Tests that descriptors reach every rank, and none is left behind.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rstest::rstest;
use rustix::io::Errno;

use super::*;
use crate::bootstrap::connection::Connection;
use crate::bootstrap::coordinator::action::SentDescriptor;
use crate::bootstrap::descriptors::send;
use crate::bootstrap::handshake::verifier::Verifier;
use crate::bootstrap::key::Key;

#[test]
fn descriptors_reach_every_rank() {
    on_ranks(4, |rank| {
        for round in 0..10u32 {
            // Ranks 1 and 3 give a file that holds their number; the others give none.
            let file = (rank.rank() % 2 == 1).then(|| {
                let file =
                    rustix::fs::memfd_create("test", rustix::fs::MemfdFlags::CLOEXEC).unwrap();
                rustix::io::write(&file, &[rank.rank() as u8, round as u8]).unwrap();
                file
            });
            let payload = rank.rank().to_le_bytes();
            let all = rank
                .store()
                .all_gather_with_descriptors(
                    "share",
                    &payload,
                    file.as_ref().map(AsFd::as_fd),
                    LONG,
                )
                .unwrap();
            for (peer, contribution) in all.iter().enumerate() {
                assert_eq!(contribution.payload, (peer as u32).to_le_bytes());
                assert_eq!(contribution.descriptor.is_some(), peer % 2 == 1);
                if let Some(file) = &contribution.descriptor {
                    let mut bytes = [0; 2];
                    rustix::io::pread(file, &mut bytes, 0).unwrap();
                    assert_eq!(bytes, [peer as u8, round as u8]);
                }
            }
        }
    });
}

/// Runs the test `name` with `role` in a process of its own, where no other test opens files or changes limits.
fn pass_in_a_child(name: &str, role: &str) {
    let output = child(name, role).wait_with_output().unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[test]
fn no_descriptor_is_left_behind() {
    const NAME: &str = "descriptors::no_descriptor_is_left_behind";
    // In a process of its own, where no other test opens files.
    if role().is_none() {
        return pass_in_a_child(NAME, "count");
    }
    let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
    let file = std::fs::File::open("/dev/null").unwrap();
    let before = open();
    {
        let ranks = Bootstrap::threads(3, LONG).unwrap();
        let connected = open();
        let gather = |rank: &Bootstrap, tag: &str, deadline| {
            rank.store()
                .all_gather_with_descriptors(tag, &[], Some(file.as_fd()), deadline)
                .map(drop)
        };
        std::thread::scope(|scope| {
            for rank in &ranks {
                scope.spawn(move || (0..200).for_each(|_| gather(rank, "share", LONG).unwrap()));
            }
        });
        // One that times out, and one where tags differ.
        assert!(gather(&ranks[1], "late", Duration::from_millis(20)).is_err());
        std::thread::scope(|scope| {
            for (rank, tag) in ranks.iter().zip(["a", "b", "b"]) {
                scope.spawn(move || assert!(gather(rank, tag, LONG).is_err()));
            }
        });
        ranks[0].store().set("k", b"", LONG).unwrap();
        assert_eq!(open(), connected);
    }
    assert_eq!(open(), before);
}

#[test]
fn a_process_without_room_for_descriptors_says_so() {
    const NAME: &str = "descriptors::a_process_without_room_for_descriptors_says_so";
    if role().is_none() {
        return pass_in_a_child(NAME, "full");
    }
    let ranks = Bootstrap::threads(2, LONG).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    // All of the numbers below are taken, so no descriptor can be added.
    limit.current = Some(3);
    rustix::process::setrlimit(rustix::process::Resource::Nofile, limit).unwrap();
    std::thread::scope(|scope| {
        for rank in &ranks {
            let file = file.as_fd();
            scope.spawn(move || {
                let error = rank
                    .store()
                    .all_gather_with_descriptors("share", &[], Some(file), LONG)
                    .unwrap_err();
                assert!(
                    matches!(error, BootstrapError::DescriptorLost { .. }),
                    "{error}"
                );
            });
        }
    });
}

/// A message of the largest size that announces one descriptor.
fn announcement() -> Vec<u8> {
    frame::frame(1, 5, 1, &vec![0; frame::MAX_BODY])
}

/// Writes to the store as `rank`, byte for byte with these descriptors beside each byte, until the store closes the
/// connection or has taken a thousand bytes. Returns the most descriptors that this process then had open at once.
fn most_open_while(rank: &Bootstrap, bytes: &[u8], beside: &[BorrowedFd<'_>]) -> usize {
    let start = Instant::now();
    let mut most = 0;
    for byte in bytes.chunks(1).take(1000) {
        loop {
            match send(rank.store(), byte, beside) {
                Ok(_) => break,
                Err(Errno::AGAIN | Errno::TOOMANYREFS) => assert!(start.elapsed() < LONG),
                Err(_) => return most,
            }
            std::thread::yield_now();
        }
        most = most.max(std::fs::read_dir("/proc/self/fd").unwrap().count());
    }
    most
}

#[rstest]
#[case::many_batches(1, "no message announced")]
#[case::a_large_batch(8, "8 file descriptors beside a message")]
fn descriptors_of_half_a_message_do_not_pile_up_and_their_sender_is_named(
    #[case] beside: usize,
    #[case] reason: &str,
) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    // In a process of its own, where no other test opens files.
    if role().is_none() {
        return pass_in_a_child(name.strip_prefix("bootstrap::tests::").unwrap(), "count");
    }
    let ranks = Bootstrap::threads(3, LONG).unwrap();
    let file = std::fs::File::open("/dev/null").unwrap();
    let before = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let most = most_open_while(&ranks[1], &announcement(), &vec![file.as_fd(); beside]);
    // The descriptors of the batch that ends the connection, and those of the one before.
    assert!(most <= before + beside + 1, "{before} before, then {most}");
    for rank in [&ranks[0], &ranks[2]] {
        let error = rank.store().barrier("all", LONG).unwrap_err();
        let named = matches!(
            &error,
            BootstrapError::PeerFailed { peer: 1, reason: told } if told.contains(reason)
        );
        assert!(named, "{error}");
    }
}

/// A rank that gave up waiting sends its next message before the store has read the last one.
#[test]
fn messages_that_arrive_at_once_have_each_its_own_descriptor() {
    let (rank, store) = Stream::pair().unwrap();
    let mut connection = Connection::of_rank_0(store);
    let mut verifier = Verifier::new(Key::Job(job()));
    let inode = |file: &OwnedFd| rustix::fs::fstat(file).unwrap().st_ino;
    let flags = rustix::fs::MemfdFlags::CLOEXEC;
    let files = [1, 2, 3].map(|_| rustix::fs::memfd_create("test", flags).unwrap());
    for (number, file) in (1..).zip(&files) {
        let message = Request::AllGather {
            tag: "share".into(),
            payload: vec![0; 20_000],
            deadline: 1,
        };
        let frame = message.encode(number, 1);
        assert_eq!(send(&rank, &frame, &[file.as_fd()]), Ok(frame.len()));
    }
    let (mut scratch, mut received) = (vec![0; 16 * 1024], Vec::new());
    while received.len() < files.len() {
        assert!(connection.read(&mut verifier, &mut scratch).is_ok());
        while let Some((request, _, beside)) = connection.next_request().unwrap() {
            let SentDescriptor::Descriptor(file) = beside else {
                panic!("no descriptor beside message {request}");
            };
            received.push((request, inode(&file)));
        }
    }
    let sent: Vec<_> = (1..).zip(files.iter().map(inode)).collect();
    assert_eq!(received, sent);
}
