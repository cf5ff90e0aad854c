//! What stands for a type of the traits in the table, and the way there and back.
//!
//! The traits speak Rust, the table C. The shims of a backend's side and the calls of the host's side convert
//! here and nowhere else; a type without an implementation of [`Cross`] cannot be in a method of the contract.

use super::abi::*;
use super::failure::{CallResult, Failure};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// A type in the methods of the traits.
///
/// Public only because it is named in the types of the tables' entries; no backend needs it.
pub trait Cross: Sized {
    /// What stands for it in the table: a type with the layout that C gives it.
    type C;

    /// The form that crosses.
    fn into_c(self) -> Self::C;

    /// Reads the form that crosses. `entry` is the entry's name, for the message.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the entry's name and the value, for a form that stands for nothing here.
    ///
    /// # Safety
    /// What a pointer in the form points to is readable as this type while the result is used; null is refused.
    unsafe fn from_c(form: Self::C, entry: &'static str) -> CallResult<Self>;
}

/// Types with one layout on both sides.
macro_rules! cross_as_they_are {
    ($($type:ty),* $(,)?) => {$(
        impl Cross for $type {
            type C = Self;

            #[inline]
            fn into_c(self) -> Self {
                self
            }

            #[inline]
            unsafe fn from_c(form: Self, _entry: &'static str) -> CallResult<Self> {
                Ok(form)
            }
        }
    )*};
}

cross_as_they_are! {
    (), u8, u32, u64,
    DeviceAddress, RawAllocation, RawEvent, RawFunction, RawGemm, RawGraph, RawGraphExec, RawMapping,
    RawModule, RawMulticast, RawStream, RawVendor,
    // Sets of values that may grow: whoever uses a value refuses one that it does not know.
    CollectiveKernel, ElementType, MulticastSupport, ShareKind, Sharding, SignalPlacement,
    Capabilities, DeviceDescription, ExportedHandle, HostMemory, MemoryInformation, SharedAllocation,
    SharedMapping, VendorDescription, VendorIdentifier,
}

fn refuse<T>(entry: &'static str, message: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, entry, message))
}

/// 0 or 1.
impl Cross for bool {
    type C = u32;

    #[inline]
    fn into_c(self) -> u32 {
        self.into()
    }

    #[inline]
    unsafe fn from_c(form: u32, entry: &'static str) -> CallResult<Self> {
        match form {
            0 => Ok(false),
            1 => Ok(true),
            other => refuse(
                entry,
                format!(
                    "{other} is neither 0 (false) nor 1 (true); program and plugin are of different releases"
                ),
            ),
        }
    }
}

/// A struct of the boundary, lent for the call.
impl<T> Cross for &T {
    type C = *const T;

    #[inline]
    fn into_c(self) -> *const T {
        self
    }

    #[inline]
    unsafe fn from_c(form: *const T, entry: &'static str) -> CallResult<Self> {
        // SAFETY: the caller's word.
        match unsafe { form.as_ref() } {
            Some(value) => Ok(value),
            None => refuse(entry, "an argument is a null pointer".into()),
        }
    }
}

/// A kernel's arguments: bytes of which some, as padding, may be uninitialised.
impl Cross for &[MaybeUninit<u8>] {
    type C = ByteSlice;

    #[inline]
    fn into_c(self) -> ByteSlice {
        ByteSlice {
            first: self.as_ptr().cast(),
            length: self.len() as u64,
        }
    }

    #[inline]
    unsafe fn from_c(form: ByteSlice, entry: &'static str) -> CallResult<Self> {
        if form.length == 0 {
            return Ok(&[]);
        }
        match usize::try_from(form.length) {
            Ok(length) if !form.first.is_null() && length <= isize::MAX as usize => {
                // SAFETY: the caller's word; the range is not null and has a length that a slice can have.
                Ok(unsafe { slice::from_raw_parts(form.first.cast(), length) })
            }
            _ => refuse(
                entry,
                format!(
                    "{} bytes at {:p} are no range of memory",
                    form.length, form.first
                ),
            ),
        }
    }
}

/// The contents of a file.
impl Cross for &[u8] {
    type C = ByteSlice;

    #[inline]
    fn into_c(self) -> ByteSlice {
        ByteSlice {
            first: self.as_ptr(),
            length: self.len() as u64,
        }
    }

    #[inline]
    unsafe fn from_c(form: ByteSlice, entry: &'static str) -> CallResult<Self> {
        // SAFETY: the caller's word.
        let bytes = unsafe { <&[MaybeUninit<u8>]>::from_c(form, entry) }?;
        // SAFETY: the caller's word: all bytes are readable as `u8`, so initialised.
        Ok(unsafe { slice::from_raw_parts(bytes.as_ptr().cast(), bytes.len()) })
    }
}

/// A name, in UTF-8.
impl Cross for &str {
    type C = ByteSlice;

    #[inline]
    fn into_c(self) -> ByteSlice {
        self.as_bytes().into_c()
    }

    #[inline]
    unsafe fn from_c(form: ByteSlice, entry: &'static str) -> CallResult<Self> {
        // SAFETY: the caller's word.
        let bytes = unsafe { <&[u8]>::from_c(form, entry) }?;
        str::from_utf8(bytes).or_else(|error| {
            refuse(
                entry,
                format!("the name `{}` is not UTF-8: {error}", bytes.escape_ascii()),
            )
        })
    }
}

/// `None` is a row of [`Algorithm::AUTOMATIC`].
impl Cross for Option<CollectiveRow> {
    type C = CollectiveRow;

    #[inline]
    fn into_c(self) -> CollectiveRow {
        self.unwrap_or_default()
    }

    #[inline]
    unsafe fn from_c(form: CollectiveRow, _entry: &'static str) -> CallResult<Self> {
        Ok((form.algorithm != Algorithm::AUTOMATIC).then_some(form))
    }
}

/// `None` is a grid of no blocks.
impl Cross for Option<GatheredLimits> {
    type C = GatheredLimits;

    #[inline]
    fn into_c(self) -> GatheredLimits {
        self.unwrap_or_default()
    }

    #[inline]
    unsafe fn from_c(form: GatheredLimits, _entry: &'static str) -> CallResult<Self> {
        Ok((form.blocks != 0).then_some(form))
    }
}

/// The bytes of a kernel's arguments, as [`super::Device::launch`] takes them.
pub fn argument_bytes<A: Copy>(arguments: &A) -> &[MaybeUninit<u8>] {
    // SAFETY: a value's bytes are readable as bytes that may be uninitialised. What is `Copy` has no cell in it,
    // so nothing writes them while they are borrowed.
    unsafe { slice::from_raw_parts(ptr::from_ref(arguments).cast(), size_of::<A>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Cross>(value: T) -> CallResult<T> {
        // SAFETY: what the value borrows is live.
        unsafe { T::from_c(value.into_c(), "entry") }
    }

    #[test]
    fn what_crosses_comes_back_as_it_was() {
        assert_eq!(there_and_back(true), Ok(true));
        assert_eq!(there_and_back(false), Ok(false));
        assert_eq!(there_and_back("symmem_move"), Ok("symmem_move"));
        assert_eq!(there_and_back(""), Ok(""));
        assert_eq!(there_and_back(&[1_u8, 2][..]), Ok(&[1, 2][..]));
        assert_eq!(there_and_back(&7_u32), Ok(&7));
        assert_eq!(there_and_back(None::<CollectiveRow>), Ok(None));
        let row = CollectiveRow {
            algorithm: Algorithm::PUSH,
            ..CollectiveRow::default()
        };
        assert_eq!(there_and_back(Some(row)), Ok(Some(row)));
        assert_eq!(there_and_back(None::<GatheredLimits>), Ok(None));
        let limits = GatheredLimits {
            blocks: 1,
            ..GatheredLimits::default()
        };
        assert_eq!(there_and_back(Some(limits)), Ok(Some(limits)));
    }

    #[test]
    fn a_value_that_stands_for_nothing_is_refused_by_its_entry_and_itself() {
        // SAFETY: nothing is dereferenced but the two bytes, which are live.
        let refused = unsafe {
            [
                bool::from_c(7, "stream_idle").map(drop),
                <&u32>::from_c(ptr::null(), "stream_idle").map(drop),
                <&str>::from_c(b"\xff7".as_slice().into_c(), "stream_idle").map(drop),
                <&[u8]>::from_c(
                    ByteSlice {
                        first: ptr::null(),
                        length: 7,
                    },
                    "stream_idle",
                )
                .map(drop),
            ]
        };
        for refused in refused {
            let failure = refused.unwrap_err();
            assert_eq!(failure.status, Status::INVALID_ARGUMENT);
            assert_eq!(failure.call, "stream_idle");
            let names_it = failure.message.contains('7') || failure.message.contains("null");
            assert!(names_it, "{failure}");
        }
    }

    #[test]
    fn arguments_cross_with_their_padding() {
        #[repr(C)]
        #[derive(Clone, Copy)]
        struct Padded(u8, u64);
        let arguments = Padded(3, 4);
        let bytes = there_and_back(argument_bytes(&arguments)).unwrap();
        assert_eq!(bytes.len(), size_of::<Padded>());
        // SAFETY: the bytes are those of such a struct.
        let read: Padded = unsafe { bytes.as_ptr().cast::<Padded>().read_unaligned() };
        assert_eq!((read.0, read.1), (3, 4));
    }
}
