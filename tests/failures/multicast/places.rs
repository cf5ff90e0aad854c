//! Driver calls at which the tests inject failures, taken from a run in which nothing fails.

use super::*;

/// A call: the rank, the function, and the number of the call among its calls of that function.
pub type Place = (usize, &'static str, usize);

/// Returns each rank's calls in a run in which nothing fails.
pub fn clean_calls() -> &'static [Vec<String>; WORLD] {
    static CALLS: OnceLock<[Vec<String>; WORLD]> = OnceLock::new();
    CALLS.get_or_init(|| {
        let traces = traces();
        let status = works(traced(plan("multicast/use"), &traces));
        assert_eq!(status, ["HARDWARE: ", "HARDWARE: "]);
        traces.map(|trace| calls(&trace))
    })
}

/// Returns the positions of a function's calls.
pub fn places(calls: &[String], symbol: &str) -> Vec<usize> {
    let named = calls.iter().enumerate().filter(|(_, call)| *call == symbol);
    named.map(|(place, _)| place).collect()
}

/// Returns how often a function is called before position `end`.
pub fn until(calls: &[String], symbol: &str, end: usize) -> usize {
    let before = places(calls, symbol).into_iter();
    before.filter(|&place| place < end).count()
}

/// Returns the first call of a function from position `start` on: its position, and its number among the calls of that
/// function.
#[track_caller]
pub fn first_from(calls: &[String], symbol: &str, start: usize) -> (usize, usize) {
    let found = places(calls, symbol);
    let found = found.into_iter().find(|&place| place >= start);
    let place = found.unwrap_or_else(|| panic!("no {symbol} from call {start} on"));
    (place, until(calls, symbol, place) + 1)
}

/// Returns every call of the setup, on each rank that makes it.
pub fn set_up() -> Vec<Place> {
    let mut found = Vec::new();
    for (rank, calls) in clean_calls().iter().enumerate() {
        let first = |symbol| places(calls, symbol)[0];
        let (joined, bound) = (first("cuMulticastAddDevice"), first("cuMulticastBindMem"));
        let mut add = |symbol: &'static str, number: usize| found.push((rank, symbol, number));
        let until = |symbol: &str, end: usize| until(calls, symbol, end);
        if rank == 0 {
            let asked = until("cuMulticastGetGranularity", joined);
            assert_eq!(
                asked, 3,
                "once by the setup, and twice when the object is created"
            );
            (1..=asked).for_each(|number| add("cuMulticastGetGranularity", number));
            add("cuMulticastCreate", 1);
            add(
                "cuMemExportToShareableHandle",
                until("cuMemExportToShareableHandle", joined),
            );
        } else {
            add(
                "cuMemImportFromShareableHandle",
                until("cuMemImportFromShareableHandle", joined),
            );
        }
        add("cuMulticastAddDevice", 1);
        add("cuMulticastBindMem", 1);
        for symbol in ["cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"] {
            add(symbol, until(symbol, bound) + 1);
        }
    }
    found
}

/// Returns what a rank undoes once everything has been used: a buffer is freed and one is dropped, the object is
/// unmapped, the slots are unbound, and the object is released.
pub fn way_back(rank: usize) -> [Place; 6] {
    let calls = &clean_calls()[rank];
    let last = |symbol| places(calls, symbol).pop().expect("it is called");
    let launched = last("cuLaunchKernelEx");
    let place = |symbol: &'static str, from: usize| {
        let (place, number) = first_from(calls, symbol, from);
        (place, (rank, symbol, number))
    };
    let (freed, first) = place("cuMulticastUnbind", launched);
    let (_, second) = place("cuMulticastUnbind", freed + 1);
    // All other freed addresses had memory mapped, which is released next.
    let is_of_memory = |given: &usize| {
        let mut next = calls[given + 1..].iter();
        next.find(|call| !call.starts_with("cuCtx"))
            .is_some_and(|call| call == "cuMemRelease")
    };
    let mut given = places(calls, "cuMemAddressFree");
    given.retain(|place| *place > launched && !is_of_memory(place));
    let [given] = given[..] else {
        panic!("addresses without memory are freed at {given:?}");
    };
    let mut unmapped = places(calls, "cuMemUnmap").into_iter();
    let unmapped = unmapped.rfind(|&place| place < given);
    let (_, third) = place("cuMemUnmap", unmapped.expect("it was mapped"));
    let (_, fourth) = place("cuMemAddressFree", given);
    let (_, fifth) = place("cuMulticastUnbind", last("cuMulticastUnbind"));
    let (_, sixth) = place("cuMemRelease", last("cuMemRelease"));
    [first, second, third, fourth, fifth, sixth]
}

/// Returns the chosen items, or all in a full run. Items that are left out are counted and named.
pub fn chosen<T: std::fmt::Debug>(what: &str, all: Vec<T>, choose: impl Fn(&T) -> bool) -> Vec<T> {
    let count = all.len();
    let (mut kept, left): (Vec<T>, Vec<T>) = all.into_iter().partition(choose);
    assert!(!kept.is_empty(), "{what}: none of {count} is chosen");
    let named = format!("{} of {count} {what}, {left:?}", left.len());
    if !left.is_empty() && !left_out(&named) {
        kept.extend(left);
    }
    kept
}

/// Runs `check` for each item, `at_once` at a time, because the children mostly wait.
pub fn for_each<T: Send>(at_once: usize, items: Vec<T>, check: impl Fn(T) + Sync) {
    let items = std::sync::Mutex::new(items.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(item) = { items.lock().expect("no panic").next() } {
                    check(item);
                }
            });
        }
    });
}
