//! The room for grids that wait for peers: all that run on a device at once must be resident together.
//!
//! A grid takes the share of a device that its blocks have of the most that are resident. Shares of more than one
//! device are a violation: on a real device, blocks without room could wait for a grid that waits for them. Waits of
//! one block do not count, nor do grids of other processes.

use std::collections::BTreeMap;
use std::sync::Mutex;

use crate::call::lock;
use crate::report::violation;

/// The shares of a whole device.
const WHOLE: u64 = 1 << 32;

/// Shares in use and their grids, by physical device.
static IN_USE: Mutex<BTreeMap<usize, Vec<(u64, String)>>> = Mutex::new(BTreeMap::new());

/// A grid that runs.
pub(crate) struct Grid<'a> {
    pub name: &'a str,
    pub device: usize,
    pub blocks: u32,
    /// Most blocks of the kernel that are resident if nothing else runs.
    pub resident: u32,
}

/// Runs a grid, which takes its share of the device meanwhile.
pub(crate) fn during<T>(grid: &Grid<'_>, work: impl FnOnce() -> T) -> T {
    let Grid {
        name,
        device,
        blocks,
        resident,
    } = *grid;
    if blocks <= 1 {
        return work();
    }
    let entry = (
        u64::from(blocks) * WHOLE / u64::from(resident.max(1)),
        format!("{name} ({blocks} of {resident} blocks)"),
    );
    {
        let mut in_use = lock(&IN_USE);
        let grids = in_use.entry(device).or_default();
        grids.push(entry.clone());
        if grids.iter().map(|(share, _)| share).sum::<u64>() > WHOLE {
            let names: Vec<&str> = grids.iter().map(|(_, name)| name.as_str()).collect();
            violation(format!(
                "grids that wait for peers are not resident together on device {device}: {}",
                names.join(", ")
            ));
        }
    }
    let result = work();
    if let Some(grids) = lock(&IN_USE).get_mut(&device)
        && let Some(at) = grids.iter().position(|one| *one == entry)
    {
        grids.swap_remove(at);
    }
    result
}
