//! Counts the memory that is allocated on each device, by this process or, with a shared ledger, by all processes.
//!
//! `FAKE_DEVICE_LEDGER` names a file that the processes of one test map together. Each process has a slot in it. A slot
//! counts while its process lives, so killing a process frees its memory, as on a real device. Without the file, a
//! process counts only its own memory.

use std::fs::File;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::devices::configuration;
use crate::error::{Code, Result};

const SLOTS: usize = 256;
const DEVICES: usize = 16;
/// Most multicast objects of one process that can have a slot of the switch.
const OBJECTS: usize = 256;

/// A process's account; all zeros if unclaimed.
#[repr(C)]
struct Slot {
    process: AtomicU64,
    /// The process's start time, because process numbers are reused.
    started: AtomicU64,
    taken: [AtomicU64; DEVICES],
    /// The identifiers of the multicast objects that have a slot of the switch; 0 is an empty entry.
    objects: [AtomicU64; OBJECTS],
}

struct Ledger {
    slots: &'static [Slot],
    own: &'static Slot,
}

static LEDGER: LazyLock<Ledger> = LazyLock::new(|| shared().unwrap_or_else(private));

fn private() -> Ledger {
    let slot = Slot {
        process: AtomicU64::new(std::process::id().into()),
        started: AtomicU64::new(started(std::process::id().into()).unwrap_or(0)),
        taken: [const { AtomicU64::new(0) }; DEVICES],
        objects: [const { AtomicU64::new(0) }; OBJECTS],
    };
    let slots = Box::leak(vec![slot].into_boxed_slice());
    Ledger {
        slots,
        own: &slots[0],
    }
}

fn shared() -> Option<Ledger> {
    let path = std::env::var_os("FAKE_DEVICE_LEDGER")?;
    let file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .ok()?;
    let bytes = SLOTS * size_of::<Slot>();
    file.set_len(bytes as u64).ok()?;
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new mapping at an address that the kernel chooses overlaps no existing memory.
    let base = unsafe {
        mmap(
            std::ptr::null_mut(),
            bytes,
            protection,
            MapFlags::SHARED,
            &file,
            0,
        )
    }
    .ok()?;
    // SAFETY: the mapping has room for SLOTS slots, is page-aligned, is never unmapped, and contains only atomics, for
    // which every value is valid and sharing is allowed.
    let slots: &'static [Slot] = unsafe { std::slice::from_raw_parts(base.cast::<Slot>(), SLOTS) };
    let process = u64::from(std::process::id());
    let own = slots.iter().find(|slot| {
        let claimed = slot.process.load(Ordering::Acquire);
        let dead = claimed == 0 || started(claimed) != Some(slot.started.load(Ordering::Acquire));
        dead && slot
            .process
            .compare_exchange(claimed, process, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    })?;
    let numbers = own.taken.iter().chain(&own.objects);
    numbers.for_each(|number| number.store(0, Ordering::Release));
    own.started.store(started(process)?, Ordering::Release);
    Some(Ledger { slots, own })
}

/// Returns when a process was started, in clock ticks since boot; `None` if it is gone or a zombie.
pub(crate) fn started(process: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The second field, the command, may contain spaces; the other fields are counted from its closing parenthesis.
    let rest = stat.rsplit_once(") ")?.1;
    let mut fields = rest.split(' ');
    let state = fields.next()?;
    let started = fields.nth(18)?.parse().ok();
    started.filter(|_| !matches!(state, "Z" | "X"))
}

/// Returns the accounts of processes that live.
fn living() -> impl Iterator<Item = &'static Slot> {
    let ledger = &*LEDGER;
    ledger.slots.iter().filter(|slot| {
        let process = slot.process.load(Ordering::Acquire);
        process != 0
            && (std::ptr::eq(*slot, ledger.own)
                || started(process) == Some(slot.started.load(Ordering::Acquire)))
    })
}

/// Returns the bytes allocated on a physical device by all processes that share the ledger.
pub(crate) fn taken(device: usize) -> u64 {
    living()
        .map(|slot| slot.taken[device % DEVICES].load(Ordering::Acquire))
        .sum()
}

/// Charges `bytes` of a physical device's memory to this process.
pub(crate) fn charge(device: usize, bytes: u64) -> Result {
    let account = &LEDGER.own.taken[device % DEVICES];
    account.fetch_add(bytes, Ordering::AcqRel);
    if taken(device) > configuration().memory_bytes {
        account.fetch_sub(bytes, Ordering::AcqRel);
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(())
}

/// Gives back what [`charge`] took.
pub(crate) fn refund(device: usize, bytes: u64) {
    LEDGER.own.taken[device % DEVICES].fetch_sub(bytes, Ordering::AcqRel);
}

/// Takes one of the switch's `most` slots for a multicast object, unless the object already has one in this or another
/// process.
pub(crate) fn take_slot(object: u64, most: usize) -> Result {
    let own = &LEDGER.own.objects;
    if own
        .iter()
        .any(|held| held.load(Ordering::Acquire) == object)
    {
        return Ok(());
    }
    let free = own.iter().find(|held| {
        held.compare_exchange(0, object, Ordering::AcqRel, Ordering::Acquire)
            .is_ok()
    });
    free.ok_or(Code::OUT_OF_MEMORY)?;
    let held = living().flat_map(|slot| &slot.objects);
    let mut objects: Vec<u64> = held.map(|held| held.load(Ordering::Acquire)).collect();
    objects.sort_unstable();
    objects.dedup();
    if objects.iter().filter(|object| **object != 0).count() > most {
        give_slot(object);
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(())
}

/// Gives back what [`take_slot`] took, if it took one. The object keeps its slot while any process has one for it.
pub(crate) fn give_slot(object: u64) {
    for held in &LEDGER.own.objects {
        let _ = held.compare_exchange(object, 0, Ordering::AcqRel, Ordering::Acquire);
    }
}
