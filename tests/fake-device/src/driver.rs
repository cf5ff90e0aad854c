//! The state: one table for each kind of thing a program can hold.
//!
//! One lock guards all of it. Streams run outside it and take it only to look an address up.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::call::lock;
use crate::capture::Capture;
use crate::contexts::Context;
use crate::devices::machine;
use crate::error::{Code, Result};
use crate::events::Event;
use crate::graphs::{Executable, Graph};
use crate::handles::Handle;
use crate::memory::Memory;
use crate::modules::{Function, Module};
use crate::multicast;
use crate::report;
use crate::streams::Stream;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// What a program can hold, in the order `fake_device_live` counts them.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Kind { $($(#[$doc])* $name,)* }
        impl Kind {
            /// Every kind.
            pub const ALL: &'static [Kind] = &[$(Kind::$name,)*];
            /// Its name in reports.
            pub fn name(self) -> &'static str {
                match self { $(Kind::$name => $text,)* }
            }
        }
    };
}
kinds! {
    /// A retained primary context.
    Context = "contexts",
    /// Memory with addresses from the start.
    Allocation = "allocations",
    /// Pinned host memory.
    HostAllocation = "host allocations",
    /// Host memory of the program's own, pinned.
    HostRegistration = "host registrations",
    /// A handle to memory without addresses: created, imported or retained.
    AllocationHandle = "allocation handles",
    /// A range of reserved addresses.
    Reservation = "address reservations",
    /// A mapping of memory at reserved addresses.
    Mapping = "mappings",
    /// A mapping of another process's allocation by its legacy handle.
    IpcMapping = "IPC mappings",
    /// A stream.
    Stream = "streams",
    /// An event.
    Event = "events",
    /// A graph.
    Graph = "graphs",
    /// An instantiated graph.
    GraphExec = "graph executables",
    /// A module.
    Module = "modules",
    /// A function: goes with its module, so never counted by itself.
    Function = "functions",
    /// A handle to a multicast object: created or imported.
    MulticastHandle = "multicast handles",
    /// A range of a multicast object that this process has bound memory to.
    MulticastBinding = "multicast bindings",
}

/// Every table.
#[derive(Default)]
pub(crate) struct Driver {
    pub contexts: BTreeMap<u64, Context>,
    /// The context of each device's ordinal, while it is retained.
    pub primary: BTreeMap<usize, u64>,
    pub memory: Memory,
    pub handles: BTreeMap<u64, Handle>,
    pub streams: BTreeMap<u64, Stream>,
    pub events: BTreeMap<u64, Event>,
    pub captures: BTreeMap<u64, Capture>,
    pub graphs: BTreeMap<u64, Graph>,
    pub executables: BTreeMap<u64, std::sync::Arc<Executable>>,
    pub modules: BTreeMap<u64, Module>,
    pub functions: BTreeMap<u64, Function>,
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// The state, once the library is initialised.
pub(crate) fn driver() -> Result<MutexGuard<'static, Driver>> {
    initialised().map(|()| state())
}

/// Whether the library is initialised.
pub(crate) fn initialised() -> Result {
    machine().map(drop)
}

/// The state, for work that cannot exist before that.
pub(crate) fn state() -> MutexGuard<'static, Driver> {
    lock(&DRIVER)
}

/// A handle that has not been given out before. Its upper bits say what it names and make it an
/// address that no processor can load from.
pub(crate) fn new_handle(kind: Kind) -> u64 {
    tag(kind) | (NEXT.fetch_add(1, Ordering::Relaxed) << 4)
}

fn tag(kind: Kind) -> u64 {
    (0xf000 + kind as u64) << 48
}

/// Record that `handle` names nothing of this kind and say so in the driver's way.
pub(crate) fn dangling(kind: Kind, handle: u64) -> Code {
    let number = (handle & 0xffff_ffff_ffff) >> 4;
    let given_out = handle & (0xffff << 48) == tag(kind) && number < NEXT.load(Ordering::Relaxed);
    let what = if given_out {
        "was destroyed before"
    } else {
        "was never given out"
    };
    report::violation(format!(
        "{handle:#x}, meant as one of the {}, {what}",
        kind.name()
    ));
    match kind {
        Kind::Context => Code::CONTEXT_IS_DESTROYED,
        Kind::AllocationHandle => Code::INVALID_VALUE,
        _ => Code::INVALID_HANDLE,
    }
}

/// How many of `kind` this process holds.
pub(crate) fn live(kind: Kind) -> u64 {
    let driver = state();
    let count = match kind {
        Kind::Context => driver
            .contexts
            .values()
            .filter(|context| !context.implicit)
            .count(),
        Kind::Stream => driver
            .streams
            .values()
            .filter(|stream| !stream.is_default())
            .count(),
        Kind::Event => driver.events.len(),
        Kind::Graph => driver.graphs.len(),
        Kind::GraphExec => driver.executables.len(),
        Kind::Module => driver.modules.len(),
        Kind::AllocationHandle => driver.handles.len() - multicast_handles(&driver),
        Kind::MulticastHandle => multicast_handles(&driver),
        Kind::MulticastBinding => multicast::bound(),
        Kind::Reservation => driver.memory.reservations.len(),
        Kind::Function => 0,
        kind => driver
            .memory
            .ranges
            .values()
            .filter(|range| range.kind() == kind)
            .count(),
    };
    count as u64
}

fn multicast_handles(driver: &Driver) -> usize {
    let handles = driver.handles.values();
    handles.filter(|handle| handle.is_multicast()).count()
}

/// Take what `chosen` picks out of a table.
pub(crate) fn take<T>(table: &mut BTreeMap<u64, T>, chosen: impl Fn(&T) -> bool) -> Vec<T> {
    let keys: Vec<u64> = table
        .iter()
        .filter(|(_, value)| chosen(value))
        .map(|(key, _)| *key)
        .collect();
    keys.iter().filter_map(|key| table.remove(key)).collect()
}
