//! How communicators end: in good order, or poisoned and rebuilt.

use crate::call::Id;
use crate::program::Ending;
use crate::rank::{Failure, Rank, unexpected};
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use symmem::{
    CollectiveOptions, Communicator, ErrorKind, ReduceOp, Result, Stream, SymmetricBuffer,
};

/// The deadline of a wait for a rank that does not come.
const MISSED: Duration = Duration::from_millis(250);
/// When a rank at the latest knows that its communicator is poisoned. It takes 50 ms.
const KNOWN: Duration = Duration::from_secs(20);
/// Elements that are sent to a rank that drops their buffer, and how often.
const SENT: usize = 400_000;
const TIMES: usize = 12;
/// Elements that are copied from the host meanwhile.
const COPIED: usize = 100_000;

type Outcome = std::result::Result<(), Failure>;

/// Ends a communicator; rebuilds it if it was poisoned.
pub fn end(rank: &mut Rank<'_>, on: usize, ending: Ending, order: u64, checked: bool) -> Outcome {
    let world = rank.world;
    match ending {
        Ending::Finalize => {
            let met = rank.held.communicator(on).host_barrier();
            met.map_err(unexpected("host_barrier"))?;
            return drop_all(rank, on, order, true);
        }
        Ending::Drop => {
            let met = rank.held.communicator(on).host_barrier();
            met.map_err(unexpected("host_barrier"))?;
            return drop_all(rank, on, order, false);
        }
        Ending::Abort { rank: odd, busy } => abort(rank, on, odd % world, busy)?,
        Ending::Missing { rank: odd, barrier } => missing(rank, on, odd % world, barrier)?,
        Ending::Size { rank: odd } => size(rank, on, odd % world, checked)?,
        Ending::ReceiveDropped { rank: odd, delay } => {
            receive_dropped(rank, on, odd % world, delay)?;
        }
    }
    let communicator = rank.held.communicators[on].take();
    let communicator = communicator.expect("ended once");
    let late = if order & 1 == 0 {
        drop_all(rank, on, order, false)?;
        None
    } else {
        Some(order)
    };
    let rebuilt = communicator.rebuild().map_err(unexpected("rebuild"))?;
    if rebuilt.world_size() != world || rebuilt.rank() != rank.rank {
        return Err(format!(
            "rebuilt as rank {} of {}",
            rebuilt.rank(),
            rebuilt.world_size()
        ));
    }
    rank.share_device(&rebuilt)?;
    if let Some(order) = late {
        drop_all(rank, on, order, false)?;
    }
    rank.held.communicators[on] = Some(rebuilt);
    Ok(())
}

/// Drops everything of a communicator, and ends it, in an order that depends on the rank.
fn drop_all(rank: &mut Rank<'_>, on: usize, order: u64, finalize: bool) -> Outcome {
    let owned = rank.held.owners.iter().filter(|(_, owner)| **owner == on);
    let mut ids: Vec<Option<Id>> = owned.map(|(id, _)| Some(*id)).collect();
    ids.push(None);
    let seed = order ^ (rank.rank as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    shuffle(&mut ids, seed);
    for id in ids {
        match id {
            Some(id) => {
                rank.held.owners.remove(&id);
                rank.held.streams.remove(&id);
                rank.held.buffers.remove(&id);
                rank.held.graphs.remove(&id);
                rank.held.groups.remove(&id);
            }
            None => {
                if let Some(communicator) = rank.held.communicators[on].take() {
                    let owners = &rank.held.owners;
                    let live = rank
                        .held
                        .buffers
                        .keys()
                        .filter(|id| owners.get(id) == Some(&on));
                    let live = live.count();
                    if finalize {
                        let leaks = communicator.finalize().map_err(unexpected("finalize"))?;
                        if leaks.buffers != live {
                            return Err(format!(
                                "finalize reports {leaks:?}, and {live} buffers are held"
                            ));
                        }
                    }
                }
            }
        }
    }
    Ok(())
}

fn shuffle<T>(list: &mut [T], mut seed: u64) {
    for last in (1..list.len()).rev() {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        list.swap(last, (seed >> 33) as usize % (last + 1));
    }
}

/// What an ending works with.
struct Scene {
    stream: Stream,
    to: SymmetricBuffer<u32>,
    from: SymmetricBuffer<u32>,
}

fn scene(communicator: &Communicator, length: usize) -> std::result::Result<Scene, Failure> {
    let made = || -> Result<Scene> {
        Ok(Scene {
            stream: communicator.stream()?,
            to: communicator.allocate(&[length])?,
            from: communicator.allocate(&[length])?,
        })
    };
    made().map_err(unexpected("what an ending works with"))
}

/// Every call must fail with an error of one of these kinds.
fn poisoned(rank: &Rank<'_>, on: usize, scene: &Scene, kinds: &[ErrorKind]) -> Outcome {
    let communicator = rank.held.communicator(on);
    let start = Instant::now();
    while communicator.check().is_ok() {
        if start.elapsed() > KNOWN {
            return Err(format!("not poisoned after {KNOWN:?}"));
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    let Scene { stream, to, from } = scene;
    let outcomes: Vec<(&str, Result<()>)> = vec![
        ("check", communicator.check()),
        ("stream", communicator.stream().map(drop)),
        (
            "put",
            stream.put(
                0,
                to.slice(..1).map_err(unexpected("slice"))?,
                from.slice(..1).map_err(unexpected("slice"))?,
            ),
        ),
        ("barrier", stream.barrier()),
        ("all_reduce", stream.all_reduce(to, from, ReduceOp::Sum)),
        ("synchronize", stream.synchronize()),
        ("write", from.write(stream, 0, &[1])),
        ("read", from.read(stream, 0, &mut [1])),
        ("allocate", communicator.allocate::<u8>(&[3]).map(drop)),
        ("host_barrier", communicator.host_barrier()),
        ("split", communicator.split(None, 0).map(drop)),
    ];
    for (call, outcome) in outcomes {
        rank.expect(
            outcome,
            kinds,
            &format!("{call} on a poisoned communicator"),
        )?;
    }
    Ok(())
}

fn abort(rank: &mut Rank<'_>, on: usize, odd: usize, busy: bool) -> Outcome {
    let communicator = rank.held.communicator(on);
    let scene = scene(communicator, 64)?;
    let own = rank.rank == odd;
    // Only then no rank is within a collective host call, which an abort ends too.
    rank.meet()?;
    if own {
        communicator.abort();
    } else if busy {
        // May be told of the abort already.
        let enqueued = scene.stream.barrier();
        if let Err(error) = enqueued {
            rank.expect(
                Err(error),
                &[ErrorKind::PeerFailed],
                "a barrier beside an abort",
            )?;
        }
    }
    let kinds = [if own {
        ErrorKind::Aborted
    } else {
        ErrorKind::PeerFailed
    }];
    poisoned(rank, on, &scene, &kinds)
}

fn missing(rank: &mut Rank<'_>, on: usize, odd: usize, barrier: bool) -> Outcome {
    let communicator = rank.held.communicator(on);
    let scene = scene(communicator, 64)?;
    rank.meet()?;
    // A rank that is told by another before its own deadline has that one's failure.
    let kinds = [ErrorKind::Timeout, ErrorKind::PeerFailed];
    if rank.rank != odd {
        let options = CollectiveOptions::new().deadline(MISSED);
        let enqueued = match barrier {
            true => scene.stream.barrier_within(0, MISSED),
            false => scene
                .stream
                .with(&options)
                .broadcast(0, &scene.to, &scene.from),
        };
        let waited = enqueued.and_then(|()| scene.stream.synchronize());
        rank.expect(waited, &kinds, "a wait for a rank that does not come")?;
    }
    poisoned(rank, on, &scene, &kinds)
}

fn size(rank: &mut Rank<'_>, on: usize, odd: usize, checked: bool) -> Outcome {
    let communicator = rank.held.communicator(on);
    let scene = scene(communicator, 64)?;
    let receiver = (odd + 1) % rank.world;
    rank.meet()?;
    let part = |buffer: &SymmetricBuffer<u32>, count: usize| -> Result<()> {
        match rank.rank == odd {
            true => scene.stream.send(receiver, buffer.slice(..count)?),
            false => scene.stream.recv(odd, buffer.slice(..count)?),
        }
    };
    let kinds = [ErrorKind::Mismatch, ErrorKind::PeerFailed];
    if rank.rank == odd || rank.rank == receiver {
        let count = if rank.rank == odd { 10 } else { 11 };
        let exchanged = part(
            if rank.rank == odd {
                &scene.from
            } else {
                &scene.to
            },
            count,
        );
        if checked {
            rank.expect(
                exchanged,
                &[ErrorKind::Mismatch],
                "sizes that differ, compared",
            )?;
        } else if rank.rank == receiver {
            let waited = exchanged.and_then(|()| scene.stream.synchronize());
            rank.expect(waited, &[ErrorKind::Mismatch], "a receive of another size")?;
        } else if let Err(error) = exchanged.and_then(|()| scene.stream.synchronize()) {
            rank.expect(Err(error), &kinds, "a send of another size")?;
        }
    }
    if checked {
        // Nothing was enqueued, so the communicator can still be used.
        let met = rank.held.communicator(on).host_barrier();
        met.map_err(unexpected("host_barrier behind a mismatch"))?;
        return abort(rank, on, odd, false);
    }
    poisoned(rank, on, &scene, &kinds)
}

/// The receiver drops its handle of the sent buffer and reclaims, on another thread than it receives on.
fn receive_dropped(rank: &mut Rank<'_>, on: usize, odd: usize, delay: u8) -> Outcome {
    let communicator = rank.held.communicator(on);
    let Scene { stream, to, from } = scene(communicator, SENT)?;
    let copied = communicator.allocate::<u32>(&[COPIED]);
    let copied = copied.map_err(unexpected("what an ending copies"))?;
    let receiver = (odd + 1) % rank.world;
    let pattern: Vec<u32> = (0..SENT as u32).map(|at| at ^ 0x5a5a).collect();
    let mut outcome = from
        .write(&stream, 0, &pattern)
        .and_then(|()| communicator.host_barrier());
    let mut seen = vec![0; SENT];
    if rank.rank == odd {
        outcome = outcome
            .and_then(|()| (0..TIMES).try_for_each(|_| stream.send(receiver, &from)))
            .and_then(|()| stream.synchronize());
    } else if rank.rank == receiver {
        let streams = [(); 2].map(|()| communicator.stream());
        let [other, copying] = streams;
        let other = other.map_err(unexpected("stream"))?;
        let copying = copying.map_err(unexpected("stream"))?;
        let (together, ended) = (Barrier::new(2), AtomicBool::new(false));
        outcome = outcome.and_then(|()| {
            std::thread::scope(|scope| {
                // The buffer leaves the address table by the memory that host copies lock.
                let copies = scope.spawn(|| {
                    let elements = vec![7; COPIED];
                    while !ended.load(Ordering::Acquire) {
                        copied.write(&copying, 0, &elements)?;
                    }
                    Ok(())
                });
                let reclaim = scope.spawn(|| {
                    together.wait();
                    std::thread::sleep(Duration::from_micros(u64::from(delay) * 20));
                    drop(from);
                    while !ended.load(Ordering::Acquire) {
                        other.synchronize()?;
                    }
                    Ok(())
                });
                together.wait();
                // The stream is idle between two of them: then the buffer is given up beside the next one.
                let received = (0..TIMES)
                    .try_for_each(|_| stream.recv(odd, &to).and_then(|()| stream.synchronize()));
                ended.store(true, Ordering::Release);
                let threads = [reclaim, copies].map(|thread| thread.join().expect("no panic"));
                threads.into_iter().fold(received, Result::and)
            })
        });
        outcome = outcome.and_then(|()| to.read(&stream, 0, &mut seen));
        if outcome.is_ok() && seen != pattern {
            return Err("wrong bytes from a buffer that was dropped beside the receive".into());
        }
    }
    let kinds = [ErrorKind::Mismatch, ErrorKind::PeerFailed];
    if let Err(error) = outcome {
        rank.expect(Err(error), &kinds, "a receive from a dropped buffer")?;
    }
    // The others may not have been told yet, and would wait for the deadline of the barrier.
    if let Err(error) = rank.held.communicator(on).host_barrier() {
        rank.expect(Err(error), &kinds, "a barrier behind such a receive")?;
    }
    rank.held.communicator(on).abort();
    Ok(())
}
