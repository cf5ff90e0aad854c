//! How much of each device's memory is taken, by this process and, where they share a ledger, by
//! all processes.
//!
//! `FAKE_DEVICE_LEDGER` names a file that the processes of one test map together. Each has a slot in
//! it; a slot counts while the process that claimed it lives, so a killed process gives its memory
//! back, as it does on a real device. Without the file a process counts only itself.

use std::fs::File;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::mm::{MapFlags, ProtFlags, mmap};

use crate::devices::configuration;
use crate::error::{Code, Result};

const SLOTS: usize = 256;
const DEVICES: usize = 16;

/// A process's account. All zero is an unclaimed one.
#[repr(C)]
struct Slot {
    process: AtomicU64,
    /// The process's start time, since process numbers are used again.
    started: AtomicU64,
    taken: [AtomicU64; DEVICES],
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
    // SAFETY: a new mapping at an address the kernel chooses disturbs no memory of ours.
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
    // SAFETY: the mapping has room for SLOTS slots, is page-aligned, is never unmapped, and all
    // its bytes are atomics, for which every value is valid and sharing is allowed.
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
    own.taken
        .iter()
        .for_each(|taken| taken.store(0, Ordering::Release));
    own.started.store(started(process)?, Ordering::Release);
    Some(Ledger { slots, own })
}

/// When a process was started, in clock ticks since boot; nothing if it is gone.
fn started(process: u64) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?;
    // The command, second, may hold spaces; the fields after it are counted from its parenthesis.
    let rest = stat.rsplit_once(") ")?.1;
    rest.split(' ').nth(19)?.parse().ok()
}

/// Bytes of a physical device that all who share the ledger have taken.
pub(crate) fn taken(device: usize) -> u64 {
    let ledger = &*LEDGER;
    let alive = |slot: &&Slot| {
        let process = slot.process.load(Ordering::Acquire);
        process != 0
            && (std::ptr::eq(*slot, ledger.own)
                || started(process) == Some(slot.started.load(Ordering::Acquire)))
    };
    ledger
        .slots
        .iter()
        .filter(alive)
        .map(|slot| slot.taken[device % DEVICES].load(Ordering::Acquire))
        .sum()
}

/// Take `bytes` of a physical device's memory.
pub(crate) fn charge(device: usize, bytes: u64) -> Result {
    let account = &LEDGER.own.taken[device % DEVICES];
    account.fetch_add(bytes, Ordering::AcqRel);
    if taken(device) > configuration().memory_bytes {
        account.fetch_sub(bytes, Ordering::AcqRel);
        return Err(Code::OUT_OF_MEMORY);
    }
    Ok(())
}

/// Give back what [`charge`] took.
pub(crate) fn refund(device: usize, bytes: u64) {
    LEDGER.own.taken[device % DEVICES].fetch_sub(bytes, Ordering::AcqRel);
}
