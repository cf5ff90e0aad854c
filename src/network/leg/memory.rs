//! Access to a region: copies and reductions by address, since peers write to the memory.

use super::parts::Span;
use crate::backend::abi::{ElementTypeCode, ReduceOpCode};
use crate::network::wire::Wire;
use symmem_core::host;

/// How elements are reduced.
#[derive(Clone, Copy, Debug)]
pub struct Reduction {
    function: host::Reduction,
    /// Bytes per element.
    pub element_bytes: u64,
    /// What an average divides by: the number of ranks whose elements are summed, which may be more than the members.
    divisor: usize,
}

impl Reduction {
    /// Returns the reduction of a type by an operator; `None` if either is unknown. An average divides by `divisor`.
    pub fn new(element: ElementTypeCode, reduce: ReduceOpCode, divisor: usize) -> Option<Self> {
        Some(Self {
            function: host::reduction(element, reduce)?,
            element_bytes: element.bytes(),
            divisor,
        })
    }

    /// Reduces `bytes` bytes of all sources, in order, into the destination.
    ///
    /// # Safety
    /// Every source is readable, and the destination writable, for that many bytes, a whole number of elements. The destination
    /// is one of the sources, or overlaps none.
    pub unsafe fn run(&self, sources: &[*const u8], destination: *mut u8, bytes: u64) {
        let count = (bytes / self.element_bytes) as usize;
        // SAFETY: guaranteed by the caller.
        unsafe { (self.function)(sources, &[destination], count, self.divisor) };
    }
}

/// Returns the address of a range of this rank's region.
///
/// # Panics
/// If the range is not inside: legs are made by the library, which knows the region's size.
pub fn address<W: Wire>(wire: &W, span: Span) -> *mut u8 {
    let (region, bytes) = wire.region();
    check(span, bytes);
    // SAFETY: inside of the region, as checked above.
    unsafe { region.add(span.offset as usize) }
}

/// Returns the address of a range of what this rank's parts are sent from.
///
/// # Panics
/// As [`address`].
pub fn source<W: Wire>(wire: &W, span: Span) -> *const u8 {
    let (source, bytes) = wire.source();
    check(span, bytes);
    // SAFETY: inside of the source, as checked above.
    unsafe { source.add(span.offset as usize) }
}

fn check(span: Span, bytes: u64) {
    assert!(
        span.offset <= bytes && span.bytes <= bytes - span.offset,
        "{span:?} is outside of a region of {bytes} bytes"
    );
}

/// Copies a range of what this rank's parts are sent from into `copy`.
pub fn read<W: Wire>(wire: &W, span: Span, copy: &mut Vec<u8>) {
    let from = source(wire, span);
    let bytes = span.bytes as usize;
    copy.clear();
    copy.reserve(bytes);
    // SAFETY: the range is inside of the source, and the copy has room. No reference to the source is made.
    unsafe {
        from.copy_to_nonoverlapping(copy.as_mut_ptr(), bytes);
        copy.set_len(bytes);
    }
}

/// Copies bytes into a range of this rank's region, which is as long.
pub fn write<W: Wire>(wire: &W, span: Span, data: &[u8]) {
    debug_assert_eq!(span.bytes, data.len() as u64);
    let to = address(wire, span);
    // SAFETY: the range is inside of the region; the data is not, since nobody makes references to that.
    unsafe { to.copy_from_nonoverlapping(data.as_ptr(), data.len()) };
}
