//! Virtual memory management: physical memory, a reserved address range, a mapping, and access rights, each
//! made after the one before and undone in reverse order.
//!
//! A range has one mapping and one access right, because HIP sometimes fails to give access to the second part
//! of a range. HIP may also report a mapping that it did not make, so a range is handed out only after the
//! runtime confirms the mapping.

use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

/// The steps as calls of a vendor's runtime. Called with the device current.
pub trait VirtualMemory {
    /// The runtime's handle of physical memory.
    type Physical: Copy;
    /// Name of the runtime's call that maps.
    const MAP: &'static str;
    /// Reserves a range of addresses.
    fn reserve(&self, bytes: u64) -> CallResult<u64>;
    /// Frees a range that has no mapping.
    fn unreserve(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Maps physical memory to a whole range.
    fn map(&self, address: u64, bytes: u64, physical: Self::Physical) -> CallResult<()>;
    /// Unmaps a range.
    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Gives the device read and write access to a mapped range.
    fn permit(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Returns whether memory is mapped at an address; always true on a runtime that reports failures to map.
    fn is_mapped(&self, address: u64) -> CallResult<bool>;
    /// Releases physical memory.
    fn release(&self, physical: Self::Physical) -> CallResult<()>;
}

/// Physical memory of this process or a peer, mapped for this device.
pub struct Mapped<P> {
    /// The runtime's handle of the physical memory.
    pub physical: P,
    /// Address of the first byte on this device.
    pub address: u64,
    /// Size in bytes.
    pub bytes: u64,
    done: Step,
}

/// The last step that succeeded.
#[derive(PartialEq, PartialOrd)]
enum Step {
    Made,
    Reserved,
    Mapped,
}

impl<P: Copy> Mapped<P> {
    /// Takes ownership of physical memory and maps it for the device. If a step fails, undoes the earlier ones
    /// and releases the physical memory.
    ///
    /// # Errors
    /// The runtime's failure; `CALL_FAILED` if the runtime reported success without mapping the memory.
    pub fn new<V>(runtime: &V, physical: P, bytes: u64) -> CallResult<Self>
    where
        V: VirtualMemory<Physical = P>,
    {
        let mut memory = Self {
            physical,
            address: 0,
            bytes,
            done: Step::Made,
        };
        if let Err(failure) = memory.map(runtime) {
            // Report the first failure only.
            let _ = memory.release(runtime);
            return Err(failure);
        }
        Ok(memory)
    }

    fn map<V: VirtualMemory<Physical = P>>(&mut self, runtime: &V) -> CallResult<()> {
        self.address = runtime.reserve(self.bytes)?;
        self.done = Step::Reserved;
        runtime.map(self.address, self.bytes, self.physical)?;
        self.done = Step::Mapped;
        let permitted = runtime.permit(self.address, self.bytes);
        // Asked even if access was refused: without a mapping access is always refused, and the missing mapping
        // is the reason to report.
        match runtime.is_mapped(self.address) {
            Ok(true) => permitted,
            Ok(false) => {
                // Without a mapping there is nothing to unmap.
                self.done = Step::Reserved;
                Err(nothing_mapped(V::MAP, self.address, self.bytes))
            }
            Err(failure) => permitted.and(Err(failure)),
        }
    }

    /// Undoes the steps in reverse order. No work may still use the memory.
    ///
    /// # Errors
    /// The first failure; later steps are made all the same.
    pub fn release<V: VirtualMemory<Physical = P>>(self, runtime: &V) -> CallResult<()> {
        let mut result = Ok(());
        if self.done >= Step::Mapped {
            result = result.and(runtime.unmap(self.address, self.bytes));
        }
        if self.done >= Step::Reserved {
            let given = runtime.unreserve(self.address, self.bytes);
            result = result.and(given);
        }
        let released = runtime.release(self.physical);
        result.and(released)
    }
}

fn nothing_mapped(call: &str, address: u64, bytes: u64) -> Failure {
    Failure::new(
        Status::CALL_FAILED,
        call,
        format!(
            "the runtime reported success and mapped nothing of {bytes} bytes at {address:#x}; update the \
             runtime, or share memory by another kind"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Records each step, and fails the named one.
    #[derive(Default)]
    struct Recorder {
        fails: &'static str,
        /// `map` does nothing and reports success.
        maps_nothing: bool,
        steps: RefCell<Vec<&'static str>>,
    }

    impl Recorder {
        fn step(&self, name: &'static str) -> CallResult<()> {
            self.steps.borrow_mut().push(name);
            match name == self.fails {
                true => Err(Failure::new(Status::CALL_FAILED, name, "")),
                false => Ok(()),
            }
        }
    }

    impl VirtualMemory for Recorder {
        type Physical = u32;
        const MAP: &'static str = "map";
        fn reserve(&self, _: u64) -> CallResult<u64> {
            self.step("reserve").map(|()| 64)
        }
        fn unreserve(&self, _: u64, _: u64) -> CallResult<()> {
            self.step("unreserve")
        }
        fn map(&self, _: u64, _: u64, _: u32) -> CallResult<()> {
            self.step("map")
        }
        fn unmap(&self, _: u64, _: u64) -> CallResult<()> {
            self.step("unmap")
        }
        fn permit(&self, _: u64, _: u64) -> CallResult<()> {
            self.step("permit")
        }
        fn is_mapped(&self, _: u64) -> CallResult<bool> {
            self.step("ask").map(|()| !self.maps_nothing)
        }
        fn release(&self, _: u32) -> CallResult<()> {
            self.step("release")
        }
    }

    const UNDONE: [&str; 7] = [
        "reserve",
        "map",
        "permit",
        "ask",
        "unmap",
        "unreserve",
        "release",
    ];

    #[test]
    fn memory_that_was_not_mapped_is_not_handed_out_and_nothing_is_unmapped() {
        // A runtime may grant access to memory that it has not mapped, or refuse it.
        for fails in ["", "permit"] {
            let runtime = Recorder {
                fails,
                maps_nothing: true,
                ..Recorder::default()
            };
            let failure = Mapped::new(&runtime, 7, 64).err().expect("it fails");
            assert_eq!(failure.call, "map");
            assert!(failure.message.contains("mapped nothing of 64 bytes"));
            let steps = ["reserve", "map", "permit", "ask", "unreserve", "release"];
            assert_eq!(*runtime.steps.borrow(), steps);
        }
    }

    #[test]
    fn a_failure_undoes_what_was_done_before_it_in_the_opposite_order() {
        for (fails, steps) in [
            ("reserve", &["reserve", "release"][..]),
            ("map", &["reserve", "map", "unreserve", "release"]),
            ("permit", &UNDONE),
            ("ask", &UNDONE),
        ] {
            let runtime = Recorder {
                fails,
                ..Recorder::default()
            };
            let failure = Mapped::new(&runtime, 7, 64).err().expect("it fails");
            assert_eq!(failure.call, fails);
            assert_eq!(*runtime.steps.borrow(), steps);
        }
    }

    #[test]
    fn giving_back_goes_on_after_a_failure_and_tells_the_first() {
        let runtime = Recorder {
            fails: "unmap",
            ..Recorder::default()
        };
        let memory = Mapped::new(&runtime, 7, 64).expect("making works");
        runtime.steps.borrow_mut().clear();
        assert_eq!(memory.release(&runtime).unwrap_err().call, "unmap");
        assert_eq!(*runtime.steps.borrow(), ["unmap", "unreserve", "release"]);
    }
}
