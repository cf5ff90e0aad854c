//! Buffers of any element type.

use crate::program::Element;
use half::{bf16, f16};
use symmem::{Communicator, Result, Stream, SymmetricBuffer};
use zerocopy::{FromBytes, IntoBytes};

/// A symmetric buffer.
pub enum Buffer {
    U8(SymmetricBuffer<u8>),
    U16(SymmetricBuffer<u16>),
    U32(SymmetricBuffer<u32>),
    U64(SymmetricBuffer<u64>),
    F16(SymmetricBuffer<f16>),
    Bf16(SymmetricBuffer<bf16>),
    F32(SymmetricBuffer<f32>),
    F64(SymmetricBuffer<f64>),
}

/// Evaluates an expression for the buffer of any type.
macro_rules! with_buffer {
    ($buffer:expr, $name:ident => $body:expr) => {
        match $buffer {
            $crate::buffer::Buffer::U8($name) => $body,
            $crate::buffer::Buffer::U16($name) => $body,
            $crate::buffer::Buffer::U32($name) => $body,
            $crate::buffer::Buffer::U64($name) => $body,
            $crate::buffer::Buffer::F16($name) => $body,
            $crate::buffer::Buffer::Bf16($name) => $body,
            $crate::buffer::Buffer::F32($name) => $body,
            $crate::buffer::Buffer::F64($name) => $body,
        }
    };
}

/// Evaluates an expression for two buffers of one type.
macro_rules! with_buffers {
    ($one:expr, $other:expr, |$first:ident, $second:ident| $body:expr) => {
        match ($one, $other) {
            ($crate::buffer::Buffer::U8($first), $crate::buffer::Buffer::U8($second)) => $body,
            ($crate::buffer::Buffer::U16($first), $crate::buffer::Buffer::U16($second)) => $body,
            ($crate::buffer::Buffer::U32($first), $crate::buffer::Buffer::U32($second)) => $body,
            ($crate::buffer::Buffer::U64($first), $crate::buffer::Buffer::U64($second)) => $body,
            ($crate::buffer::Buffer::F16($first), $crate::buffer::Buffer::F16($second)) => $body,
            ($crate::buffer::Buffer::Bf16($first), $crate::buffer::Buffer::Bf16($second)) => $body,
            ($crate::buffer::Buffer::F32($first), $crate::buffer::Buffer::F32($second)) => $body,
            ($crate::buffer::Buffer::F64($first), $crate::buffer::Buffer::F64($second)) => $body,
            _ => unreachable!("a plan's calls have two buffers of one type"),
        }
    };
}
pub(crate) use {with_buffer, with_buffers};

/// Allocates a buffer.
pub fn allocate(communicator: &Communicator, element: Element, length: usize) -> Result<Buffer> {
    let shape = [length];
    Ok(match element {
        Element::U8 => Buffer::U8(communicator.allocate(&shape)?),
        Element::U16 => Buffer::U16(communicator.allocate(&shape)?),
        Element::U32 => Buffer::U32(communicator.allocate(&shape)?),
        Element::U64 => Buffer::U64(communicator.allocate(&shape)?),
        Element::F16 => Buffer::F16(communicator.allocate(&shape)?),
        Element::Bf16 => Buffer::Bf16(communicator.allocate(&shape)?),
        Element::F32 => Buffer::F32(communicator.allocate(&shape)?),
        Element::F64 => Buffer::F64(communicator.allocate(&shape)?),
    })
}

impl Buffer {
    /// Returns the element type.
    pub fn element(&self) -> Element {
        match self {
            Self::U8(_) => Element::U8,
            Self::U16(_) => Element::U16,
            Self::U32(_) => Element::U32,
            Self::U64(_) => Element::U64,
            Self::F16(_) => Element::F16,
            Self::Bf16(_) => Element::Bf16,
            Self::F32(_) => Element::F32,
            Self::F64(_) => Element::F64,
        }
    }

    /// Frees the buffer on all ranks.
    pub fn free(self) -> Result<()> {
        with_buffer!(self, buffer => buffer.free())
    }

    /// Writes elements from `at` on.
    pub fn write(&self, stream: &Stream, at: usize, bytes: &[u8]) -> Result<()> {
        with_buffer!(self, buffer => buffer.write(stream, at, &typed(bytes)))
    }

    /// Reads `bytes` bytes from element `at` on.
    pub fn read(&self, stream: &Stream, at: usize, bytes: usize) -> Result<Vec<u8>> {
        with_buffer!(self, buffer => {
            let mut elements = typed(&vec![0xa5; bytes]);
            buffer.read(stream, at, &mut elements)?;
            Ok(elements.as_bytes().to_vec())
        })
    }
}

fn typed<T: FromBytes>(bytes: &[u8]) -> Vec<T> {
    let elements = bytes.chunks_exact(size_of::<T>());
    let element = |chunk| T::read_from_bytes(chunk).expect("a chunk has an element's size");
    elements.map(element).collect()
}
