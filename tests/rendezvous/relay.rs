//! A relay between a rank and rank 0 alters one byte or one message. Either the ranks meet nonetheless, and know each
//! other, or both end with an error that blames no rank and, unless the rank was only waited for, names the connection.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use symmem::bootstrap::{Bootstrap, BootstrapError, Secret};

use crate::amount::{Amount, amount};
use crate::{free_address, place};

/// Time for which the rank behind the relay tries, if what it says never arrives: more than a handshake takes on a
/// busy machine, or else the relay's work would not be seen.
const OF_RANK_1: Duration = Duration::from_secs(8);
/// Time for which rank 0 waits after the other has failed, until it is called off as by a launcher.
const AFTERWARDS: Duration = Duration::from_millis(300);
/// Enough for a rendezvous that nothing disturbs.
const LONG: Duration = Duration::from_secs(120);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Direction {
    ToStore,
    ToRank,
}

#[derive(Clone, Copy, Debug)]
enum Unit {
    Byte,
    Message,
}

#[derive(Clone, Copy, Debug)]
enum Change {
    /// Flips one bit of a byte.
    Flip(u8),
    Drop,
    Repeat,
    /// Exchanges it with the next.
    Swap,
}

/// What a relay does to each connection.
#[derive(Clone, Copy, Debug)]
struct Fault {
    direction: Direction,
    unit: Unit,
    index: usize,
    change: Change,
}

/// What a relay got from one end of a connection, and what it gave to the other.
#[derive(Clone, Debug, Default)]
struct Carried {
    taken: Vec<u8>,
    given: Vec<u8>,
}

impl Carried {
    /// Returns the number of bytes that arrived as they were sent.
    fn intact(&self) -> usize {
        let pairs = self.taken.iter().zip(&self.given);
        pairs.take_while(|(taken, given)| taken == given).count()
    }

    /// Returns the messages from `direction`: two of the handshake if it is to the store, one if it is to the rank, then
    /// records with their length in front.
    fn messages(mut bytes: &[u8], direction: Direction) -> Vec<Vec<u8>> {
        let mut messages = Vec::new();
        while !bytes.is_empty() {
            let length = match (messages.len(), direction) {
                (0, _) => 56,
                (1, Direction::ToStore) => 16,
                _ => match bytes {
                    [low, high, ..] => 2 + usize::from(u16::from_le_bytes([*low, *high])),
                    _ => 2,
                },
            };
            let (message, rest) = bytes.split_at(length.min(bytes.len()));
            messages.push(message.to_vec());
            bytes = rest;
        }
        messages
    }

    /// Gives what `fault` makes of the bytes taken so far, of which the other end will send more unless it `is_over`.
    fn give(&self, fault: Option<Fault>, direction: Direction, is_over: bool) -> Vec<u8> {
        let Some(fault) = fault.filter(|fault| fault.direction == direction) else {
            return self.taken.clone();
        };
        let mut units = match fault.unit {
            Unit::Byte => self.taken.iter().map(|byte| vec![*byte]).collect(),
            Unit::Message => Self::messages(&self.taken, direction),
        };
        let index = fault.index;
        if index < units.len() {
            match fault.change {
                Change::Flip(bit) => units[index][0] ^= 1 << bit,
                Change::Drop => drop(units.remove(index)),
                Change::Repeat => units.insert(index, units[index].clone()),
                Change::Swap if index + 1 < units.len() => units.swap(index, index + 1),
                // It waits for the next one.
                Change::Swap if !is_over => units.truncate(index),
                Change::Swap => {}
            }
        }
        units.concat()
    }
}

/// Carries what `from` sends to `to`, with `fault`, until either ends. Returns what it carried.
fn pump(
    mut from: TcpStream,
    mut to: TcpStream,
    direction: Direction,
    fault: Option<Fault>,
) -> Carried {
    let mut carried = Carried::default();
    let mut chunk = [0; 4096];
    loop {
        let count = from.read(&mut chunk).unwrap_or(0);
        carried.taken.extend_from_slice(&chunk[..count]);
        let given = carried.give(fault, direction, count == 0);
        // A message that is not complete may be taken for another one while it arrives: give no byte twice.
        let fresh = given.get(carried.given.len()..).unwrap_or_default();
        let written = to.write_all(fresh);
        carried.given.extend_from_slice(fresh);
        if count == 0 || written.is_err() {
            // The other direction goes on until its own end.
            let _ = to.shutdown(Shutdown::Write);
            return carried;
        }
    }
}

/// What two ranks came to with `fault` on the way of rank 1.
struct Outcome {
    ranks: [Result<Bootstrap, BootstrapError>; 2],
    /// Each connection through the relay, in both directions.
    connections: Vec<BTreeMap<Direction, Carried>>,
    store: String,
    relay: String,
}

fn meet(fault: Option<Fault>, of_rank_1: Duration) -> Outcome {
    let secret = Secret::random().unwrap();
    let store = free_address();
    let listener = TcpListener::bind(free_address()).unwrap();
    listener.set_nonblocking(true).unwrap();
    let relay = listener.local_addr().unwrap().to_string();
    let (is_over, is_wanted) = (AtomicBool::new(false), AtomicBool::new(true));
    let connections = Mutex::new(Vec::new());
    let ranks = std::thread::scope(|scope| {
        let (store, is_over, connections) = (&store, &is_over, &connections);
        scope.spawn(move || {
            while !is_over.load(Ordering::Relaxed) {
                let Ok((rank, _)) = listener.accept() else {
                    std::thread::sleep(Duration::from_millis(1));
                    continue;
                };
                // Rank 0 may not listen yet, or any more: then the connection ends, and the rank tries again.
                let Ok(rank_0) = TcpStream::connect(store) else {
                    continue;
                };
                rank.set_nonblocking(false).unwrap();
                let both = || (rank.try_clone().unwrap(), rank_0.try_clone().unwrap());
                let (up, down) = (both(), both());
                let pump = move |from, to, direction| pump(from, to, direction, fault);
                scope.spawn(move || {
                    let up = scope.spawn(move || pump(up.0, up.1, Direction::ToStore));
                    let down = pump(down.1, down.0, Direction::ToRank);
                    let up = up.join().unwrap();
                    let both = [(Direction::ToStore, up), (Direction::ToRank, down)];
                    connections.lock().unwrap().push(BTreeMap::from(both));
                });
            }
        });
        let rank_0 = scope.spawn(|| {
            let is_wanted = || is_wanted.load(Ordering::Relaxed);
            Bootstrap::connect_while(place(0, 2, store, &secret), LONG, &is_wanted)
        });
        let rank_1 = Bootstrap::connect(place(1, 2, &relay, &secret), of_rank_1);
        if rank_1.is_err() {
            std::thread::sleep(AFTERWARDS);
            is_wanted.store(false, Ordering::Relaxed);
        }
        let rank_0 = rank_0.join().unwrap();
        is_over.store(true, Ordering::Relaxed);
        [rank_0, rank_1]
    });
    Outcome {
        ranks,
        connections: connections.into_inner().unwrap(),
        store,
        relay,
    }
}

/// What became of a rank that got no answer.
const SILENCE: &str = "got no answer";

impl Outcome {
    /// Returns whether what was `needed` of some connection arrived in each direction.
    fn has_redirected(&self, needed: &BTreeMap<Direction, usize>) -> bool {
        self.connections.iter().any(|connection| {
            let mut needed = needed.iter();
            needed.all(|(direction, needed)| connection[direction].intact() >= *needed)
        })
    }

    /// Checks that the ranks met, if what was `needed` of the connection arrived, or failed as they should. Returns what
    /// became of them, in a word each.
    fn check(&self, fault: Fault, needed: &BTreeMap<Direction, usize>) -> (String, String) {
        match &self.ranks {
            [Ok(rank_0), Ok(rank_1)] => {
                assert!(
                    self.has_redirected(needed),
                    "{fault:?}: they met over an altered connection"
                );
                assert_eq!(rank_0.peers(), rank_1.peers(), "{fault:?}");
                let ranks = rank_0
                    .peers()
                    .iter()
                    .map(|peer| (peer.rank, peer.process.pid));
                let pid = std::process::id();
                assert!(ranks.eq([(0, pid), (1, pid)]), "{fault:?}");
                std::thread::scope(|scope| {
                    for rank in [rank_0, rank_1] {
                        scope.spawn(move || {
                            let own = [7, rank.rank() as u8];
                            let all = rank.store().all_gather("values", &own, LONG).unwrap();
                            assert_eq!(all, [[7, 0], [7, 1]], "{fault:?}");
                        });
                    }
                });
                ("met".into(), "met".into())
            }
            [Err(rank_0), Err(rank_1)] => (
                self.word_of_rank_0(fault, rank_0),
                self.word_of_rank_1(fault, rank_1, needed),
            ),
            [rank_0, rank_1] => panic!("{fault:?}: only one met: {rank_0:?} {rank_1:?}"),
        }
    }

    fn word_of_rank_0(&self, fault: Fault, error: &BootstrapError) -> String {
        match error {
            BootstrapError::CalledOff { .. } => "called off".into(),
            BootstrapError::ConnectionLost { connection, .. }
                if error.peer().is_none() && connection.contains(&self.store) =>
            {
                "lost a connection".into()
            }
            _ => panic!("{fault:?}: rank 0: {error}"),
        }
    }

    fn word_of_rank_1(
        &self,
        fault: Fault,
        error: &BootstrapError,
        needed: &BTreeMap<Direction, usize>,
    ) -> String {
        let names = |text: &str| text.contains(&self.relay) || text.contains(&self.store);
        match error {
            BootstrapError::WrongSecret { address, .. }
                if names(address) && address.contains("the connection from ") =>
            {
                "refused it".into()
            }
            BootstrapError::ConnectionLost {
                connection, reason, ..
            } if error.peer().is_none() && names(connection) => {
                let is_silent = reason.contains("no answer");
                if is_silent { SILENCE } else { reason }.into()
            }
            // It was redirected, and rank 0, at its Unix socket, was too slow to tell it of the altered farewell.
            BootstrapError::Timeout {
                missing, awaited, ..
            } if *missing == [0]
                && awaited.contains("the abstract Unix socket")
                && self.has_redirected(needed) =>
            {
                "timeout".into()
            }
            _ => panic!("{fault:?}: rank 1: {error}"),
        }
    }
}

/// Returns every fault in what the connection of an undisturbed rendezvous carries.
fn faults(connection: &BTreeMap<Direction, Carried>) -> Vec<Fault> {
    let mut faults = Vec::new();
    for (&direction, carried) in connection {
        let mut add = |unit, index, changes: &[Change]| {
            faults.extend(changes.iter().map(|&change| Fault {
                direction,
                unit,
                index,
                change,
            }));
        };
        let (drop, repeat, swap) = (Change::Drop, Change::Repeat, Change::Swap);
        for index in 0..carried.taken.len() {
            // Each bit of a byte comes up in some byte of each message.
            let flip = Change::Flip((index * 5 % 8) as u8);
            add(Unit::Byte, index, &[flip, drop, repeat, swap]);
        }
        for index in 0..Carried::messages(&carried.taken, direction).len() {
            add(Unit::Message, index, &[drop, repeat, swap]);
        }
    }
    faults
}

#[test]
fn what_a_relay_alters_is_an_error_that_names_the_connection_or_does_no_harm() {
    let undisturbed = meet(None, LONG);
    assert!(
        undisturbed.ranks.iter().all(Result::is_ok),
        "{:?}",
        undisturbed.ranks
    );
    let [connection] = &undisturbed.connections[..] else {
        panic!("{} connections", undisturbed.connections.len());
    };
    let (up, down) = (
        &connection[&Direction::ToStore],
        &connection[&Direction::ToRank],
    );
    let messages = Carried::messages(&up.taken, Direction::ToStore);
    assert_eq!(messages.len(), 4, "hello, confirmation, join and farewell");
    assert_eq!(Carried::messages(&down.taken, Direction::ToRank).len(), 2);
    // A rank is in once it is redirected. What becomes of its farewell to the first connection may matter or not.
    let farewell = up.taken.len() - messages[3].len();
    let needed = [
        (Direction::ToStore, farewell),
        (Direction::ToRank, down.taken.len()),
    ];
    let needed = BTreeMap::from(needed);
    let faults = faults(connection);
    assert!(faults.len() >= 1000, "{}", faults.len());
    let step = match amount() {
        Amount::Sample | Amount::Long => 59,
        Amount::All => 1,
    };
    let faults: Vec<Fault> = faults.into_iter().step_by(step).collect();
    let (next, words) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        // Most of them wait for a deadline most of the time.
        for _ in 0..24 {
            scope.spawn(|| {
                while let Some(&fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let outcome = meet(Some(fault), OF_RANK_1);
                    let word = outcome.check(fault, &needed);
                    *words.lock().unwrap().entry(word).or_insert(0) += 1;
                }
            });
        }
    });
    let words = words.into_inner().unwrap();
    for ((rank_0, rank_1), count) in &words {
        println!("{count} faults: rank 0 {rank_0}; rank 1: {rank_1}");
    }
    assert_eq!(words.values().sum::<usize>(), faults.len());
    let silent = words.iter().filter(|((_, rank_1), _)| rank_1 == SILENCE);
    let silent: usize = silent.map(|(_, count)| count).sum();
    assert!(
        silent < faults.len(),
        "or else the machine is too busy to see what the relay does"
    );
}
