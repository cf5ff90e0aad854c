//! Sends, receives, and collectives with parts of any size.

use crate::world::{value, world};
use symmem::{
    Algorithm as A, CollectiveOptions, Communicator, DeviceAddress, Error, Operand, Result, Stream,
    SymmetricBuffer,
};

#[test]
fn sends_and_receives_meet_in_order_and_only_their_pair_takes_part() {
    for result in world(4, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let stream = communicator.stream()?;
        let out = communicator.allocate::<i32>(&[100])?;
        let inbox = communicator.allocate::<i32>(&[400])?;
        let given: Vec<i32> = (0..100).map(|index| value(rank, index)).collect();
        out.write(&stream, 0, &given)?;
        // A ring, twice in each direction, and a send to itself, all of different sizes.
        let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
        let mut exchange = stream.exchange();
        exchange.send(right, out.slice(..40)?)?;
        exchange.send(right, out.slice(40..47)?)?;
        exchange.recv(left, inbox.slice(..40)?)?;
        exchange.recv(left, inbox.slice(50..57)?)?;
        exchange.send(rank, out.slice(90..100)?)?;
        exchange.recv(rank, inbox.slice(60..70)?)?;
        exchange.enqueue()?;
        let mut seen = vec![0; 70];
        inbox.read(&stream, 0, &mut seen)?;
        for (index, &seen) in seen[..40].iter().enumerate() {
            assert_eq!(seen, value(left, index));
        }
        for index in 0..7 {
            assert_eq!(seen[50 + index], value(left, 40 + index));
        }
        for index in 0..10 {
            assert_eq!(seen[60 + index], value(rank, 90 + index));
        }
        // Only two ranks take part, with offsets that are not symmetric.
        for round in 0..3 {
            match rank {
                1 => stream.send(3, out.slice(round..round + 30)?)?,
                3 => stream.recv(1, inbox.slice(300 - round..330 - round)?)?,
                _ => {}
            }
        }
        if rank == 3 {
            let mut seen = vec![0; 30];
            inbox.read(&stream, 298, &mut seen)?;
            for (index, &seen) in seen.iter().enumerate() {
                assert_eq!(seen, value(1, 2 + index));
            }
        }
        stream.synchronize()?;
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

/// Returns how many elements rank `from` sends to rank `to`; some send none.
fn sent(from: usize, to: usize) -> usize {
    (from * 7 + to * 3) % 5 * 11
}

/// Makes an all-to-all of unequal parts of `source`, which has 400 values of this rank, and checks what arrives.
fn exchange_parts<'a>(
    communicator: &Communicator,
    stream: &Stream,
    inbox: &'a SymmetricBuffer<i32>,
    source: impl Into<Operand<'a, i32>>,
) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    // Offsets that leave gaps, and that only the rank itself knows.
    let at: Vec<usize> = (0..world).map(|peer| peer * 60 + rank).collect();
    let sends: Vec<usize> = (0..world).map(|peer| sent(rank, peer)).collect();
    let receives: Vec<usize> = (0..world).map(|peer| sent(peer, rank)).collect();
    stream.all_to_all_v(inbox, &receives, &at, source, &sends, &at)?;
    let mut seen = vec![0; 400];
    inbox.read(stream, 0, &mut seen)?;
    for peer in 0..world {
        for index in 0..receives[peer] {
            // The sender's offset differs from the receiver's.
            let expected = value(peer, rank * 60 + peer + index);
            assert_eq!(seen[at[peer] + index], expected);
        }
    }
    Ok(())
}

#[test]
fn parts_of_any_size_arrive_where_the_offsets_say() {
    for result in world(4, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let stream = communicator.stream()?;
        let out = communicator.allocate::<i32>(&[400])?;
        let inbox = communicator.allocate::<i32>(&[400])?;
        let given: Vec<i32> = (0..400).map(|index| value(rank, index)).collect();
        out.write(&stream, 0, &given)?;
        exchange_parts(&communicator, &stream, &inbox, &out)?;
        let counts = [3, 0, 50, 1];
        let total = counts.iter().sum();
        for algorithm in [None, Some(A::Ll), Some(A::Push), Some(A::Pull)] {
            for in_place in [false, true] {
                let options = CollectiveOptions::new().algorithm(algorithm);
                stream.barrier()?;
                let start: usize = counts[..rank].iter().sum();
                let from = if in_place && counts[rank] == 0 {
                    // An empty range whose address says nothing about where the parts of others are.
                    inbox.slice(..0)?
                } else if in_place {
                    inbox.slice(5 + start..5 + start + counts[rank])?
                } else {
                    out.slice(9..9 + counts[rank])?
                };
                let given: Vec<i32> = (0..counts[rank]).map(|index| value(rank, index)).collect();
                stream.write(from, &given)?;
                stream
                    .with(&options)
                    .all_gather_v(inbox.slice(5..5 + total)?, from, &counts)?;
                let mut seen = vec![0; total];
                inbox.read(&stream, 5, &mut seen)?;
                let expected: Vec<i32> = (0..world)
                    .flat_map(|peer| (0..counts[peer]).map(move |index| value(peer, index)))
                    .collect();
                assert_eq!(seen, expected, "{algorithm:?} in place: {in_place}");
            }
        }
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn memory_that_only_its_rank_knows_is_sent_and_received_beside_symmetric_buffers() {
    // More than the staging has for a peer.
    const LENGTH: usize = 100_003;
    for result in world(3, |communicator| {
        let (rank, world) = (communicator.rank(), communicator.world_size());
        let stream = communicator.stream()?;
        let mut given: Vec<i32> = (0..LENGTH).map(|index| value(rank, index)).collect();
        let mut seen = vec![0; 2 * LENGTH];
        let at =
            |elements: &mut [i32]| DeviceAddress(elements.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: the vectors outlive the stream's work, and nothing else uses them meanwhile.
        let (from, to) = unsafe {
            (
                communicator.device_slice::<i32>(at(&mut given), LENGTH)?,
                communicator.device_slice::<i32>(at(&mut seen), 2 * LENGTH)?,
            )
        };
        let out = communicator.allocate::<i32>(&[LENGTH])?;
        stream.write(&out, &given)?;
        // A rank sends its own memory to those after it, and symmetric buffers to those before it. Twice, so that the
        // counters go on.
        let peers = (0..world).filter(|&peer| peer != rank);
        for _ in 0..2 {
            let mut exchange = stream.exchange();
            for (place, peer) in peers.clone().enumerate() {
                match rank < peer {
                    true => exchange.send(peer, from)?,
                    false => exchange.send(peer, &out)?,
                }
                exchange.recv(peer, to.slice(place * LENGTH..(place + 1) * LENGTH)?)?;
            }
            exchange.enqueue()?;
        }
        stream.synchronize()?;
        for (place, peer) in peers.enumerate() {
            for (index, seen) in seen[place * LENGTH..][..LENGTH].iter().enumerate() {
                assert_eq!(*seen, value(peer, index), "from {peer} to {rank}");
            }
        }
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn parts_of_any_size_come_from_memory_that_only_its_rank_knows() {
    for result in world(4, |communicator| {
        let rank = communicator.rank();
        let stream = communicator.stream()?;
        let mut given: Vec<i32> = (0..400).map(|index| value(rank, index)).collect();
        let start = DeviceAddress(given.as_mut_ptr().expose_provenance() as u64);
        // SAFETY: the vector outlives the stream's work, and nothing else uses it meanwhile.
        let from = unsafe { communicator.device_slice::<i32>(start, 400) }?;
        let inbox = communicator.allocate::<i32>(&[400])?;
        exchange_parts(&communicator, &stream, &inbox, from)?;
        communicator.host_barrier()
    }) {
        result.expect("every call succeeds");
    }
}

#[test]
fn a_receipt_of_another_size_than_was_sent_is_told() {
    let results = world(2, |communicator| {
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<i32>(&[64])?;
        match communicator.rank() {
            0 => stream.send(1, buffer.slice(..8)?)?,
            _ => stream.recv(0, buffer.slice(..9)?)?,
        }
        stream.synchronize()
    });
    let error = results[1].as_ref().expect_err("nine are not eight");
    assert!(matches!(error, Error::Mismatch { peer: 0, .. }), "{error}");
    results[0].as_ref().expect_err("no rank received it");
}

#[test]
fn what_is_sent_from_a_buffer_that_the_receiver_has_given_up_is_told() {
    let results = world(2, |communicator| {
        let stream = communicator.stream()?;
        let out = communicator.allocate::<i32>(&[100_000])?;
        let inbox = communicator.allocate::<i32>(&[100_000])?;
        communicator.host_barrier()?;
        if communicator.rank() == 0 {
            stream.send(1, &out)?;
            stream.synchronize()?;
        } else {
            drop(out);
            stream.recv(0, &inbox)?;
            stream.synchronize()?;
        }
        Result::Ok(())
    });
    let error = results[1].as_ref().expect_err("there is no data to load");
    assert!(matches!(error, Error::Mismatch { peer: 0, .. }), "{error}");
    assert!(error.to_string().contains("freed"), "{error}");
}
