//! How elements of several ranks become one.
//!
//! Always in rank order, in a type wide enough, with one rounding at the end: so the result has the
//! same bits whichever rank computes it and however the elements were cut into pieces. (The payload
//! of a NaN is not promised.)
//!
//! Elements are taken in blocks that stay in the first cache: the first two sources are combined into
//! a block of wide numbers, the others are added to it, and its narrow form is copied to every
//! destination. The block is the only memory the loops write, so the compiler need not fear that it
//! overlaps with what they read, and vectorises them.

use crate::backend::abi::{ElementType, ReduceOperation};
use crate::float::{Bfloat, E4m3, E5m2, Half};
use std::mem::MaybeUninit;
use std::ptr;

/// Elements of a block: 8 KiB of f32, 16 KiB of f64.
const BLOCK: usize = 2048;

/// Reduces `count` elements of each source, in order, and stores the result at each destination.
///
/// # Safety
/// Each source is readable and each destination writable for `count` elements, at any alignment. A
/// destination may be one of the sources, and overlaps with none otherwise.
pub(crate) type Reduction =
    unsafe fn(sources: &[*const u8], destinations: &[*mut u8], count: usize);

/// The reduction of a type by an operation, if there are such.
pub(crate) fn reduction(element: ElementType, reduce: ReduceOperation) -> Option<Reduction> {
    Some(match element {
        ElementType::I8 => of_type::<i8>(reduce)?,
        ElementType::U8 => of_type::<u8>(reduce)?,
        ElementType::I16 => of_type::<i16>(reduce)?,
        ElementType::U16 => of_type::<u16>(reduce)?,
        ElementType::I32 => of_type::<i32>(reduce)?,
        ElementType::U32 => of_type::<u32>(reduce)?,
        ElementType::I64 => of_type::<i64>(reduce)?,
        ElementType::U64 => of_type::<u64>(reduce)?,
        ElementType::F16 => of_type::<F16>(reduce)?,
        ElementType::BF16 => of_type::<Bf16>(reduce)?,
        ElementType::F32 => of_type::<f32>(reduce)?,
        ElementType::F64 => of_type::<f64>(reduce)?,
        ElementType::F8_E4M3 => of_type::<F8E4m3>(reduce)?,
        ElementType::F8_E5M2 => of_type::<F8E5m2>(reduce)?,
        _ => return None,
    })
}

fn of_type<T: Narrow>(reduce: ReduceOperation) -> Option<Reduction> {
    Some(match reduce {
        ReduceOperation::SUM => run::<T, Sum>,
        ReduceOperation::AVERAGE => run::<T, Average>,
        ReduceOperation::MINIMUM => run::<T, Minimum>,
        ReduceOperation::MAXIMUM => run::<T, Maximum>,
        ReduceOperation::PRODUCT => run::<T, Product>,
        _ => return None,
    })
}

/// An element as it lies in memory.
trait Narrow: Copy {
    /// What it is reduced in.
    type Wide: Number;
    fn widen(self) -> Self::Wide;
    fn narrow(wide: Self::Wide) -> Self;
}

/// A number to reduce in.
trait Number: Copy {
    fn sum(self, other: Self) -> Self;
    fn product(self, other: Self) -> Self;
    fn minimum(self, other: Self) -> Self;
    fn maximum(self, other: Self) -> Self;
    fn divided(self, ranks: usize) -> Self;
}

macro_rules! integers {
    ($($wide:ty: $($narrow:ty)*;)*) => {$(
        impl Number for $wide {
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
        $(impl Narrow for $narrow {
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
        impl Number for $wide {
            #[inline(always)]
            fn sum(self, other: Self) -> Self {
                self + other
            }
            #[inline(always)]
            fn product(self, other: Self) -> Self {
                self * other
            }
            // The standard library's leave NaN out, and these do not. Of zeros, the one with the
            // sign is the smaller, as IEEE 754-2019 has it.
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
        impl Narrow for $wide {
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
        impl Narrow for $name {
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

/// How two numbers become one, and what is done to the last.
trait Combine {
    fn combine<N: Number>(a: N, b: N) -> N;
    #[inline(always)]
    fn finish<N: Number>(number: N, _ranks: usize) -> N {
        number
    }
}

macro_rules! combinations {
    ($($name:ident $method:ident,)*) => {$(
        struct $name;
        impl Combine for $name {
            #[inline(always)]
            fn combine<N: Number>(a: N, b: N) -> N {
                a.$method(b)
            }
        }
    )*};
}
combinations! { Sum sum, Minimum minimum, Maximum maximum, Product product, }

struct Average;
impl Combine for Average {
    #[inline(always)]
    fn combine<N: Number>(a: N, b: N) -> N {
        a.sum(b)
    }
    #[inline(always)]
    fn finish<N: Number>(number: N, ranks: usize) -> N {
        number.divided(ranks)
    }
}

/// Element `index` of a range at any alignment.
///
/// # Safety
/// The element is readable.
#[inline(always)]
unsafe fn element<T: Narrow>(source: *const u8, index: usize) -> T {
    // SAFETY: the caller's word. As with any copy here, a peer may store to it at any time: members
    // order themselves by epochs, and then nothing changes.
    unsafe { source.cast::<T>().add(index).read_unaligned() }
}

/// A [`Reduction`], with the widest vectors that every machine has.
///
/// # Safety
/// As [`Reduction`].
unsafe fn run<T: Narrow, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
) {
    #[cfg(target_arch = "x86_64")]
    if count >= 32 && std::arch::is_x86_feature_detected!("avx2") {
        // SAFETY: the caller's word, and this processor has the instructions.
        return unsafe { run_avx2::<T, C>(sources, destinations, count) };
    }
    // SAFETY: the caller's word.
    unsafe { blocks::<T, C>(sources, destinations, count) }
}

/// The same with vectors of 32 bytes.
///
/// # Safety
/// As [`Reduction`].
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn run_avx2<T: Narrow, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
) {
    // SAFETY: the caller's word.
    unsafe { blocks::<T, C>(sources, destinations, count) }
}

/// # Safety
/// As [`Reduction`].
#[inline(always)]
unsafe fn blocks<T: Narrow, C: Combine>(
    sources: &[*const u8],
    destinations: &[*mut u8],
    count: usize,
) {
    let ranks = sources.len();
    let mut wide = [const { MaybeUninit::<T::Wide>::uninit() }; BLOCK];
    let mut narrow = [const { MaybeUninit::<T>::uninit() }; BLOCK];
    let mut done = 0;
    while done < count {
        let now = (count - done).min(BLOCK);
        let at = done * size_of::<T>();
        let (wide, narrow) = (&mut wide[..now], &mut narrow[..now]);
        // SAFETY: the caller's word: `done + now` elements are there. Each block is written before
        // it is read, up to `now`.
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
