//! Tests that descriptors reach every rank, and none is left behind.

use std::os::fd::AsFd;

use super::*;

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

#[test]
fn no_descriptor_is_left_behind() {
    const NAME: &str = "descriptors::no_descriptor_is_left_behind";
    // In a process of its own, where no other test opens files.
    if role().is_none() {
        assert!(
            child(NAME, "count")
                .wait_with_output()
                .unwrap()
                .status
                .success()
        );
        return;
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
        let output = child(NAME, "full").wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stdout)
        );
        return;
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
