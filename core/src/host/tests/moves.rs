//! Copies, packets, and sends and receives among threads as ranks.

use super::collectives::*;
use super::*;
use crate::backend::CollectiveKernels;
use rstest::rstest;

/// Returns the bytes that rank `from` sends rank `to`; they depend on both.
fn message(from: u32, to: u32, bytes: u64) -> Vec<u8> {
    (0..bytes)
        .map(|index| (index * 7 + u64::from(from) * 31 + u64::from(to) * 101 + 1) as u8)
        .collect()
}

/// Returns the size of a message in an all-to-all with unequal parts, some of them empty.
fn uneven(from: u32, to: u32, bytes: u64) -> u64 {
    match (from + 2 * to) % 3 {
        0 => 0,
        1 => bytes,
        _ => bytes / 2 + 1,
    }
}

const STRIDE: u64 = 24 * 1024;

#[rstest]
fn every_member_gets_what_every_member_gives_it(
    #[values(1, 2, 3, 4, 7, 8)] world: u32,
    #[values(true, false)] packets: bool,
    #[values(0, 1, 119, 120, 121, 3000, 20001)] bytes: u64,
) {
    if cfg!(miri) && (bytes > 1000 || world > 3) {
        return;
    }
    let ranks = ranks(world);
    for round in 0..3 {
        for rank in &ranks {
            for peer in 0..world {
                let given = message(rank.rank + round, peer, uneven(rank.rank, peer, bytes));
                put_bytes(
                    rank.at(rank.rank, INPUT + u64::from(peer) * STRIDE + 1),
                    &given,
                );
            }
        }
        on_each(&ranks, |rank, stream| {
            let group = rank.group(0, CollectiveOperationCode::ALL_TO_ALL);
            let (mut sources, mut destinations) = (NOWHERE, NOWHERE);
            let (mut sent, mut received) = ([0; MAX_RANKS], [0; MAX_RANKS]);
            for peer in 0..world {
                let index = peer as usize;
                let (here, there) = (u64::from(rank.rank) * STRIDE, u64::from(peer) * STRIDE);
                sources[index] = rank.at(rank.rank, INPUT + there + 1);
                destinations[index] = if packets {
                    rank.at(rank.rank, OUTPUT + there + 3)
                } else {
                    rank.at(peer, OUTPUT + here + 3)
                };
                sent[index] = uneven(rank.rank, peer, bytes);
                received[index] = uneven(peer, rank.rank, bytes);
            }
            let result = if packets {
                // All ranks have to agree on the number of rounds, so each must have a message of the longest size.
                let arguments = PacketArguments {
                    group,
                    sources,
                    destinations,
                    send_bytes: sent,
                    receive_bytes: received,
                };
                if world < 3 || bytes <= 1000 {
                    // SAFETY: all memory outlives the stream.
                    unsafe {
                        rank.backend
                            .collective_packets(&arguments, &GEOMETRY, stream)
                    }
                } else {
                    let arguments = PacketArguments {
                        send_bytes: sent.map(|_| bytes),
                        receive_bytes: received.map(|_| bytes),
                        ..arguments
                    };
                    // SAFETY: all memory outlives the stream.
                    unsafe {
                        rank.backend
                            .collective_packets(&arguments, &GEOMETRY, stream)
                    }
                }
            } else {
                let arguments = MoveArguments {
                    group,
                    destinations,
                    sources,
                    bytes: sent,
                    copies: world,
                    concurrent: 1,
                };
                // SAFETY: all memory outlives the stream.
                unsafe { rank.backend.collective_move(&arguments, &GEOMETRY, stream) }
            };
            result.unwrap();
        });
        for rank in &ranks {
            assert_eq!(rank.record().state, 0);
            for peer in 0..world {
                let wanted = message(peer + round, rank.rank, uneven(peer, rank.rank, bytes));
                let from = rank.at(rank.rank, OUTPUT + u64::from(peer) * STRIDE + 3);
                assert!(
                    contents(from, wanted.len() as u64) == wanted,
                    "from {peer} to {} in round {round}",
                    rank.rank
                );
            }
        }
    }
}

/// Returns arguments that exchange nothing, with a table of allocations.
fn exchange(rank: &Rank, table: &[u64]) -> ExchangeArguments {
    ExchangeArguments {
        group: rank.group(1, CollectiveOperationCode::EXCHANGE),
        send_tokens: [NO_TOKEN; MAX_RANKS],
        send_bytes: [0; MAX_RANKS],
        destinations: [NO_TOKEN; MAX_RANKS],
        receive_bytes: [0; MAX_RANKS],
        table: DeviceAddress(table.as_ptr().expose_provenance() as u64),
        table_ranks: rank.bases.len() as u32,
        blocks_per_peer: 1,
        staging: STAGING,
        chunk_bytes: CHUNK_BYTES,
        reserved: 0,
    }
}

/// Returns a table of two rows. The second is used: a token of row 1 is an offset into shared memory.
fn table(rank: &Rank) -> Vec<u64> {
    let absent = rank.bases.iter().map(|_| 0);
    absent.chain(rank.bases.iter().map(|base| base.0)).collect()
}

const ROW: u64 = 1 << 48;

#[rstest]
fn sends_meet_receives_in_a_ring_with_oneself_and_with_all(
    #[values(1, 2, 3, 8)] world: u32,
    #[values(0, 1, 1024, 5000)] bytes: u64,
    // Of how many sends one is of memory that only the sender can address.
    #[values(0, 1, 2)] own: u32,
) {
    let ranks = ranks(world);
    for rank in &ranks {
        for peer in 0..world {
            let given = message(rank.rank, peer, bytes);
            put_bytes(rank.at(rank.rank, INPUT + u64::from(peer) * STRIDE), &given);
        }
    }
    let pairs: [&(dyn Fn(u32, u32) -> bool + Sync); 4] = [
        &|from, to| to == (from + 1) % world,
        &|from, to| to == from,
        &|_, _| true,
        &|from, to| from == 0 && to == world - 1,
    ];
    for sends in pairs {
        on_each(&ranks, |rank, stream| {
            let table = table(rank);
            let mut arguments = exchange(rank, &table);
            for peer in 0..world {
                let index = peer as usize;
                let at = u64::from(peer) * STRIDE;
                if sends(rank.rank, peer) {
                    let is_own =
                        peer != rank.rank && (rank.rank + peer).checked_rem(own) == Some(0);
                    let address = rank.at(rank.rank, INPUT + at);
                    arguments.send_tokens[index] = match is_own {
                        true => ExchangeArguments::own_token(address).unwrap(),
                        false => ROW + INPUT + at,
                    };
                    arguments.send_bytes[index] = bytes;
                }
                if sends(peer, rank.rank) {
                    arguments.destinations[index] = rank.at(rank.rank, OUTPUT + at + 5).0;
                    arguments.receive_bytes[index] = bytes;
                }
            }
            // SAFETY: all memory outlives the stream, which is idle before the table is dropped.
            unsafe {
                rank.backend
                    .collective_exchange(&arguments, &GEOMETRY, stream)
                    .unwrap();
            }
            rank.synchronize(stream);
        });
        for rank in &ranks {
            assert_eq!(rank.record().state, 0);
            for peer in (0..world).filter(|peer| sends(*peer, rank.rank)) {
                let from = rank.at(rank.rank, OUTPUT + u64::from(peer) * STRIDE + 5);
                assert_eq!(contents(from, bytes), message(peer, rank.rank, bytes));
                put_bytes(from, &vec![0; bytes as usize]);
            }
        }
    }
}

#[test]
fn a_message_in_chunks_goes_on_while_its_sender_waits_for_what_depends_on_it() {
    const BYTES: u64 = 5000;
    let ranks = ranks(3);
    put_bytes(ranks[0].at(0, INPUT), &message(0, 1, BYTES));
    on_each(&ranks, |rank, stream| {
        let table = table(rank);
        let next = (rank.rank + 1) % 3;
        let before = (rank.rank + 2) % 3;
        let mut sending = exchange(rank, &table);
        // What ranks 1 and 2 pass on arrived at OUTPUT.
        let at = if rank.rank == 0 { INPUT } else { OUTPUT };
        let own = ExchangeArguments::own_token(rank.at(rank.rank, at)).unwrap();
        sending.send_tokens[next as usize] = own;
        sending.send_bytes[next as usize] = BYTES;
        let mut receiving = exchange(rank, &table);
        let calls = match rank.rank {
            // One call sends to rank 1 and receives what comes round by way of ranks 1 and 2.
            0 => {
                sending.destinations[before as usize] = rank.at(0, OUTPUT).0;
                sending.receive_bytes[before as usize] = BYTES;
                vec![sending]
            }
            _ => {
                receiving.destinations[before as usize] = rank.at(rank.rank, OUTPUT).0;
                receiving.receive_bytes[before as usize] = BYTES;
                vec![receiving, sending]
            }
        };
        for arguments in calls {
            // SAFETY: all memory outlives the stream, which is idle before the table is dropped.
            unsafe {
                rank.backend
                    .collective_exchange(&arguments, &GEOMETRY, stream)
                    .unwrap();
            }
        }
        rank.synchronize(stream);
    });
    assert_eq!(
        contents(ranks[0].at(0, OUTPUT), BYTES),
        message(0, 1, BYTES)
    );
}

#[test]
fn a_send_of_own_memory_to_itself_or_without_room_for_a_chunk_is_refused() {
    let ranks = ranks(2);
    let (rank, stream) = (&ranks[0], ranks[0].stream());
    let table = table(rank);
    let mut arguments = exchange(rank, &table);
    arguments.send_tokens[1] = ExchangeArguments::own_token(rank.at(0, INPUT)).unwrap();
    for (peer, chunk_bytes) in [(1, 0), (1, 24), (0, 1024)] {
        arguments.send_tokens.swap(peer, 1);
        arguments.chunk_bytes = chunk_bytes;
        // SAFETY: the call is refused.
        let refused = unsafe {
            rank.backend
                .collective_exchange(&arguments, &GEOMETRY, stream)
        };
        assert_eq!(refused.unwrap_err().status, Status::INVALID_ARGUMENT);
    }
    assert_eq!(ExchangeArguments::own_token(DeviceAddress(1 << 48)), None);
}

#[test]
fn a_receiver_of_another_size_than_was_sent_says_both_sizes() {
    let ranks = ranks(2);
    on_each(&ranks, |rank, stream| {
        let table = table(rank);
        let mut arguments = exchange(rank, &table);
        if rank.rank == 0 {
            arguments.group.watch.deadline_ns = 200_000_000;
            arguments.send_tokens[1] = ROW + INPUT;
            arguments.send_bytes[1] = 100;
        } else {
            arguments.destinations[0] = rank.at(1, OUTPUT).0;
            arguments.receive_bytes[0] = 60;
        }
        // SAFETY: all memory outlives the stream, which is idle before the table is dropped.
        unsafe {
            rank.backend
                .collective_exchange(&arguments, &GEOMETRY, stream)
                .unwrap();
        }
        rank.synchronize(stream);
    });
    let record = ranks[1].record();
    assert_eq!(
        (record.state, record.kind, record.rank, record.peer),
        (2, 4, 1, 0)
    );
    assert_eq!((record.expected, record.seen, record.slot), (60, 100, 1));
    let sender = ranks[0].record();
    let kind = WaitRecord::COLLECTIVE + CollectiveOperationCode::EXCHANGE.0;
    assert_eq!((sender.kind, sender.peer, sender.reason), (kind, 1, 1));
}
