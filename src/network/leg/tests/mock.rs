//! A network of members in one thread. Messages and puts arrive in random order; a put's source is read only when it
//! arrives, as a network card may.

use crate::network::leg::fault::LegFault;
use crate::network::leg::leg::{Leg, Running};
use crate::network::leg::progress::Progress;
use crate::network::wire::{MOST_MESSAGE, Wire};
use std::collections::HashMap;

/// A generator of pseudo-random numbers: splitmix64.
pub struct Random(pub u64);

impl Random {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ z >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn below(&mut self, most: usize) -> usize {
        (self.next() % most as u64) as usize
    }
}

/// A fault to plant.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Planted {
    None,
    /// The first put arrives, but its bytes do not.
    LostBytes,
    /// One element of a result is wrong.
    WrongByte,
    /// A put is announced before its bytes are there.
    EarlyTag,
}

struct Transit {
    from: usize,
    to: usize,
    tag: u32,
    message: Vec<u8>,
    /// Source, length, offset in the receiver's region.
    put: Option<(*const u8, usize, u64)>,
}

/// The network.
pub struct Net {
    members: usize,
    regions: Vec<Vec<u8>>,
    transit: Vec<Transit>,
    /// What has arrived, by receiver, sender and tag.
    arrived: HashMap<(usize, usize, u32), Vec<u8>>,
    /// Bytes of data sent, by member: of messages and of puts.
    pub bytes: Vec<u64>,
    pub planted: Planted,
}

/// One member's end.
struct End<'n> {
    net: &'n mut Net,
    own: usize,
    taken: Vec<u8>,
}

impl Wire for End<'_> {
    type Fault = String;

    fn members(&self) -> usize {
        self.net.members
    }

    fn own(&self) -> usize {
        self.own
    }

    fn region(&self) -> (*mut u8, u64) {
        let region = &self.net.regions[self.own];
        (region.as_ptr().cast_mut(), region.len() as u64)
    }

    fn send(&mut self, to: usize, tag: u32, data: &[u8]) -> Result<(), String> {
        assert!(data.len() <= MOST_MESSAGE && to != self.own);
        self.net.bytes[self.own] += data.len() as u64;
        self.net.transit.push(Transit {
            from: self.own,
            to,
            tag,
            message: data.to_vec(),
            put: None,
        });
        Ok(())
    }

    unsafe fn put(
        &mut self,
        to: usize,
        tag: u32,
        source: *const u8,
        bytes: u64,
        at: u64,
    ) -> Result<(), String> {
        assert!(to != self.own && at + bytes <= self.net.regions[to].len() as u64);
        self.net.bytes[self.own] += bytes;
        self.net.transit.push(Transit {
            from: self.own,
            to,
            tag,
            message: Vec::new(),
            put: Some((source, bytes as usize, at)),
        });
        if self.net.planted == Planted::EarlyTag {
            self.net.arrived.insert((to, self.own, tag), Vec::new());
        }
        Ok(())
    }

    fn take(&mut self, from: usize, tag: u32) -> Option<&[u8]> {
        self.taken = self.net.arrived.remove(&(self.own, from, tag))?;
        Some(&self.taken)
    }

    fn settled(&mut self) -> bool {
        let mut transit = self.net.transit.iter();
        !transit.any(|one| one.from == self.own && one.put.is_some())
    }
}

impl Net {
    pub fn new(regions: Vec<Vec<u8>>) -> Self {
        Self {
            members: regions.len(),
            bytes: vec![0; regions.len()],
            regions,
            transit: Vec::new(),
            arrived: HashMap::new(),
            planted: Planted::None,
        }
    }

    pub fn regions(&self) -> &[Vec<u8>] {
        &self.regions
    }

    /// Delivers a random message or put.
    fn deliver(&mut self, random: &mut Random) {
        let at = random.below(self.transit.len());
        let one = self.transit.swap_remove(at);
        if let Some((source, bytes, offset)) = one.put {
            if self.planted == Planted::LostBytes {
                self.planted = Planted::None;
            } else {
                let to = self.regions[one.to].as_mut_ptr();
                // SAFETY: both ranges are inside of regions of different members, checked at the put.
                unsafe {
                    to.add(offset as usize)
                        .copy_from_nonoverlapping(source, bytes)
                };
            }
        }
        let early = self.planted == Planted::EarlyTag && one.put.is_some();
        let earlier = match early {
            true => None,
            false => self
                .arrived
                .insert((one.to, one.from, one.tag), one.message),
        };
        assert!(earlier.is_none(), "two messages with tag {:#x}", one.tag);
    }

    /// Runs a leg of each member to its end, in random order.
    ///
    /// # Errors
    /// The first member's failure, and a leg that does not end.
    pub fn run(&mut self, legs: &[Leg], random: &mut Random) -> Result<(), LegFault<String>> {
        let members = self.members;
        let begin = |(own, leg): (usize, &Leg)| Some(leg.begin(members, own));
        let mut running: Vec<Option<Running>> = legs.iter().enumerate().map(begin).collect();
        // Members begin at random times: until then what they are sent waits.
        let mut late: Vec<usize> = (0..members).map(|_| random.below(40)).collect();
        let mut quiet = 0;
        while running.iter().any(Option::is_some) {
            if random.below(3) == 0 && !self.transit.is_empty() {
                self.deliver(random);
                quiet = 0;
            }
            let own = random.below(members);
            if late[own] > 0 {
                late[own] -= 1;
                continue;
            }
            let Some(leg) = &mut running[own] else {
                continue;
            };
            let mut end = End {
                net: self,
                own,
                taken: Vec::new(),
            };
            match leg.poll(&mut end)? {
                Progress::Done => running[own] = None,
                Progress::Busy => quiet = 0,
                Progress::Waiting => quiet += 1,
            }
            if self.transit.is_empty() && quiet > 1000 {
                return Err(LegFault::Wire("the members wait for each other".into()));
            }
        }
        if self.planted == Planted::WrongByte {
            for region in &mut self.regions {
                region[0] ^= 1;
            }
        }
        assert!(
            self.transit.is_empty(),
            "a leg has ended before what it was sent"
        );
        self.arrived
            .retain(|_, _| self.planted != Planted::EarlyTag);
        assert!(
            self.arrived.is_empty(),
            "a leg has ended before what it was sent"
        );
        Ok(())
    }
}
