//! Mistakes that concern one rank alone, and leave its communicator and its peers as they were: a stream that one
//! thread synchronizes while another captures it, and a fork that uses what its parent has built.

use crate::support::{Member, PATIENCE, Plan, Setting, on_each_backend};
use rstest::rstest;
use rstest_reuse::apply;
use rustix::process::{Pid, WaitOptions, waitpid};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use symmem::bootstrap::{Bootstrap, BootstrapError, LaunchEnvironment};
use symmem::{
    Communicator, Error, ErrorKind, Graph, Group, ReduceOp, Result, Stream, SymmetricBuffer,
};

unsafe extern "C" {
    safe fn fork() -> i32;
    safe fn _exit(status: i32) -> !;
}

pub fn role(role: &str, member: &Member) {
    match role {
        "capture" => member.tell("done", &capture_while_waiting(member)),
        "captures" => member.tell("done", &many_captures(member)),
        "fork" => member.tell("done", &fork_a_rank(member)),
        "fork-bootstrap" => fork_a_bootstrap(member),
        _ => panic!("no such role: {role}"),
    }
}

/// Makes another handle of a stream, as another thread would hold it.
fn another(communicator: &Communicator, stream: &Stream) -> Stream {
    // SAFETY: the stream outlives this handle.
    unsafe { communicator.stream_from_raw(stream.raw()) }
}

/// Captures a stream while another thread waits for it.
fn capture_while_waiting(member: &Member) -> Result<()> {
    let communicator = member.join();
    let (mut stream, giver) = (communicator.stream()?, communicator.stream()?);
    let (this, buffer) = (member.rank, communicator.allocate::<u32>(&[2])?);
    let (to, from) = (buffer.slice(1..2)?, buffer.slice(..1)?);
    // The stream has work until this rank has captured: only then does it signal itself.
    stream.wait_signal(this, 0)?;
    let other = another(&communicator, &stream);
    let graph = std::thread::scope(|scope| {
        let waiting = scope.spawn(|| other.synchronize());
        // The thread waits by now, or comes later on a busy machine: its error is the same.
        std::thread::sleep(Duration::from_millis(50));
        stream.capture(|queue| {
            let refused = waiting.join().expect("no panic").expect_err("captured");
            member.say("refused", format!("{refused:#?}"));
            queue.barrier()
        })
    })?;
    communicator.check()?;
    giver.put_signal(this, to, from, 0)?;
    stream.synchronize()?;
    stream.launch_graph(&graph)?;
    other.synchronize()?;
    buffer.free()?;
    communicator.finalize().map(drop)
}

#[apply(on_each_backend)]
fn a_thread_that_synchronizes_a_stream_while_another_captures_it_gets_an_error_and_no_more(
    setting: Setting,
) {
    let mut world = Plan::new("local/capture", 2, setting).start();
    for refused in world.expect("refused") {
        assert!(
            refused.starts_with("InvalidArgument") && refused.contains("is being captured"),
            "{refused}"
        );
    }
    assert_eq!(world.expect("done"), ["ok", "ok"]);
    world.ends_well();
}

/// Captures a stream again and again, while another thread asks for its progress all the time. A question in a capture
/// would invalidate the capture.
fn many_captures(member: &Member) -> Result<()> {
    const CAPTURES: usize = 200;
    let communicator = member.join();
    let mut stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[2])?;
    let (to, from) = (buffer.slice(1..2)?, buffer.slice(..1)?);
    let other = another(&communicator, &stream);
    let done = AtomicBool::new(false);
    let (asked, captured) = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut element = [0];
            while !done.load(Ordering::Acquire) {
                let asked = [
                    other.synchronize(),
                    other.is_idle().map(drop),
                    other.read(from, &mut element),
                ];
                for asked in asked {
                    match asked {
                        Err(error) if error.kind() != ErrorKind::InvalidArgument => {
                            return Err(error);
                        }
                        _ => {}
                    }
                }
            }
            Ok(())
        });
        let captured: Result<()> = (0..CAPTURES).try_for_each(|_| {
            let graph = stream.capture(|queue| queue.put(member.rank, to, from))?;
            stream.launch_graph(&graph)
        });
        done.store(true, Ordering::Release);
        (asking.join().expect("no panic"), captured)
    });
    asked?;
    captured?;
    stream.synchronize()?;
    communicator.check()?;
    drop(other);
    buffer.free()?;
    communicator.finalize().map(drop)
}

#[apply(on_each_backend)]
fn captures_and_questions_of_two_threads_do_not_disturb_each_other(setting: Setting) {
    let mut world = Plan::new("local/captures", 1, setting).start();
    assert_eq!(world.expect("done"), ["ok"]);
    world.ends_well();
}

/// What a rank has when it forks.
struct Parts {
    communicator: Communicator,
    stream: Stream,
    buffer: SymmetricBuffer<u32>,
    graph: Graph,
    group: Group,
}

fn fork_a_rank(member: &Member) -> Result<()> {
    let communicator = member.join();
    let mut stream = communicator.stream()?;
    let buffer = communicator.allocate::<u32>(&[2])?;
    let graph = stream.capture(|queue| queue.barrier())?;
    let group = communicator.split(Some(0), 0)?.expect("a color");
    let parts = Parts {
        communicator,
        stream,
        buffer,
        graph,
        group,
    };
    if member.rank == 0 {
        let parent = std::process::id();
        match fork() {
            0 => end_after(|| use_in_a_fork(member, parent, parts)),
            child => ends_well(child),
        }
    }
    let Parts {
        communicator,
        stream,
        buffer,
        graph,
        group,
    } = parts;
    // The parent and its peer go on as if nothing had happened.
    stream.write(&buffer, &[1, 2])?;
    stream.launch_graph(&graph)?;
    stream.all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
    let mut seen = [0; 2];
    stream.read(&buffer, &mut seen)?;
    assert_eq!(seen, [2, 4]);
    communicator.check()?;
    drop((graph, group));
    buffer.free()?;
    let leaks = communicator.finalize()?;
    assert!(leaks.is_empty(), "{leaks:?}");
    Ok(())
}

/// Ends a fork after this, and never returns into the harness.
fn end_after(run: impl FnOnce()) -> ! {
    let ended = catch_unwind(AssertUnwindSafe(run));
    _exit(ended.is_err().into())
}

/// Waits for the end of a child.
fn ends_well(child: i32) {
    let child = Pid::from_raw(child).expect("a fork");
    let ended = waitpid(Some(child), WaitOptions::empty()).expect("a child");
    let (_, status) = ended.expect("it has ended");
    assert_eq!(status.exit_status(), Some(0), "{status:?}");
}

/// Calls everything that can fail, then ends as the test asks.
fn use_in_a_fork(member: &Member, parent: u32, mut parts: Parts) {
    let start = Instant::now();
    let mut calls: Vec<(&str, Result<()>)> = Vec::new();
    let Parts {
        communicator,
        stream,
        buffer,
        graph,
        ..
    } = &mut parts;
    let mut elements = [0; 2];
    let (to, from) = (buffer.slice(1..2).unwrap(), buffer.slice(..1).unwrap());
    calls.extend([
        ("check", communicator.check()),
        (
            "memory_information",
            communicator.memory_information().map(drop),
        ),
        ("host_barrier", communicator.host_barrier()),
        (
            "host_all_gather",
            communicator.host_all_gather(&[1]).map(drop),
        ),
        ("allocate", communicator.allocate::<u32>(&[1]).map(drop)),
        ("split", communicator.split(None, 0).map(drop)),
        ("stream", communicator.stream().map(drop)),
        ("open_nccl", communicator.open_nccl(false).map(drop)),
        ("register_with_nccl", buffer.register_with_nccl()),
        (
            "load_module",
            // SAFETY: nothing is loaded.
            unsafe { communicator.load_module(&[]) }.map(drop),
        ),
        ("handle", buffer.handle(0).map(drop)),
        ("write", stream.write(&*buffer, &elements)),
        ("read", stream.read(&*buffer, &mut elements)),
        ("put", stream.put(1, to, from)),
        ("get", stream.get(1, to, from)),
        ("put_signal", stream.put_signal(1, to, from, 0)),
        ("wait_signal", stream.wait_signal(1, 0)),
        ("barrier", stream.barrier()),
        ("quiet", stream.quiet()),
        ("all_gather", stream.all_gather(&*buffer, from)),
        ("exchange", {
            let mut exchange = stream.exchange();
            exchange.send(1, from).unwrap();
            exchange.recv(1, to).unwrap();
            exchange.enqueue()
        }),
        ("launch_graph", stream.launch_graph(graph)),
        ("is_idle", stream.is_idle().map(drop)),
        ("synchronize", stream.synchronize()),
    ]);
    calls.push(("capture", stream.capture(|_| Ok(())).map(drop)));
    // An abort would end the waits of the parent and of its peer.
    communicator.abort();
    let Parts {
        communicator,
        stream,
        buffer,
        graph,
        group,
    } = parts;
    calls.push(("free", buffer.free()));
    drop((stream, graph, group));
    match member.argument.as_str() {
        "finalize" => calls.push(("finalize", communicator.finalize().map(drop))),
        "rebuild" => calls.push(("rebuild", communicator.rebuild().map(drop))),
        _ => drop(communicator),
    }
    let right = |result: &Result<()>| matches!(result, Err(Error::Forked { rank: 0, owner }) if *owner == parent);
    let wrong: Vec<String> = calls
        .iter()
        .filter(|(_, result)| !right(result))
        .map(|(call, result)| format!("{call}: {result:?}"))
        .collect();
    let error = calls[0].1.as_ref().expect_err("forked").to_string();
    member.say("fork", format!("{wrong:?} {error}"));
    // None of them waited for a thread that is not there.
    assert!(start.elapsed() < PATIENCE);
}

#[apply(on_each_backend)]
fn a_fork_cannot_use_its_parents_communicator_and_does_not_harm_it(
    setting: Setting,
    #[values("drop", "finalize", "rebuild")] end: &str,
) {
    let mut world = Plan::new("local/fork", 2, setting).argument(end).start();
    let (_, told) = world.ranks[0].expect("fork");
    assert!(
        told.starts_with("[] rank 0: process ") && told.contains("is a fork of process"),
        "{told}"
    );
    assert_eq!(world.expect("done"), ["ok", "ok"]);
    world.ends_well();
}

/// The connection to the other ranks, without a communicator.
fn fork_a_bootstrap(member: &Member) {
    let launch: LaunchEnvironment = member.launch();
    let bootstrap = Bootstrap::connect(launch, PATIENCE).expect("all ranks come");
    if member.rank == 0 {
        let parent = std::process::id();
        match fork() {
            0 => end_after(|| {
                let store = bootstrap.store();
                let refused = [
                    store.check(),
                    store.fail("a fork"),
                    store.all_gather("fork", &[1], PATIENCE).map(drop),
                ];
                let right = refused.iter().all(|refused| {
                    matches!(refused, Err(BootstrapError::Forked { rank: 0, owner }) if *owner == parent)
                });
                // On rank 0 the drop would wait for the store's thread, which the fork does not have.
                drop(bootstrap);
                member.say("fork", format!("{right} {refused:?}"));
            }),
            child => ends_well(child),
        }
    }
    let gathered = bootstrap.store().all_gather("after", &[7], PATIENCE);
    member.tell("done", &gathered);
}

#[test]
fn a_fork_cannot_use_its_parents_connection_and_does_not_close_it() {
    let mut world = Plan::new("local/fork-bootstrap", 2, Setting::Host).start();
    let (_, told) = world.ranks[0].expect("fork");
    assert!(told.starts_with("true"), "{told}");
    assert_eq!(world.expect("done"), ["ok", "ok"]);
    world.ends_well();
}
