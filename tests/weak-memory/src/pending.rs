//! Accesses that are issued and not complete, and which of them must stay in order.

use std::ops::Deref;

use crate::memory::{Reach, StoreNumber};
use crate::operation::Update;
use crate::wave::Registers;

/// The kind of a pending access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Load { signed: bool },
    Store,
    Atomic { update: Update },
    WriteBack { system: bool },
}

/// The lanes of an access with their addresses, which it derefs to.
#[derive(Clone, Debug, Default)]
pub struct Lanes {
    each: Vec<(usize, u64)>,
    /// The lowest address, and the highest one.
    ends: (u64, u64),
}

impl From<Vec<(usize, u64)>> for Lanes {
    fn from(each: Vec<(usize, u64)>) -> Self {
        let addresses = || each.iter().map(|(_, address)| *address);
        let ends = addresses().min().zip(addresses().max());
        Self {
            ends: ends.unwrap_or_default(),
            each,
        }
    }
}

impl Deref for Lanes {
    type Target = [(usize, u64)];

    fn deref(&self) -> &Self::Target {
        &self.each
    }
}

/// An access to global memory that is not complete.
#[derive(Clone, Debug)]
pub struct Pending {
    pub kind: Kind,
    pub reach: Reach,
    pub lanes: Lanes,
    /// Bytes per lane.
    pub bytes: usize,
    pub data: Vec<u8>,
    pub registers: Option<Registers>,
    /// Where a load to shared memory puts the bytes of lane 0.
    pub shared: Option<usize>,
    pub store: StoreNumber,
    /// Its number among all accesses.
    pub number: u64,
    /// Its number among the accesses of its wave.
    pub order: u64,
    /// The index of its instruction.
    pub instruction: usize,
    /// Whether other lanes of the same store are complete.
    pub torn: bool,
}

impl Default for Pending {
    fn default() -> Self {
        Self {
            kind: Kind::Store,
            reach: Reach {
                past_level1: false,
                past_level2: false,
            },
            lanes: Lanes::default(),
            bytes: 0,
            data: Vec::new(),
            registers: None,
            shared: None,
            store: 0,
            number: 0,
            order: 0,
            instruction: 0,
            torn: false,
        }
    }
}

impl Pending {
    /// Whether `later`, which was issued after this access, must not complete before it.
    pub fn holds_up(&self, later: &Self) -> bool {
        if matches!(later.kind, Kind::WriteBack { .. }) {
            // A write-back covers its wave's earlier stores.
            return !self.is_load();
        }
        if matches!(self.kind, Kind::WriteBack { .. }) {
            return false;
        }
        if self.is_load() && later.is_load() {
            // Loads return in order, of which code makes use that loads again what it has not used.
            return self.writes_to(later.registers.as_ref());
        }
        // A wave's accesses to the same byte stay in order.
        self.meets(later)
    }

    pub fn is_load(&self) -> bool {
        matches!(self.kind, Kind::Load { .. })
    }

    /// Whether it will write one of these registers.
    pub fn writes_to(&self, registers: Option<&Registers>) -> bool {
        match (&self.registers, registers) {
            (Some(Registers::Vector(own)), Some(Registers::Vector(other))) => {
                own.start < other.end && other.start < own.end
            }
            _ => false,
        }
    }

    /// Splits a store in two: this one keeps the first lanes, the other one has the rest.
    pub fn split(&mut self, lanes: usize) -> Self {
        let mut first = std::mem::take(&mut self.lanes.each);
        let rest = first.split_off(lanes);
        self.lanes = first.into();
        Self {
            lanes: rest.into(),
            data: self.data.split_off(lanes * self.bytes),
            registers: self.registers.clone(),
            torn: true,
            ..*self
        }
    }

    /// Whether both access a byte.
    pub fn meets(&self, later: &Self) -> bool {
        let (here, there) = (self.lanes.ends, later.lanes.ends);
        // Most accesses in flight are far from each other.
        if here.0 >= there.1 + later.bytes as u64 || there.0 >= here.1 + self.bytes as u64 {
            return false;
        }
        self.lanes.iter().any(|(_, here)| {
            later.lanes.iter().any(|(_, there)| {
                *here < there + later.bytes as u64 && *there < here + self.bytes as u64
            })
        })
    }
}

/// The first store that dirtied a line.
#[derive(Clone, Copy)]
pub struct Dirtied {
    /// The wave's number in its block.
    pub wave: usize,
    /// The number of accesses, in all waves, when it was issued.
    pub issued: u64,
    /// The same when it was complete.
    pub completed: u64,
}
