//! The budget of blocks that wait for peers, over all channels and groups of a rank.
//!
//! This is where the contract of `docs/src/concurrency.md` is enforced. A grid whose blocks wait for peers must be
//! resident as a whole. If two such grids are under way on one device and do not fit together, one waits for room
//! that only the other can give, while at a peer it may be the other way round: neither ends.
//!
//! - *One at a time.* Without a call of [`crate::Communicator::allow_concurrent_collectives`], a grid may fill the
//!   device. Then it is the caller's part to have one under way at a time, or to name the blocks of each.
//! - *Several at once.* All grids together have at most as many blocks as the device has units (SMs or compute
//!   units). Then a unit without such blocks is left whenever a block of any of them waits for room, whatever its
//!   threads, registers and shared memory. A limit per kernel would not do: blocks of one kernel, spread over all
//!   units, can leave no room for the larger blocks of another one.
//!
//! A kernel lets the next one of its stream start only once its peers' blocks are resident (`Members` in
//! `device/include/symmem/group.h`; the lint of kernels checks it), so one grid of a stream at a time needs room
//! elsewhere.
//!
//! Collectives are ordered on the device by their stream, and by contract by their [`Sequence`]. So at most as many
//! are under way as there are sequences in use, or streams, whichever number is smaller. This number must not exceed
//! the number that all ranks agreed on, once they have: members choose their grids alike, and no rank sees the others' streams.

use crate::backend::abi::RawStream;
use crate::base::lock::lock;
use crate::rank::driver::Driver;
use crate::rank::sequence::{Admission, Sequence};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, Weak};

/// One unit in this many is left out of the shares. It has room for waits of one block (signals, barriers, words).
/// It also lets a cluster of two blocks find two free units in one GPC: an H200 has 8 GPCs, and of 9 free units two
/// are in the same one.
const SPARE_UNITS: u32 = 16;

/// The period before the first change of the number of collectives at once.
const FIRST_PERIOD: u32 = 1;

/// The budget, and what uses it.
pub struct Residency {
    /// SMs or compute units of the device; 0 on a backend without grids, which has no limit.
    units: u32,
    /// Most ranks that share a device.
    sharers: u32,
    /// Most collectives under way at once; the same on all ranks.
    at_once: AtomicU32,
    /// Number of the period between two changes of `at_once`. What was admitted in an earlier one is not in use.
    period: AtomicU32,
    /// The sequences in use.
    sequences: Mutex<Vec<Weak<Sequence>>>,
}

impl Residency {
    /// Makes the budget of a device with `units` SMs or compute units; 0 for a backend without grids. One
    /// collective at a time has all of it.
    pub fn new(units: u32) -> Self {
        Self {
            units,
            sharers: 1,
            at_once: AtomicU32::new(1),
            period: AtomicU32::new(FIRST_PERIOD),
            sequences: Mutex::default(),
        }
    }

    /// Sets the largest number of ranks that share a device, the same on all ranks.
    pub fn share_device(&mut self, sharers: u32) {
        self.sharers = sharers.max(1);
    }

    /// Returns the largest number of ranks that share a device.
    pub fn sharers(&self) -> u32 {
        self.sharers
    }

    /// Returns the number of units, which must be the same on all ranks.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Returns the most collectives that may be under way at once.
    #[inline]
    pub fn at_once(&self) -> u32 {
        self.at_once.load(Ordering::Acquire)
    }

    /// Returns the blocks of all kernels of a rank together, for several collectives at once.
    fn budget(&self) -> u32 {
        (self.units - self.units / SPARE_UNITS) / self.sharers
    }

    /// Returns the most blocks of a grid, of which `resident` are co-resident if nothing else runs.
    pub fn limit(&self, resident: u32) -> u32 {
        let alone = resident / self.sharers;
        match self.at_once() {
            1 => alone,
            _ if self.units == 0 => alone,
            at_once => alone.min(self.budget() / at_once),
        }
    }

    /// Returns the most collectives that may be under way at once beside, and with, a grid of `blocks`.
    pub fn fits(&self, blocks: u32) -> u32 {
        match self.units {
            0 => u32::MAX,
            _ => (self.budget() / blocks.max(1)).max(1),
        }
    }

    /// Checks that grids which were chosen earlier still have room. `whose` says whose grids have room, `remedy` what to
    /// do for smaller ones.
    ///
    /// # Errors
    /// The reason, as text, if more collectives may be under way at once than the grids have room for.
    pub fn check_room(&self, fits: u32, whose: &str, remedy: &str) -> Result<(), String> {
        let at_once = self.at_once();
        if fits >= at_once {
            return Ok(());
        }
        Err(format!(
            "{whose} room if at most {fits} collective(s) are under way at once, but {at_once} are allowed now \
             (`Communicator::allow_concurrent_collectives`); {remedy}"
        ))
    }

    /// Sets the number of collectives at once. No sequence and no stream is in use any more: the caller has seen
    /// this rank's streams idle, and no other thread enqueues.
    pub fn divide(&self, at_once: u32) {
        let mut sequences = lock(&self.sequences);
        sequences.clear();
        self.at_once.store(at_once, Ordering::Release);
        self.period.fetch_add(1, Ordering::Release);
    }

    /// Admits a call of `sequence` on a stream. After the first call of both, it neither allocates nor locks.
    ///
    /// # Errors
    /// The reason, as text, if more collectives than allowed could be under way at once.
    #[inline]
    pub fn admit(
        &self,
        driver: &Driver,
        sequence: &Arc<Sequence>,
        (queue, raw): (&Admission, RawStream),
    ) -> Result<(), String> {
        let period = self.period.load(Ordering::Acquire);
        if sequence.admission.is_of(period) && queue.is_of(period) {
            return Ok(());
        }
        // The ranks have not agreed on any number.
        if period == FIRST_PERIOD {
            return Ok(());
        }
        self.admit_first(driver, sequence, (queue, raw))
    }

    #[cold]
    fn admit_first(
        &self,
        driver: &Driver,
        sequence: &Arc<Sequence>,
        (queue, raw): (&Admission, RawStream),
    ) -> Result<(), String> {
        let mut sequences = lock(&self.sequences);
        let period = self.period.load(Ordering::Acquire);
        sequences.retain(|one| one.strong_count() > 0);
        let known = sequences
            .iter()
            .any(|one| Weak::as_ptr(one) == Arc::as_ptr(sequence));
        let in_use = sequences.len() + usize::from(!known);
        let at_once = self.at_once();
        let admitted = driver.streams.admit(raw, period, |streams| {
            in_use.min(streams) <= at_once as usize
        });
        if let Err(streams) = admitted {
            return Err(format!(
                "collectives of {in_use} channels or all-gather + GEMMs on {streams} streams could be under way at \
                 once, but their grids leave room for {at_once}; call `allow_concurrent_collectives({})` on all \
                 ranks first, or keep to {at_once} channel(s) or stream(s)",
                in_use.min(streams)
            ));
        }
        if !known {
            sequences.push(Arc::downgrade(sequence));
        }
        sequence.admission.set(period);
        queue.set(period);
        Ok(())
    }

    /// Returns why a grid is smaller than the device, for an error's text.
    pub fn because_shared(&self) -> String {
        let ranks = match self.sharers {
            1 => String::new(),
            sharers => format!(", which {sharers} ranks share"),
        };
        match self.at_once() {
            1 => ranks,
            at_once => format!(
                "{ranks}, where {at_once} collectives may be under way at once \
                 (`Communicator::allow_concurrent_collectives`)"
            ),
        }
    }
}
