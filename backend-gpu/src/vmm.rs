//! Virtual-memory management: physical memory, a reserved range, a mapping and a right of access, each
//! made after the one before and undone in the opposite order.
//!
//! A range has one mapping and one right of access, never more: a runtime is known that fails at times to
//! give access to the second part of a range. One is known, too, that says it has mapped and has not: so a
//! range is handed out only once the runtime has been asked what is there.

use symmem_core::backend::abi::Status;
use symmem_core::backend::{CallResult, Failure};

/// The steps, in the words of a vendor's runtime. Called with the device current.
pub trait VirtualMemory {
    /// Physical memory: the runtime's handle.
    type Physical: Copy;
    /// The runtime's name of the call that maps.
    const MAP: &'static str;
    /// Reserves a range of addresses.
    fn reserve(&self, bytes: u64) -> CallResult<u64>;
    /// Gives a range back that nothing is mapped to.
    fn unreserve(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Maps physical memory to a whole range.
    fn map(&self, address: u64, bytes: u64, physical: Self::Physical) -> CallResult<()>;
    /// Unmaps it.
    fn unmap(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Lets the device load and store a mapped range.
    fn permit(&self, address: u64, bytes: u64) -> CallResult<()>;
    /// Whether memory is mapped at an address; true on a runtime whose word can be taken.
    fn is_mapped(&self, address: u64) -> CallResult<bool>;
    /// Gives physical memory up.
    fn release(&self, physical: Self::Physical) -> CallResult<()>;
}

/// Physical memory of this process or of a peer, mapped here.
pub struct Mapped<P> {
    /// The runtime's handle.
    pub physical: P,
    /// The first byte, as this device addresses it.
    pub address: u64,
    /// Bytes.
    pub bytes: u64,
    done: Step,
}

/// How far the making has come.
#[derive(PartialEq, PartialOrd)]
enum Step {
    Made,
    Reserved,
    Mapped,
}

impl<P: Copy> Mapped<P> {
    /// Takes over physical memory and makes it addressable by the device. Where that fails everything is
    /// undone, the physical memory given up too.
    ///
    /// # Errors
    /// The runtime's; `CALL_FAILED` where it said that it had mapped the memory, and nothing is there.
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
            // The first failure is the one to tell.
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
        // Asked also where access was refused: of what was not mapped it is, and the reason is the mapping.
        match runtime.is_mapped(self.address) {
            Ok(true) => permitted,
            Ok(false) => {
                // There is nothing to unmap.
                self.done = Step::Reserved;
                Err(nothing_mapped(V::MAP, self.address, self.bytes))
            }
            Err(failure) => permitted.and(Err(failure)),
        }
    }

    /// Undoes what was made, last step first. Nothing may be using the memory.
    ///
    /// # Errors
    /// The first failure; the steps after it are done all the same.
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
            "it reported success and mapped nothing of {bytes} bytes at {address:#x}, which is a fault of \
             this runtime: share memory by another kind, or update the runtime"
        ),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    /// Notes each step, and fails the one named.
    #[derive(Default)]
    struct Recorder {
        fails: &'static str,
        /// `map` does nothing, and says nothing of it.
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
        // A runtime may give access to what it has not mapped, or refuse it.
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
