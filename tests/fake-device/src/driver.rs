//! The state: one table for each kind of object that a program can hold.
//!
//! One lock guards all tables. Streams run without it and take it only to look up addresses.

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
use crate::ranges::External;
use crate::report;
use crate::streams::Stream;

macro_rules! kinds {
    ($($(#[$doc:meta])* $name:ident = $text:literal,)*) => {
        /// The kinds of object that a program can hold, in the order that `fake_device_live` numbers them.
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
    /// Memory that is created with addresses.
    Allocation = "allocations",
    /// Pinned host memory.
    HostAllocation = "host allocations",
    /// Host memory that the program owns, pinned.
    HostRegistration = "host registrations",
    /// A handle to memory without addresses: created, imported or retained.
    AllocationHandle = "allocation handles",
    /// A range of reserved addresses.
    Reservation = "address reservations",
    /// A mapping of memory at reserved addresses.
    Mapping = "mappings",
    /// A mapping of another process's allocation by its legacy IPC handle.
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
    /// A function. It goes with its module, so it is never counted by itself.
    Function = "functions",
    /// A handle to a multicast object: created or imported.
    MulticastHandle = "multicast handles",
    /// A range of a multicast object that this process has bound memory to.
    MulticastBinding = "multicast bindings",
    /// Imported external memory.
    ExternalMemory = "external memories",
}

/// Every table.
#[derive(Default)]
pub(crate) struct Driver {
    pub contexts: BTreeMap<u64, Context>,
    /// The retained context of each device ordinal.
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
    pub externals: BTreeMap<u64, External>,
}

static DRIVER: LazyLock<Mutex<Driver>> = LazyLock::new(Mutex::default);
static NEXT: AtomicU64 = AtomicU64::new(1);

/// Locks the state; fails if the library is not initialized.
pub(crate) fn driver() -> Result<MutexGuard<'static, Driver>> {
    initialized().map(|()| state())
}

/// Fails if the library is not initialized.
pub(crate) fn initialized() -> Result {
    machine().map(drop)
}

/// Locks the state, for work that exists only after initialization.
pub(crate) fn state() -> MutexGuard<'static, Driver> {
    lock(&DRIVER)
}

/// Returns a new handle. Its upper bits encode its kind and make it an address that no processor can load from.
pub(crate) fn new_handle(kind: Kind) -> u64 {
    tag(kind) | (NEXT.fetch_add(1, Ordering::Relaxed) << 4)
}

fn tag(kind: Kind) -> u64 {
    (0xf000 + kind as u64) << 48
}

/// Reports that `handle` names no object of this kind and returns the error of the real driver.
pub(crate) fn dangling(kind: Kind, handle: u64) -> Code {
    let number = (handle & 0xffff_ffff_ffff) >> 4;
    let given_out = handle & (0xffff << 48) == tag(kind) && number < NEXT.load(Ordering::Relaxed);
    let what = if given_out {
        "was destroyed before"
    } else {
        "was never created"
    };
    report::violation(format!(
        "{handle:#x}, passed as one of the {}, {what}",
        kind.name()
    ));
    match kind {
        Kind::Context => Code::CONTEXT_IS_DESTROYED,
        Kind::AllocationHandle => Code::INVALID_VALUE,
        _ => Code::INVALID_HANDLE,
    }
}

/// Returns how many of `kind` this process holds.
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
        Kind::ExternalMemory => driver.externals.len(),
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

/// Removes the entries that `chosen` selects from a table.
pub(crate) fn take<T>(table: &mut BTreeMap<u64, T>, chosen: impl Fn(&T) -> bool) -> Vec<T> {
    let keys: Vec<u64> = table
        .iter()
        .filter(|(_, value)| chosen(value))
        .map(|(key, _)| *key)
        .collect();
    keys.iter().filter_map(|key| table.remove(key)).collect()
}
