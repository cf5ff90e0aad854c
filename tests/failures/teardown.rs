//! Teardown: with waits that nobody satisfies, in any order of drops, with peers that die meanwhile, over a driver that
//! is stuck, and what is left behind.

use crate::support::{
    Member, Plan, Rank, Setting, however_memory_is_shared, wherever_signals_live,
};
use rstest::rstest;
use rstest_reuse::apply;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

pub fn role(role: &str, member: &Member) {
    match role {
        "drop-waiting" => {
            let communicator = member.join();
            let mut stream = communicator.stream().expect("a stream");
            let _buffer = communicator.allocate::<u32>(&[64]).expect("memory");
            let graph = stream.capture(|queue| queue.barrier()).expect("captured");
            member.ready();
            if member.rank == 0 {
                // Rank 1 never gives this signal and never arrives at the barrier.
                stream.wait_signal(1, 0).expect("enqueued");
                stream.launch_graph(&graph).expect("enqueued");
                drop(graph);
                drop(stream);
                drop(_buffer);
                let start = Instant::now();
                drop(communicator);
                member.say("dropped", start.elapsed().as_millis());
            } else {
                member.say("dropped", 0);
                member.wait_for_go();
                drop(graph);
            }
        }
        "order" => orders(member),
        "live" => {
            let communicator = member.join();
            let _buffer = communicator.allocate::<u32>(&[1 << 16]).expect("memory");
            member.ready();
            member.wait_for_go();
        }
        "leave" => {
            let communicator = member.join();
            let buffer = communicator.allocate::<u32>(&[1 << 10]).expect("memory");
            member.ready();
            drop(buffer);
            let result = communicator.finalize();
            member.tell("finalized", &result);
        }
        "stuck" => {
            let result = member.builder().build();
            member.tell("opened", &result);
            let start = Instant::now();
            drop(result);
            member.say("dropped", start.elapsed().as_millis());
        }
        "reset" => {
            let communicator = member.join();
            member.ready();
            reset_device(member);
            // The watcher looks at its words every 50 ms.
            std::thread::sleep(Duration::from_millis(300));
            member.say("watched", "");
            // As a program does that ends without leaving.
            std::mem::forget(communicator);
        }
        _ => panic!("no such role: {role}"),
    }
}

/// Resets this rank's device, as `cudaDeviceReset` does.
fn reset_device(member: &Member) {
    let libraries = member.setting.libraries().expect("a fake driver");
    // SAFETY: the library is the one that the communicator has opened, and the symbol has this signature.
    let code = unsafe {
        let library =
            libloading::Library::new(libraries.join("libcuda.so.1")).expect("opened before");
        let reset: libloading::Symbol<unsafe extern "C" fn(i32) -> i32> = library
            .get(b"cuDevicePrimaryCtxReset_v2")
            .expect("exported");
        reset(member.rank as i32)
    };
    assert_eq!(code, 0);
}

#[rstest]
fn a_device_that_is_reset_under_a_communicator_does_not_crash_the_process(
    #[values(Setting::Cuda, Setting::CudaWithHostSignals)] setting: Setting,
) {
    let mut world = Plan::new("teardown/reset", 2, setting).start();
    world.ready().go();
    world.expect("watched");
    // The driver keeps what the ranks did not free.
    world.ranks.iter_mut().for_each(Rank::ends_well);
}

/// Drops the parts of a communicator in every order, with work done and with work under way.
fn orders(member: &Member) {
    for (number, order) in ["csbg", "gbsc", "bcgs", "sgcb", "cgbs", "bgsc"]
        .iter()
        .enumerate()
    {
        let mut launch = member.launch();
        launch.job = launch.job.map(|job| format!("{job}-{number}"));
        let communicator = member
            .builder()
            .launch(launch)
            .build()
            .expect("all ranks come");
        let mut stream = communicator.stream().expect("a stream");
        let buffer = communicator.allocate::<u32>(&[1 << 12]).expect("memory");
        let peer = (member.rank + 1) % member.world;
        let graph = stream
            .capture(|queue| {
                queue.put(peer, buffer.slice(..1024)?, buffer.slice(1024..2048)?)?;
                queue.barrier()
            })
            .expect("captured");
        for _ in 0..3 {
            stream.launch_graph(&graph).expect("enqueued");
        }
        let (mut c, mut s, mut b, mut g) =
            (Some(communicator), Some(stream), Some(buffer), Some(graph));
        for part in order.chars() {
            match part {
                'c' => drop(c.take()),
                's' => drop(s.take()),
                'b' => drop(b.take()),
                _ => drop(g.take()),
            }
        }
        member.say("order", order);
    }
    member.say("done", "");
}

#[apply(however_memory_is_shared)]
fn waits_that_nobody_satisfies_hold_teardown_for_seconds_only(setting: Setting) {
    if crate::built::amount::sampled_out(4) {
        return;
    }
    let mut world = Plan::new("teardown/drop-waiting", 2, setting)
        .deadline(Duration::from_secs(600))
        .start();
    world.ready().go();
    world.ranks[1].expect("dropped");
    let (_, took) = world.ranks[0].expect("dropped");
    println!("{setting:?}: dropped in {took} ms");
    assert!(
        took.parse::<u64>().expect("milliseconds") < 6500,
        "{took} ms"
    );
    world.ranks[1].go();
    for rank in &mut world.ranks {
        rank.ends_well();
    }
    let report = world.report();
    assert!(!report.contains("violation"), "{report}");
}

#[apply(wherever_signals_live)]
fn parts_can_be_dropped_in_any_order(setting: Setting) {
    let mut world = Plan::new("teardown/order", 2, setting).start();
    world.expect("done");
    world.ends_well();
}

#[apply(however_memory_is_shared)]
fn a_second_kill_during_teardown_is_survived(setting: Setting) {
    let mut world = Plan::new("teardown/leave", 4, setting).start();
    world.ready();
    world.ranks[3].kill();
    world.go();
    // The second rank dies while the survivors notice the first death and tear down.
    std::thread::sleep(Duration::from_millis(if crate::support::full() {
        45
    } else {
        20
    }));
    world.ranks[2].kill();
    let dead = world.ranks.split_off(2);
    for rank in &mut world.ranks {
        let (_, error) = rank.expect("finalized");
        assert!(error.contains("PeerDied"), "{error}");
    }
    world.ends_well();
    drop(dead);
}

fn listing(directory: &str) -> BTreeSet<String> {
    let entries = std::fs::read_dir(directory).expect("a directory");
    entries
        .filter_map(|entry| Some(entry.ok()?.file_name().to_string_lossy().into_owned()))
        .collect()
}

#[rstest]
fn nothing_is_left_on_disk_though_every_rank_is_killed(
    #[values(Setting::Host, Setting::HostWithHostSignals, Setting::Cuda)] setting: Setting,
) {
    let before = [listing("/tmp"), listing("/dev/shm")];
    let mut world = Plan::new("teardown/live", 3, setting).start();
    world.ready();
    let processes: Vec<u32> = world.ranks.iter().map(|rank| rank.process()).collect();
    for rank in &world.ranks {
        rank.kill();
    }
    drop(world);
    let after = [listing("/tmp"), listing("/dev/shm")];
    for (before, after) in before.iter().zip(&after) {
        // Other programs use the machine too; symmem's files have its name or this test's process numbers in their
        // names.
        let ours = |name: &&String| {
            name.contains("symmem") || processes.iter().any(|pid| name.contains(&pid.to_string()))
        };
        let new: Vec<&String> = after.difference(before).filter(ours).collect();
        assert!(new.is_empty(), "left behind: {new:?}");
    }
}

#[test]
fn a_driver_that_never_returns_holds_neither_start_nor_end() {
    if crate::built::amount::too_long() {
        return;
    }
    // At opening: the rank learns that its driver is stuck, and the others learn why it does not arrive.
    let mut world = Plan::new("teardown/stuck", 2, Setting::Cuda)
        .setup_deadline(Duration::from_secs(2))
        .env_of(1, "FAKE_DEVICE_STALL", "cuDevicePrimaryCtxRetain:1:60000")
        .start();
    let opened = world.expect("opened");
    assert!(
        opened[1].contains("HostTimeout") && opened[1].contains("open"),
        "{}",
        opened[1]
    );
    assert!(
        opened[0].contains("PeerFailed") && opened[0].contains("open"),
        "{}",
        opened[0]
    );
    for rank in &mut world.ranks {
        rank.wait();
    }
    // At closing: the rank gives up after some seconds.
    let mut world = Plan::new("teardown/stuck", 1, Setting::Cuda)
        .env("FAKE_DEVICE_STALL", "cuModuleUnload:1:60000")
        .start();
    let (_, took) = world.ranks[0].expect("dropped");
    println!("teardown over a stuck driver: {took} ms");
    assert!(
        took.parse::<u64>().expect("milliseconds") < 9000,
        "{took} ms"
    );
    world.ranks[0].wait();
}
