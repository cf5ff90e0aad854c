//! Memory of a case with guards around it.
//!
//! ```text
//! guard | offset | elements | guard
//! ```

use symmem::backend::abi::DeviceAddress;
use symmem::{Communicator, DeviceSlice, Element, Operand, Result, Slice, Stream, SymmetricBuffer};

/// Guard bytes on each side, and the alignment that offsets are relative to.
const GUARD_BYTES: usize = 256;

/// Symmetric memory for elements, between guards that hold poison.
pub struct Region<T: Element> {
    buffer: SymmetricBuffer<T>,
    first: usize,
    count: usize,
    poison: T,
}

impl<T: Element> Region<T> {
    /// Allocates `count` elements, `offset` elements behind a boundary. Collective.
    pub fn new(
        communicator: &Communicator,
        offset: usize,
        count: usize,
        poison: T,
    ) -> Result<Self> {
        Self::with_room(communicator, offset, (count, count), poison)
    }

    /// Allocates room for `room` elements, of which this rank has the first `count` and the others belong to the guard. Collective.
    pub fn with_room(
        communicator: &Communicator,
        offset: usize,
        (room, count): (usize, usize),
        poison: T,
    ) -> Result<Self> {
        let guard = GUARD_BYTES / size_of::<T>();
        Ok(Self {
            buffer: communicator.allocate(&[2 * guard + offset + room])?,
            first: guard + offset,
            count,
            poison,
        })
    }

    /// Returns the elements in the symmetric buffer.
    pub fn slice(&self) -> Result<Slice<'_, T>> {
        self.buffer.slice(self.first..self.first + self.count)
    }

    /// Returns the address of the first element at this rank.
    pub fn address(&self) -> DeviceAddress {
        let before = self.first * size_of::<T>();
        DeviceAddress(self.buffer.local().address().0 + before as u64)
    }

    /// Returns the elements as an operand, as memory that only this rank knows if `is_own`.
    pub fn operand(&self, is_own: bool) -> Result<Operand<'_, T>> {
        let slice = self.slice()?;
        Ok(match is_own {
            true => DeviceSlice::from(slice).into(),
            false => slice.into(),
        })
    }

    /// Writes elements, and poison to the guards. Blocks.
    pub fn write(&self, stream: &Stream, elements: &[T]) -> Result<()> {
        let mut all = vec![self.poison; self.buffer.len()];
        all[self.first..self.first + self.count].copy_from_slice(elements);
        self.buffer.write(stream, 0, &all)
    }

    /// Writes poison everywhere. Blocks.
    pub fn poison(&self, stream: &Stream) -> Result<()> {
        (self.buffer).write(stream, 0, &vec![self.poison; self.buffer.len()])
    }

    /// Reads the elements with their guards. Blocks.
    pub fn read(&self, stream: &Stream) -> Result<Guarded<T>> {
        let mut all = vec![self.poison; self.buffer.len()];
        self.buffer.read(stream, 0, &mut all)?;
        Ok(Guarded {
            all,
            first: self.first,
            count: self.count,
            poison: self.poison,
        })
    }

    /// Frees the memory. Collective.
    pub fn free(self) -> Result<()> {
        self.buffer.free()
    }
}

/// Elements as they were read, with their guards.
pub struct Guarded<T: Element> {
    pub all: Vec<T>,
    first: usize,
    count: usize,
    poison: T,
}

impl<T: Element> Guarded<T> {
    /// Returns the elements.
    pub fn elements(&self) -> &[T] {
        &self.all[self.first..self.first + self.count]
    }

    /// Returns the elements, to plant a fault.
    pub fn elements_mut(&mut self) -> &mut [T] {
        &mut self.all[self.first..self.first + self.count]
    }

    /// Describes the first guard element of the memory called `name` that was overwritten.
    pub fn overwritten(&self, name: &str) -> Option<String> {
        let inside = self.first..self.first + self.count;
        let mut guards = self.all.iter().enumerate();
        let at = guards.find_map(|(at, element)| {
            let is_changed = element.as_bytes() != self.poison.as_bytes();
            (!inside.contains(&at) && is_changed).then_some(at as isize - self.first as isize)
        })?;
        Some(format!("guard element {at} of the {name} was overwritten"))
    }
}
