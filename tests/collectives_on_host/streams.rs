//! Collectives in graphs and on several channels.

use crate::world::{sum, value, world};
use symmem::{Algorithm as A, CollectiveOptions, Group, Queue, ReduceOp};

#[test]
fn a_captured_collective_runs_at_every_replay_beside_eager_ones() {
    for result in world(3, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let mut stream = communicator.stream()?;
        let group = communicator.split(Some(0), 0)?.expect("joined");
        let numbers = communicator.allocate::<i32>(&[100])?;
        let sums = communicator.allocate::<i32>(&[100])?;
        let parts = communicator.allocate::<i32>(&[300])?;
        let reduce = |queue: &Queue, algorithm, group: Option<&Group>| {
            let options = CollectiveOptions::new().algorithm(algorithm).group(group);
            queue
                .with(&options)
                .all_reduce(&sums, &numbers, ReduceOp::Sum)
        };
        let right = (rank + 1) % world;
        let left = (rank + world - 1) % world;
        let graph = stream.capture(|queue| {
            reduce(queue, A::Ll, None)?;
            reduce(queue, A::TwoShot, Some(&group))?;
            queue.all_gather(&parts, &sums)?;
            let mut exchange = queue.exchange();
            exchange.send(right, numbers.slice(..1)?)?;
            exchange.recv(left, parts.slice(..1)?)?;
            exchange.enqueue()
        })?;
        // The graph keeps the group's resources.
        drop(group);
        for round in 0..5 {
            let given: Vec<i32> = (0..100).map(|index| value(rank, index + round)).collect();
            numbers.write(&stream, 0, &given)?;
            stream.launch_graph(&graph)?;
            let mut seen = vec![0; 300];
            parts.read(&stream, 0, &mut seen)?;
            assert_eq!(seen[0], value(left, round));
            for (index, &seen) in seen.iter().enumerate().skip(1) {
                assert_eq!(seen, sum(world, index % 100 + round));
            }
            stream.barrier()?;
            reduce(&stream, A::OneShot, None)?;
            let mut seen = vec![0; 100];
            sums.read(&stream, 0, &mut seen)?;
            assert_eq!(seen[99], sum(world, 99 + round));
        }
        drop(graph);
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn calls_on_different_channels_do_not_wait_for_each_other() {
    for result in world(2, |communicator| {
        let streams = [communicator.stream()?, communicator.stream()?];
        communicator.allow_concurrent_collectives(2)?;
        let numbers = communicator.allocate::<i32>(&[10])?;
        let sums = communicator.allocate::<i32>(&[20])?;
        numbers.write(&streams[0], 0, &[1; 10])?;
        // Each rank uses another order.
        let order = [[0, 1], [1, 0]][communicator.rank()];
        for channel in order {
            let options = CollectiveOptions::new().channel(channel as u32);
            let sums = sums.slice(channel * 10..channel * 10 + 10)?;
            let (sum, stream) = (ReduceOp::Sum, &streams[channel]);
            stream.with(&options).all_reduce(sums, numbers.all(), sum)?;
        }
        let mut seen = vec![0; 20];
        for stream in &streams {
            stream.synchronize()?;
        }
        sums.read(&streams[0], 0, &mut seen)?;
        assert_eq!(seen, [2; 20]);
        communicator.finalize().map(drop)
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn a_stream_of_the_librarys_outlives_a_wrapper_of_it() {
    for result in world(2, |communicator| {
        let stream = communicator.stream()?;
        let numbers = communicator.allocate::<i32>(&[10])?;
        // SAFETY: the stream outlives its wrapper.
        drop(unsafe { communicator.stream_from_raw(stream.raw()) });
        // If it had been destroyed, a new stream would have its memory.
        let others = [communicator.stream()?, communicator.stream()?];
        assert!(others.iter().all(|other| other.raw() != stream.raw()));
        numbers.write(&stream, 0, &[1; 10])?;
        let all = numbers.all();
        stream.all_reduce(all, all, ReduceOp::Sum)?;
        let mut seen = [0; 10];
        numbers.read(&stream, 0, &mut seen)?;
        assert_eq!(seen, [2; 10]);
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}
