//! The public interface: slices of every form, buffers in place of slices, empty ranges, and exchanges that are not
//! enqueued. Ranks are threads on the host backend.

use rstest::rstest;
use std::ops::Bound;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;
use symmem::backends::Selection;
use symmem::{
    Algorithm, Communicator, Condition, Element, Error, LaunchEnvironment, ReduceOp, Result,
    SymmetricBuffer,
};

/// Much longer than any of these tests takes.
const PATIENCE: Duration = Duration::from_secs(20);

/// Runs `rank` as each rank of a world.
fn world(world: u32, rank: impl Fn(Communicator) -> Result<()> + Sync) {
    static JOBS: AtomicU32 = AtomicU32::new(0);
    let number = JOBS.fetch_add(1, Ordering::Relaxed);
    let job = format!("interface-{}-{number}", std::process::id());
    std::thread::scope(|scope| {
        for number in 0..world {
            let (job, rank) = (&job, &rank);
            scope.spawn(move || {
                let launch = LaunchEnvironment::local(number, world, job.clone());
                let builder = Communicator::builder()
                    .launch(launch.expect("a rank of the world"))
                    .backend(Selection::Named("host".into()))
                    .deadline(PATIENCE)
                    .setup_deadline(PATIENCE);
                rank(builder.build().expect("the world comes up")).expect("every call succeeds");
            });
        }
    });
}

/// Makes every transfer and collective with empty ranges and empty parts.
fn move_nothing<T: Element>(
    communicator: &Communicator,
    to: &SymmetricBuffer<T>,
    from: &SymmetricBuffer<T>,
) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let (next, previous) = ((rank + 1) % world, (rank + world - 1) % world);
    let stream = communicator.stream()?;
    let (to, from) = (to.slice(..0)?, from.slice(..0)?);
    stream.write(to, &[])?;
    stream.read(from, &mut [])?;
    stream.put(next, to, from)?;
    stream.get(next, to, from)?;
    // A put with a signal gives the signal even if there are no bytes to put.
    stream.put_signal(next, to, from, 0)?;
    stream.wait_signal(previous, 0)?;
    let none = vec![0; world];
    stream.all_gather(to, from)?;
    stream.all_gather_v(to, from, &none)?;
    stream.broadcast(0, to, from)?;
    stream.all_to_all(to, from)?;
    stream.all_to_all_v(to, &none, &none, from, &none, &none)?;
    stream.gather(0, to, from)?;
    stream.scatter(0, to, from)?;
    let mut exchange = stream.exchange();
    exchange.send(next, from)?;
    exchange.recv(previous, to)?;
    exchange.enqueue()?;
    stream.exchange().enqueue()?;
    stream.barrier()?;
    stream.synchronize()
}

fn reduce_nothing(communicator: &Communicator, none: &SymmetricBuffer<f32>) -> Result<()> {
    let (stream, none) = (communicator.stream()?, none.slice(..0)?);
    for operator in ReduceOp::ALL {
        stream.all_reduce(none, none, *operator)?;
        stream.reduce(0, none, none, *operator)?;
        stream.reduce_scatter(none, none, *operator)?;
    }
    stream.synchronize()
}

#[rstest]
fn a_buffer_without_elements_is_made_and_all_that_is_done_with_it_is_nothing(
    #[values(1, 2)] ranks: u32,
) {
    world(ranks, |communicator| {
        for shape in [&[0][..], &[0, 5], &[5, 0]] {
            let (to, from) = (
                communicator.allocate::<f32>(shape)?,
                communicator.allocate::<f32>(shape)?,
            );
            assert!(to.is_empty() && to.all().is_empty());
            assert_eq!((to.len(), to.shape()), (0, shape));
            to.write(&communicator.stream()?, 0, &[])?;
            move_nothing(&communicator, &to, &from)?;
            reduce_nothing(&communicator, &to)?;
            to.free()?;
            from.free()?;
        }
        assert!(communicator.finalize()?.is_empty());
        Ok(())
    });
}

#[rstest]
fn a_slice_without_elements_moves_nothing_wherever_it_is(#[values(1, 2)] ranks: u32) {
    world(ranks, |communicator| {
        let (to, from) = (
            communicator.allocate::<f32>(&[4])?,
            communicator.allocate::<f32>(&[4])?,
        );
        let stream = communicator.stream()?;
        to.write(&stream, 0, &[1.0; 4])?;
        from.write(&stream, 0, &[2.0; 4])?;
        move_nothing(&communicator, &to, &from)?;
        reduce_nothing(&communicator, &to)?;
        // An empty range behind the last element is valid, too.
        let (end, start) = (to.slice(4..)?, from.slice(..0)?);
        assert_eq!((end.offset(), end.len()), (4, 0));
        stream.put(0, end, start)?;
        stream.all_gather(end, start)?;
        stream.read(end, &mut [])?;
        let mut seen = [0.0; 4];
        to.read(&stream, 0, &mut seen)?;
        assert_eq!(seen, [1.0; 4]);
        communicator.host_barrier()
    });
}

#[rstest]
fn elements_without_size_are_moved_without_harm(#[values(1, 2)] ranks: u32) {
    world(ranks, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let next = (rank + 1) % world;
        let (to, from) = (
            communicator.allocate::<()>(&[4])?,
            communicator.allocate::<()>(&[4])?,
        );
        assert_eq!(to.len(), 4);
        let stream = communicator.stream()?;
        move_nothing(&communicator, &to, &from)?;
        stream.write(&to, &[(); 4])?;
        stream.read(to.slice(1..3)?, &mut [(); 2])?;
        stream.put(next, &to, &from)?;
        stream.get(next, to.slice(2..)?, from.slice(..2)?)?;
        stream.put_signal(next, &to, &from, 0)?;
        stream.wait_signal((rank + world - 1) % world, 0)?;
        stream.broadcast(0, &to, &from)?;
        stream.all_to_all(&to, &from)?;
        stream.all_gather(&to, from.slice(..4 / world)?)?;
        stream.scatter(0, to.slice(..4 / world)?, &from)?;
        let mut exchange = stream.exchange();
        exchange.send(next, &from)?;
        exchange.recv((rank + world - 1) % world, &to)?;
        exchange.enqueue()?;
        stream.synchronize()?;
        assert!(
            to.slice(..5).is_err(),
            "there are four elements of zero size"
        );
        to.free()?;
        from.free()?;
        communicator.finalize().map(drop)
    });
}

#[test]
fn a_slice_is_named_by_any_form_of_range() {
    world(1, |communicator| {
        let buffer = communicator.allocate::<u32>(&[2, 4])?;
        let stream = communicator.stream()?;
        buffer.write(&stream, 0, &[0, 1, 2, 3, 4, 5, 6, 7])?;
        let forms = [
            (buffer.slice(..)?, &[0, 1, 2, 3, 4, 5, 6, 7][..]),
            (buffer.all(), &[0, 1, 2, 3, 4, 5, 6, 7]),
            (buffer.slice(6..)?, &[6, 7]),
            (buffer.slice(..2)?, &[0, 1]),
            (buffer.slice(..=2)?, &[0, 1, 2]),
            (buffer.slice(3..5)?, &[3, 4]),
            (buffer.slice(3..=5)?, &[3, 4, 5]),
            (
                buffer.slice((Bound::Excluded(5), Bound::Unbounded))?,
                &[6, 7],
            ),
            (buffer.slice(8..)?, &[]),
            // A slice's indices count from its own start.
            (buffer.slice(2..7)?.slice(1..3)?, &[3, 4]),
            (buffer.slice(2..7)?.slice(..)?, &[2, 3, 4, 5, 6]),
        ];
        for (slice, elements) in forms {
            let mut seen = vec![0; elements.len()];
            assert_eq!(slice.len(), elements.len(), "{slice:?}");
            assert_eq!(slice.is_empty(), elements.is_empty());
            stream.read(slice, &mut seen)?;
            assert_eq!(seen, elements, "{slice:?}");
        }
        Ok(())
    });
}

#[test]
fn a_range_that_the_buffer_or_slice_does_not_have_is_refused() {
    world(1, |communicator| {
        let buffer = communicator.allocate::<u32>(&[8])?;
        let part = buffer.slice(2..5)?;
        #[allow(
            clippy::reversed_empty_ranges,
            reason = "the reversed range must be refused"
        )]
        let refused = [
            buffer.slice(..9),
            buffer.slice(..=8),
            buffer.slice(9..),
            buffer.slice(5..3),
            buffer.slice(..=usize::MAX),
            buffer.slice((Bound::Excluded(usize::MAX), Bound::Unbounded)),
            part.slice(..4),
            part.slice(4..),
        ];
        for refused in refused {
            let error = refused.expect_err("it has no such elements");
            assert!(matches!(error, Error::OutOfRange { .. }), "{error}");
        }
        Ok(())
    });
}

#[test]
fn a_buffer_is_taken_where_a_slice_is() {
    world(2, |communicator| {
        let (rank, peer) = (communicator.rank(), 1 - communicator.rank());
        let stream = communicator.stream()?;
        let one = communicator.allocate::<u32>(&[4])?;
        let other = communicator.allocate::<u32>(&[4])?;
        let both = communicator.allocate::<u32>(&[2, 4])?;
        let word = communicator.allocate::<u64>(&[1])?;
        let mut seen = [0; 4];
        stream.write(&one, &[rank as u32 + 1; 4])?;
        stream.put_signal(peer, &other, &one, 0)?;
        stream.wait_signal(peer, 0)?;
        stream.read(&other, &mut seen)?;
        assert_eq!(seen, [peer as u32 + 1; 4]);
        stream.all_reduce(&one, &one, ReduceOp::Sum)?;
        stream.read(&one, &mut seen)?;
        assert_eq!(seen, [3; 4]);
        // One argument is a slice, the other a buffer.
        stream.all_gather(&both, other.slice(..)?)?;
        stream.all_gather(both.all(), &other)?;
        let mut gathered = [0; 8];
        stream.read(&both, &mut gathered)?;
        assert_eq!(gathered, [2, 2, 2, 2, 1, 1, 1, 1]);
        stream.signal_add(peer, &word, 1)?;
        stream.wait_word(&word, Condition::GreaterOrEqual, 1)?;
        stream.synchronize()?;
        communicator.host_barrier()
    });
}

#[test]
fn a_communicator_says_how_it_is_built() {
    let builder = Communicator::builder().backend(Selection::Named("host".into()));
    let launch = LaunchEnvironment::alone().expect("random bytes");
    let communicator = builder.launch(launch).build().expect("alone on the host");
    assert_eq!((communicator.rank(), communicator.world_size()), (0, 1));
    assert!(communicator.finalize().expect("finalized").is_empty());
}

#[test]
fn a_graph_launched_in_a_capture_is_kept_with_its_buffers_by_the_graph_that_is_recorded() {
    world(2, |communicator| {
        const ELEMENTS: usize = 1 << 16;
        let (rank, peer) = (communicator.rank(), 1 - communicator.rank());
        let mut stream = communicator.stream()?;
        let result = communicator.allocate::<u32>(&[ELEMENTS])?;
        let given: Vec<u32> = (0..ELEMENTS).map(|at| (at * 2 + rank) as u32).collect();
        let outer = {
            let source = communicator.allocate::<u32>(&[ELEMENTS])?;
            let passed = communicator.allocate::<u32>(&[ELEMENTS])?;
            stream.write(&source, &given)?;
            let inner = stream.capture(|queue| {
                queue.put(peer, &passed, &source)?;
                queue.barrier()
            })?;
            stream.capture(|queue| {
                queue.launch_graph(&inner)?;
                queue.put(rank, &result, &passed)?;
                // No peer puts again before this barrier.
                queue.barrier()
            })?
            // The inner graph and its buffers are dropped here.
        };
        // If the buffers had been freed, these allocations would reuse their memory.
        let others: Vec<_> = (0..4)
            .map(|_| communicator.allocate::<u32>(&[ELEMENTS]))
            .collect::<Result<_>>()?;
        for other in &others {
            stream.write(other, &vec![u32::MAX; ELEMENTS])?;
        }
        let mut seen = vec![0; ELEMENTS];
        for _ in 0..3 {
            stream.write(&result, &vec![0; ELEMENTS])?;
            stream.launch_graph(&outer)?;
            stream.read(&result, &mut seen)?;
            let right = |at: usize| (at * 2 + peer) as u32;
            assert_eq!((0..ELEMENTS).find(|&at| seen[at] != right(at)), None);
        }
        drop((outer, others, result));
        communicator.host_barrier()?;
        assert!(communicator.finalize()?.is_empty());
        Ok(())
    });
}

#[test]
fn an_exchange_that_is_forgotten_sends_nothing() {
    world(2, |communicator| {
        let peer = 1 - communicator.rank();
        let stream = communicator.stream()?;
        let inbox = communicator.allocate::<u32>(&[4])?;
        let outbox = communicator.allocate::<u32>(&[4])?;
        stream.write(&outbox, &[7; 4])?;
        let mut forgotten = stream.exchange();
        forgotten.send(peer, &outbox)?;
        forgotten.recv(peer, &inbox)?;
        drop(forgotten);
        stream.barrier()?;
        let mut seen = [1; 4];
        stream.read(&inbox, &mut seen)?;
        assert_eq!(seen, [0; 4]);
        // The next exchange contains only its own sends and receives.
        let mut exchange = stream.exchange();
        exchange.send(peer, outbox.slice(..2)?)?;
        exchange.recv(peer, inbox.slice(2..)?)?;
        exchange.enqueue()?;
        stream.read(&inbox, &mut seen)?;
        assert_eq!(seen, [0, 0, 7, 7]);
        communicator.host_barrier()
    });
}

#[test]
fn options_are_said_once_for_a_call_and_the_selector_keeps_the_rest() {
    world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<u32>(&[4])?;
        stream.write(&buffer, &[1; 4])?;
        let options = symmem::CollectiveOptions::new();
        let chosen = options.algorithm(Algorithm::TwoShot).blocks(2).channel(1);
        stream
            .with(&chosen)
            .all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
        // `None` resets an option that was set.
        let free = chosen.algorithm(None).blocks(None);
        stream
            .with(&free)
            .all_reduce(&buffer, &buffer, ReduceOp::Sum)?;
        let mut seen = [0; 4];
        stream.read(&buffer, &mut seen)?;
        assert_eq!(seen, [4; 4]);
        communicator.host_barrier()
    });
}
