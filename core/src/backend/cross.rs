//! Conversion between the Rust types of the traits and the C types of the table.
//!
//! The backend's shims and the program's calls convert here and nowhere else. A method of the contract can only use
//! types that implement [`Cross`].

use super::abi::*;
use super::failure::{CallResult, Failure};
use std::mem::MaybeUninit;
use std::{ptr, slice};

/// A type that the traits' methods may take or return.
///
/// It is public only because the types of the table entries name it; no backend implements it.
pub trait Cross: Sized {
    /// The C type in the table, with a defined layout.
    type C;

    /// Converts to the C type.
    fn into_c(self) -> Self::C;

    /// Converts from the C type. `entry` is the entry's name, for the error text.
    ///
    /// # Errors
    /// `INVALID_ARGUMENT`, with the entry's name and the value, if the value has no meaning here.
    ///
    /// # Safety
    /// A pointer in `form` is null (which is refused) or points to memory that is readable as this type while the
    /// result is used.
    unsafe fn from_c(form: Self::C, entry: &'static str) -> CallResult<Self>;
}

/// Implements [`Cross`] for types that have one layout on both sides.
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
    RawModule, RawMulticast, RawStream, RawNccl,
    // Sets of values that may grow: the code that uses a value refuses one that it does not know.
    CollectiveKernel, ElementTypeCode, MulticastSupportCode, ShareKindCode, ShardingCode, SignalPlacementCode,
    Capabilities, DeviceDescription, ExportedHandle, HostMemory, MemoryInformation, SharedAllocation,
    SharedMapping, LibraryDescription, NcclUniqueId,
}

fn refuse<T>(entry: &'static str, message: String) -> CallResult<T> {
    Err(Failure::new(Status::INVALID_ARGUMENT, entry, message))
}

/// Crosses as 0 or 1.
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
                    "{other} is neither 0 (false) nor 1 (true); use the plugin file of this program's symmem release"
                ),
            ),
        }
    }
}

/// A struct of the table, lent for the call.
impl<T> Cross for &T {
    type C = *const T;

    #[inline]
    fn into_c(self) -> *const T {
        self
    }

    #[inline]
    unsafe fn from_c(form: *const T, entry: &'static str) -> CallResult<Self> {
        // SAFETY: the pointer is null or readable as `T` while the result is used, as `from_c` requires.
        match unsafe { form.as_ref() } {
            Some(value) => Ok(value),
            None => refuse(
                entry,
                "an argument is a null pointer; pass a pointer to a valid struct".into(),
            ),
        }
    }
}

/// A kernel's arguments: some of the bytes, such as padding, may be uninitialized.
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
                // SAFETY: `from_c` requires the range to be readable; it is not null and its length fits a slice.
                Ok(unsafe { slice::from_raw_parts(form.first.cast(), length) })
            }
            _ => refuse(
                entry,
                format!(
                    "{} bytes at {:p} are not a valid memory range; pass a readable range of at most isize::MAX bytes",
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
        // SAFETY: this function's own conditions are at least those of the call.
        let bytes = unsafe { <&[MaybeUninit<u8>]>::from_c(form, entry) }?;
        // SAFETY: `from_c` requires all bytes to be readable as `u8`, so they are initialized.
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
        // SAFETY: this function's own conditions are those of the call.
        let bytes = unsafe { <&[u8]>::from_c(form, entry) }?;
        str::from_utf8(bytes).or_else(|error| {
            refuse(
                entry,
                format!(
                    "the name `{}` is not UTF-8: {error}; pass a UTF-8 name",
                    bytes.escape_ascii()
                ),
            )
        })
    }
}

/// `None` crosses as the largest number, which no size reaches.
impl Cross for Option<u64> {
    type C = u64;

    #[inline]
    fn into_c(self) -> u64 {
        self.unwrap_or(u64::MAX)
    }

    #[inline]
    unsafe fn from_c(form: u64, _entry: &'static str) -> CallResult<Self> {
        Ok((form != u64::MAX).then_some(form))
    }
}

/// `None` crosses as a row with [`AlgorithmCode::AUTOMATIC`].
impl Cross for Option<CollectiveRow> {
    type C = CollectiveRow;

    #[inline]
    fn into_c(self) -> CollectiveRow {
        self.unwrap_or_default()
    }

    #[inline]
    unsafe fn from_c(form: CollectiveRow, _entry: &'static str) -> CallResult<Self> {
        Ok((form.algorithm != AlgorithmCode::AUTOMATIC).then_some(form))
    }
}

/// `None` crosses as limits with 0 blocks.
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

/// `None` crosses as limits with 0 blocks.
impl Cross for Option<ReducedLimits> {
    type C = ReducedLimits;

    #[inline]
    fn into_c(self) -> ReducedLimits {
        self.unwrap_or_default()
    }

    #[inline]
    unsafe fn from_c(form: ReducedLimits, _entry: &'static str) -> CallResult<Self> {
        Ok((form.blocks != 0).then_some(form))
    }
}

/// Returns the bytes of a kernel's arguments in the form that [`super::Device::launch`] takes.
pub fn argument_bytes<A: Copy>(arguments: &A) -> &[MaybeUninit<u8>] {
    // SAFETY: any value's bytes can be read as bytes that may be uninitialized. A `Copy` type holds no cell, so the
    // bytes do not change while they are borrowed.
    unsafe { slice::from_raw_parts(ptr::from_ref(arguments).cast(), size_of::<A>()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn there_and_back<T: Cross>(value: T) -> CallResult<T> {
        // SAFETY: everything that the value borrows is live.
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
        for bytes in [None, Some(0), Some(20_u64)] {
            assert_eq!(there_and_back(bytes), Ok(bytes));
        }
        assert_eq!(there_and_back(None::<CollectiveRow>), Ok(None));
        let row = CollectiveRow {
            algorithm: AlgorithmCode::PUSH,
            ..CollectiveRow::default()
        };
        assert_eq!(there_and_back(Some(row)), Ok(Some(row)));
        assert_eq!(there_and_back(None::<GatheredLimits>), Ok(None));
        let limits = GatheredLimits {
            blocks: 1,
            ..GatheredLimits::default()
        };
        assert_eq!(there_and_back(Some(limits)), Ok(Some(limits)));
        assert_eq!(there_and_back(None::<ReducedLimits>), Ok(None));
        let limits = ReducedLimits {
            blocks: 1,
            ..ReducedLimits::default()
        };
        assert_eq!(there_and_back(Some(limits)), Ok(Some(limits)));
    }

    #[test]
    fn a_value_that_stands_for_nothing_is_refused_by_its_entry_and_itself() {
        // SAFETY: only the two bytes of the name are dereferenced, and they are live.
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
        // SAFETY: the bytes were made from a value of this type.
        let read: Padded = unsafe { bytes.as_ptr().cast::<Padded>().read_unaligned() };
        assert_eq!((read.0, read.1), (3, 4));
    }
}
