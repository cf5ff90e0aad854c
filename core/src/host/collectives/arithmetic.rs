//! Arithmetic of reductions.
//!
//! Elements are combined in rank order, in a wide enough type, and rounded once at the end. So the result has the
//! same bits whichever rank computes it and however the elements are divided into pieces (except the payload of a
//! NaN).
//!
//! A block of elements stays in the L1 cache: the first two sources are combined into a block of wide numbers, the
//! other sources are combined with it, and the rounded block is copied to every destination. The loops write only to
//! the block, so the compiler sees no aliasing with the sources and vectorizes them.

use crate::backend::abi::{ElementTypeCode, ReduceOpCode};
use crate::float::{Bfloat, E4m3, E5m2, Half};
use std::mem::MaybeUninit;
use std::ptr;

/// Elements per block: 8 KiB of f32, 16 KiB of f64.
const BLOCK: usize = 2048;

/// Reduces `count` elements of each source, in order, and stores the result at each destination. An average divides by
/// `ranks`, the number of ranks that the sources come from: each may already be a sum of several.
///
/// # Safety
/// Each source is readable and each destination writable for `count` elements, at any alignment. A destination may be
/// the same range as a source, and overlaps no source otherwise.
pub type Reduction =
    unsafe fn(sources: &[*const u8], destinations: &[*mut u8], count: usize, ranks: usize);

/// Returns the reduction of an element type by an operator; `None` if either is unknown.
pub fn reduction(element: ElementTypeCode, reduce: ReduceOpCode) -> Option<Reduction> {
    Some(match element {
        ElementTypeCode::I8 => of_type::<i8>(reduce)?,
        ElementTypeCode::U8 => of_type::<u8>(reduce)?,
        ElementTypeCode::I16 => of_type::<i16>(reduce)?,
        ElementTypeCode::U16 => of_type::<u16>(reduce)?,
        ElementTypeCode::I32 => of_type::<i32>(reduce)?,
        ElementTypeCode::U32 => of_type::<u32>(reduce)?,
        ElementTypeCode::I64 => of_type::<i64>(reduce)?,
        ElementTypeCode::U64 => of_type::<u64>(reduce)?,
        ElementTypeCode::F16 => of_type::<F16>(reduce)?,
        ElementTypeCode::BF16 => of_type::<Bf16>(reduce)?,
        ElementTypeCode::F32 => of_type::<f32>(reduce)?,
        ElementTypeCode::F64 => of_type::<f64>(reduce)?,
        ElementTypeCode::F8_E4M3 => of_type::<F8E4m3>(reduce)?,
        ElementTypeCode::F8_E5M2 => of_type::<F8E5m2>(reduce)?,
        _ => return None,
    })
}

fn of_type<T: StoredElement>(reduce: ReduceOpCode) -> Option<Reduction> {
    Some(match reduce {
        ReduceOpCode::SUM => run::<T, Sum>,
        ReduceOpCode::AVERAGE => run::<T, Average>,
        ReduceOpCode::MINIMUM => run::<T, Minimum>,
        ReduceOpCode::MAXIMUM => run::<T, Maximum>,
        ReduceOpCode::PRODUCT => run::<T, Product>,
        _ => return None,
    })
}

/// An element in memory.
trait StoredElement: Copy {
    /// The type in which it is reduced.
    type Wide: ReducedNumber;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

/// A number in the type of a reduction.
trait ReducedNumber: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn divided(self, ranks: usize) -> Self;
}

macro_rules! integers {
    ($($wide:ty: $($narrow:ty)*;)*) => {$(
        impl ReducedNumber for $wide {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self.wrapping_add(other)
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self.wrapping_mul(other)
            }
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                self.min(other)
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                self.max(other)
            }
            #[inline(always)]
            fn divided(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
        $(impl StoredElement for $narrow {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide {
                self as $wide
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                wide as Self
            }
        })*
    )*};
}
integers! {
    i32: i8 i16 i32;
    u32: u8 u16 u32;
    i64: i64;
    u64: u64;
}

macro_rules! floats {
    ($($wide:ty)*) => {$(
        impl ReducedNumber for $wide {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            // The standard library's functions ignore NaN; these propagate it. -0 is less than +0, as in IEEE
            // 754-2019.
            #[inline(always)]
            fn minimum(self, other: Self) -> Self {
                let smaller = if self < other || self == other && self.is_sign_negative() {
                    self
                } else {
                    other
                };
                if self.is_nan() { self } else { smaller }
            }
            #[inline(always)]
            fn maximum(self, other: Self) -> Self {
                let larger = if self > other || self == other && self.is_sign_positive() {
                    self
                } else {
                    other
                };
                if self.is_nan() { self } else { larger }
            }
            #[inline(always)]
            fn divided(self, ranks: usize) -> Self {
                self / ranks as Self
            }
        }
        impl StoredElement for $wide {
            type Wide = $wide;
            #[inline(always)]
            fn widen(self) -> $wide {
                self
            }
            #[inline(always)]
            fn narrow(wide: $wide) -> Self {
                wide
            }
        }
    )*};
}
floats! { f32 f64 }

macro_rules! narrow_floats {
    ($($name:ident($bits:ty) as $format:ty;)*) => {$(
        #[derive(Clone, Copy)]
        #[repr(transparent)]
        struct $name($bits);
        impl StoredElement for $name {
            type Wide = f32;
            #[inline(always)]
            fn widen(self) -> f32 {
                <$format>::widen(self.0.into())
            }
            #[inline(always)]
            fn narrow(wide: f32) -> Self {
                Self(<$format>::narrow(wide) as $bits)
            }
        }
    )*};
}
narrow_floats! {
    F16(u16) as Half;
    Bf16(u16) as Bfloat;
    F8E4m3(u8) as E4m3;
    F8E5m2(u8) as E5m2;
}

/// Returns the number of an element of at most 32 bits, given its bits.
pub(crate) fn to_f32(element: ElementTypeCode, bits: u32) -> f32 {
    match element {
        ElementTypeCode::F16 => Half::widen(bits),
        ElementTypeCode::BF16 => Bfloat::widen(bits),
        _ => f32::from_bits(bits),
    }
}

/// Returns the bits of a number, rounded to an element of at most 32 bits.
pub(crate) fn from_f32(element: ElementTypeCode, number: f32) -> u32 {
    match element {
        ElementTypeCode::F16 => Half::narrow(number),
        ElementTypeCode::BF16 => Bfloat::narrow(number),
        _ => number.to_bits(),
    }
}

/// A reduction operator: how it combines two numbers, and what it does to the last one.
trait Combine {
    fn combine<N: ReducedNumber>(a: N, b: N) -> N;
    #[inline(always)]
    fn finish<N: ReducedNumber>(number: N, _ranks: usize) -> N {
        number
    }
}

macro_rules! combinations {
    ($($name:ident $method:ident,)*) => {$(
        struct $name;
        impl Combine for $name {
            #[inline(always)]
            fn combine<N: ReducedNumber>(a: N, b: N) -> N {
                a.$method(b)
            }
        }
    )*};
}
combinations! { Sum sum, Minimum minimum, Maximum maximum, Product product, }

struct Average;
impl Combine for Average {
    #[inline(always)]
    fn combine<N: ReducedNumber>(a: N, b: N) -> N {
        a.sum(b)
    }
    #[inline(always)]
    fn finish<N: ReducedNumber>(number: N, ranks: usize) -> N {
        number.divided(ranks)
    }
}

/// Reads element `index` of a range at any alignment.
///
/// # Safety
/// The element lies in mapped memory.
#[inline(always)]
unsafe fn element<T: StoredElement>(source: *const u8, index: usize) -> T {
    // SAFETY: the element is mapped, as this function requires. Members order their stores by epochs, so the bytes do
    // not change during the read.
    unsafe { source.cast::<T>().add(index).read_unaligned() }
}

/// Runs a [`Reduction`] with the widest vectors of this processor.
///
/// # Safety
/// As for [`Reduction`].
unsafe fn run<T: StoredElement, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if count >= 32 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller meets the conditions of [`Reduction`], and this processor has AVX2.
        return unsafe { run_avx2::<T, C>(sources, destinations, count, ranks) };
    }
    // SAFETY: the caller meets the conditions of [`Reduction`].
    unsafe { blocks::<T, C>(sources, destinations, count, ranks) }
}

/// Runs a [`Reduction`] with 32-byte vectors.
///
/// # Safety
/// As for [`Reduction`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2<T: StoredElement, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
) {
    // SAFETY: the caller meets the conditions of [`Reduction`].
    unsafe { blocks::<T, C>(sources, destinations, count, ranks) }
}

/// # Safety
/// As for [`Reduction`].
#[inline(always)]
unsafe fn blocks<T: StoredElement, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
    ranks: usize,
) {
    let mut wide = [const { MaybeUninit::<T::Wide>::uninit() }; BLOCK];
    let mut narrow = [const { MaybeUninit::<T>::uninit() }; BLOCK];
    let mut done = 0;
    while done < count {
        let now = (count - done).min(BLOCK);
        let at = done * size_of::<T>();
        let (wide, narrow) = (&mut wide[..now], &mut narrow[..now]);
        // SAFETY: each source and destination has `count` elements, and `done + now` is at most that. The loops write
        // the first `now` elements of each block before they read them.
        unsafe {
            match sources {
                [only] => {
                    let only = only.add(at);
                    for (index, result) in narrow.iter_mut().enumerate() {
                        let number = element::<T>(only, index).widen();
                        result.write(T::narrow(C::finish(number, ranks)));
                    }
                }
                [first, second] => {
                    let (first, second) = (first.add(at), second.add(at));
                    for (index, result) in narrow.iter_mut().enumerate() {
                        let (a, b) = (element::<T>(first, index), element::<T>(second, index));
                        let number = C::combine(a.widen(), b.widen());
                        result.write(T::narrow(C::finish(number, ranks)));
                    }
                }
                [first, second, others @ ..] => {
                    let (first, second) = (first.add(at), second.add(at));
                    for (index, number) in wide.iter_mut().enumerate() {
                        let (a, b) = (element::<T>(first, index), element::<T>(second, index));
                        number.write(C::combine(a.widen(), b.widen()));
                    }
                    for other in others {
                        let other = other.add(at);
                        for (index, number) in wide.iter_mut().enumerate() {
                            let next = element::<T>(other, index).widen();
                            number.write(C::combine(number.assume_init(), next));
                        }
                    }
                    for (number, result) in wide.iter().zip(narrow.iter_mut()) {
                        result.write(T::narrow(C::finish(number.assume_init(), ranks)));
                    }
                }
                [] => return,
            }
            for destination in destinations {
                let destination = destination.add(at).cast::<u8>();
                ptr::copy_nonoverlapping(narrow.as_ptr().cast(), destination, now * size_of::<T>());
            }
        }
        done += now;
    }
}
