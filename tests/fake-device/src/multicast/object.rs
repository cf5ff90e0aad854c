//! A multicast object as this process holds it.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, Weak};
use std::time::Duration;

use rustix::fs::fstat;

use super::state::{self, Access, Binding, Header, Process, State};
use crate::call::lock;
use crate::devices::machine;
use crate::error::{Code, Result};
use crate::ledger;
use crate::physical::{Physical, Use, open_descriptor_of};
use crate::report::violation;

/// What only this process knows of the object.
#[derive(Default)]
struct Here {
    /// Ranges bound by this process, with the memory, which stays open so that others can look it up by its descriptor.
    bound: Vec<(Binding, Arc<Physical>)>,
    /// Replicas looked up so far, by inode.
    seen: BTreeMap<u64, Arc<Physical>>,
    /// Calls that have not returned, each with the memory that it binds.
    under_way: Vec<Option<Arc<Physical>>>,
}

/// The result of a look-up, or why it failed.
type Found<T> = std::result::Result<T, String>;

/// A multicast object. Handles, mappings and unfinished calls hold it.
pub(crate) struct Object {
    file: File,
    /// Identifies it in every process.
    inode: u64,
    header: Header,
    here: Mutex<Here>,
}

/// An unfinished call on an object, which may still use the object and the memory that it binds.
pub(crate) struct UnderWay {
    pub object: Arc<Object>,
    memory: Option<Arc<Physical>>,
}

impl UnderWay {
    /// Returns the memory that the call binds.
    pub fn memory(&self) -> Result<&Arc<Physical>> {
        self.memory.as_ref().ok_or(Code::INVALID_VALUE)
    }
}

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut here = lock(&self.object.here);
        let same = |other: &Option<Arc<Physical>>| match (other, &self.memory) {
            (Some(other), Some(memory)) => Arc::ptr_eq(other, memory),
            (other, memory) => other.is_none() && memory.is_none(),
        };
        if let Some(index) = here.under_way.iter().position(same) {
            here.under_way.swap_remove(index);
        }
    }
}

/// A running kernel that accesses every member's memory: no process may unbind it meanwhile.
pub(crate) struct Accessing {
    object: Arc<Object>,
    access: Access,
}

impl Drop for Accessing {
    fn drop(&mut self) {
        let gone = (self.object).with(|_, state| state.remove_access(self.access));
        debug_assert!(gone.is_ok());
    }
}

/// Every object of this process.
static KNOWN: LazyLock<Mutex<Vec<Weak<Object>>>> = LazyLock::new(Mutex::default);

/// Returns every object of this process.
pub(super) fn known() -> Vec<Arc<Object>> {
    lock(&KNOWN).iter().filter_map(Weak::upgrade).collect()
}

impl Object {
    pub(super) fn create(devices: usize, bytes: u64, exportable: bool) -> Result<Arc<Self>> {
        let header = Header {
            devices,
            bytes,
            exportable,
        };
        Self::hold(state::create(header)?)
    }

    /// Opens the object behind a descriptor, which has kept it alive even if every process has released it; returns
    /// `None` if the descriptor is of something else.
    pub fn open(file: BorrowedFd<'_>) -> Result<Option<Arc<Self>>> {
        if !state::is_object(file) {
            return Ok(None);
        }
        let inode = fstat(file).map_err(|_| Code::INVALID_VALUE)?.st_ino;
        if let Some(known) = known().into_iter().find(|object| object.inode == inode) {
            return Ok(Some(known));
        }
        Self::hold(state::open_anew(file)?).map(Some)
    }

    fn hold(file: File) -> Result<Arc<Self>> {
        let inode = fstat(&file).map_err(|_| Code::OPERATING_SYSTEM)?.st_ino;
        let header = State::lock(&file)?.header();
        let object = Arc::new(Self {
            file,
            inode,
            header,
            here: Mutex::default(),
        });
        let mut known = lock(&KNOWN);
        known.retain(|object| object.strong_count() > 0);
        known.push(Arc::downgrade(&object));
        Ok(object)
    }

    /// Returns a descriptor for another process.
    pub fn export(&self) -> Result<OwnedFd> {
        if !self.header.exportable {
            violation("the multicast object was created without this handle type".into());
            return Err(Code::INVALID_VALUE);
        }
        Ok(state::open_anew(self.file.as_fd())?.into())
    }

    /// Returns how many bytes can be bound of each device.
    pub fn bytes(&self) -> u64 {
        self.header.bytes
    }

    /// Reads or changes the state, exclusively: first among this process's threads, then among the processes.
    fn with<T>(&self, act: impl FnOnce(&mut Here, &mut State<'_>) -> Result<T>) -> Result<T> {
        let mut here = lock(&self.here);
        act(&mut here, &mut State::lock(&self.file)?)
    }

    /// Whether a physical device was added.
    pub fn has_member(&self, device: usize) -> Result<bool> {
        self.with(|_, state| Ok(state.members().any(|member| member.device == device)))
    }

    /// Whether this process has added a device.
    pub fn has_own_member(&self) -> Result<bool> {
        let own = Process::own();
        self.with(|_, state| Ok(state.members().any(|member| member.process == own)))
    }

    pub(super) fn add_member(&self, device: usize) -> Result {
        self.with(|_, state| {
            let members: Vec<_> = state.members().collect();
            let wrong = if let Some(member) = members.iter().find(|m| m.device == device) {
                let by = member.process.number;
                format!("device {device} was added before, by process {by}")
            } else if members.len() >= self.header.devices {
                format!("all {} devices were added before", self.header.devices)
            } else {
                return state.add_member(device);
            };
            violation(wrong);
            Err(Code::INVALID_VALUE)
        })
    }

    /// Blocks until all devices were added, for ever if one never is.
    pub fn wait_for_members(&self) -> Result {
        while self.with(|_, state| Ok(state.members().count()))? < self.header.devices {
            std::thread::sleep(Duration::from_millis(1));
        }
        Ok(())
    }

    /// Begins a call on the object, which binds `memory` if given.
    pub fn begin(self: &Arc<Self>, memory: Option<Arc<Physical>>) -> UnderWay {
        lock(&self.here).under_way.push(memory.clone());
        let object = self.clone();
        UnderWay { object, memory }
    }

    /// Whether a call on the object has not returned.
    pub fn is_in_use(&self) -> bool {
        !lock(&self.here).under_way.is_empty()
    }

    /// Whether a call that binds `memory` has not returned.
    pub(super) fn binds(&self, memory: &Arc<Physical>) -> bool {
        let here = lock(&self.here);
        let mut bound = here.under_way.iter().flatten();
        bound.any(|other| Arc::ptr_eq(other, memory))
    }

    /// Marks `bytes` of every member as used by a kernel until the result is dropped.
    pub fn access(self: &Arc<Self>, offset: u64, bytes: u64) -> Result<Accessing> {
        static NEXT: AtomicU64 = AtomicU64::new(1);
        let access = Access {
            offset,
            bytes,
            process: Process::own(),
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        };
        self.with(|_, state| state.add_access(access))?;
        let object = self.clone();
        Ok(Accessing { object, access })
    }

    /// Returns how many ranges this process has bound.
    pub fn bound(&self) -> usize {
        lock(&self.here).bound.len()
    }

    /// Returns the offset at which this process has bound memory, if it has.
    pub(super) fn offset_of(&self, memory: &Arc<Physical>) -> Option<u64> {
        let here = lock(&self.here);
        let found = here.bound.iter().find(|(_, m)| Arc::ptr_eq(m, memory));
        found.map(|(binding, _)| binding.offset)
    }

    /// Binds memory of a member. The caller has checked everything but overlap with existing bindings.
    pub(super) fn bind(
        &self,
        offset: u64,
        memory: &Arc<Physical>,
        memory_offset: u64,
        bytes: u64,
    ) -> Result {
        if self.header.exportable && memory.made_for != Use::Exportable {
            violation("an exportable object takes only exportable memory".into());
            return Err(Code::INVALID_VALUE);
        }
        let binding = Binding {
            offset,
            bytes,
            device: memory.device,
            process: Process::own(),
            descriptor: memory.file().as_raw_fd(),
            inode: memory.inode,
            memory_offset,
        };
        let slots = machine()?.switch.map_or(0, |switch| switch.slots);
        self.with(|here, state| {
            let overlaps = |other: &Binding| {
                other.device == binding.device
                    && other.offset < offset + bytes
                    && offset < other.offset + other.bytes
            };
            if let Some(other) = state.bindings().find(overlaps) {
                violation(format!(
                    "{} bytes at {} of device {} are bound already",
                    other.bytes, other.offset, other.device
                ));
                return Err(Code::INVALID_VALUE);
            }
            ledger::take_slot(self.inode, slots)?;
            state.add_binding(binding)?;
            here.bound.push((binding, memory.clone()));
            Ok(())
        })
    }

    /// Undoes exactly one [`Object::bind`] of this process.
    pub(super) fn unbind(&self, device: usize, offset: u64, bytes: u64) -> Result {
        self.with(|here, state| {
            let same = |(binding, _): &(Binding, _)| {
                (binding.device, binding.offset, binding.bytes) == (device, offset, bytes)
            };
            let Some(index) = here.bound.iter().position(same) else {
                violation(format!(
                    "{bytes} bytes at {offset} of device {device} are not what this process bound"
                ));
                return Err(Code::INVALID_VALUE);
            };
            // The caller looks at this process's own streams, whose pending work is known in full.
            let uses = |access: &Access| {
                access.process != Process::own()
                    && access.offset < offset + bytes
                    && offset < access.offset + access.bytes
                    && access.process.is_alive()
            };
            if let Some(access) = state.accesses().find(uses) {
                let user = access.process.number;
                violation(format!(
                    "{bytes} bytes at {offset} are unbound while a kernel of process {user} uses them"
                ));
            }
            let (binding, _) = here.bound.swap_remove(index);
            state.remove_binding(binding)
        })
    }

    /// Returns where `bytes` from an offset lie at each member, in the order in which the members were added.
    pub fn replicas(&self, offset: u64, bytes: u64) -> Found<Vec<(Arc<Physical>, usize)>> {
        let found = self.with(|here, state| {
            let bindings: Vec<_> = state.bindings().collect();
            here.seen
                .retain(|inode, _| bindings.iter().any(|binding| binding.inode == *inode));
            let replicas = state.members().map(|member| {
                let device = member.device;
                let inside = |binding: &&Binding| {
                    binding.device == device
                        && (binding.offset..binding.offset + binding.bytes).contains(&offset)
                };
                let Some(binding) = bindings.iter().find(inside) else {
                    return Err(format!("nothing of device {device} is bound at {offset}"));
                };
                let length = binding.offset + binding.bytes - offset;
                if bytes > length {
                    return Err(format!(
                        "the memory of device {device} bound at {offset} ends after {length} bytes"
                    ));
                }
                let at = (binding.memory_offset + offset - binding.offset) as usize;
                let memory = here
                    .memory(binding)
                    .map_err(|why| format!("device {device}'s replica at {offset}: {why}"))?;
                Ok((memory, at))
            });
            Ok(replicas.collect::<Found<Vec<_>>>())
        });
        found.map_err(|code| format!("the object's state cannot be read ({})", code.0))?
    }
}

impl Here {
    /// Returns the memory of a binding in this process.
    fn memory(&mut self, binding: &Binding) -> Found<Arc<Physical>> {
        let Binding { inode, process, .. } = *binding;
        let own = self.bound.iter().map(|(_, memory)| memory);
        let found = own.chain(self.seen.values()).find(|m| m.inode == inode);
        if let Some(found) = found.cloned().or_else(|| Physical::known(inode)) {
            self.seen.insert(inode, found.clone());
            return Ok(found);
        }
        if !process.is_alive() {
            return Err(format!(
                "process {}, which bound it, is gone, and this process does not have the memory",
                process.number
            ));
        }
        let opened = open_descriptor_of(process.number as u32, binding.descriptor)
            .and_then(|file| Physical::open(file.as_fd(), &[Use::Exportable, Use::Private]))
            .ok()
            .filter(|memory| memory.inode == inode);
        let memory = opened
            .ok_or_else(|| format!("process {} freed it while it was bound", process.number))?;
        self.seen.insert(inode, memory.clone());
        Ok(memory)
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        ledger::give_slot(self.inode);
        let gone = self.with(|here, state| {
            let mut bound = here.bound.drain(..);
            bound.try_for_each(|(binding, _)| state.remove_binding(binding))
        });
        debug_assert!(gone.is_ok());
    }
}
