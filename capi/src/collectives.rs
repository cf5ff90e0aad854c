//! Collectives.

use crate::handles::{Buffer, Rank, buffer_of, stream_of, symmem_buffer, symmem_stream};
use crate::status::{Failure, invalid, run, symmem_status};
use std::ffi::c_void;
use std::sync::Arc;
use symmem::{DeviceAddress, ElementType, Operand, Queue, ReduceOp, Reducible, with_element};

/// An element type.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum symmem_type {
    /// Signed integer of 8 bits.
    SYMMEM_I8 = 1,
    /// Unsigned integer of 8 bits.
    SYMMEM_U8 = 2,
    /// Signed integer of 16 bits.
    SYMMEM_I16 = 3,
    /// Unsigned integer of 16 bits.
    SYMMEM_U16 = 4,
    /// Signed integer of 32 bits.
    SYMMEM_I32 = 5,
    /// Unsigned integer of 32 bits.
    SYMMEM_U32 = 6,
    /// Signed integer of 64 bits.
    SYMMEM_I64 = 7,
    /// Unsigned integer of 64 bits.
    SYMMEM_U64 = 8,
    /// IEEE 754 half precision.
    SYMMEM_F16 = 9,
    /// bfloat16.
    SYMMEM_BF16 = 10,
    /// IEEE 754 single precision.
    SYMMEM_F32 = 11,
    /// IEEE 754 double precision.
    SYMMEM_F64 = 12,
    /// fp8 with 4 bits of exponent.
    SYMMEM_F8_E4M3 = 13,
    /// fp8 with 5 bits of exponent.
    SYMMEM_F8_E5M2 = 14,
}

/// A reduction.
#[repr(C)]
#[derive(Clone, Copy)]
pub enum symmem_operator {
    /// Sum.
    SYMMEM_SUM = 1,
    /// Sum divided by the number of ranks.
    SYMMEM_AVERAGE = 2,
    /// Minimum.
    SYMMEM_MINIMUM = 3,
    /// Maximum.
    SYMMEM_MAXIMUM = 4,
    /// Product.
    SYMMEM_PRODUCT = 5,
}

/// Source or destination of a collective: memory at an address of this rank's device (symmem_at), which no peer needs to
/// know, or a part of a symmetric buffer (symmem_in). If one operand of a call is an address, all ranks pass one, but each may
/// pass any. In a call on symmetric buffers all ranks pass the same parts of the same buffers.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct symmem_operand {
    /// The buffer; null for an address.
    pub buffer: *mut symmem_buffer,
    /// The address; ignored if there is a buffer.
    pub address: *mut c_void,
    /// Bytes from the start of the buffer, or from the address.
    pub offset: usize,
}

fn element_of(number: u32) -> Result<ElementType, Failure> {
    use symmem_type as Type;
    let all = [
        (Type::SYMMEM_I8, ElementType::I8),
        (Type::SYMMEM_U8, ElementType::U8),
        (Type::SYMMEM_I16, ElementType::I16),
        (Type::SYMMEM_U16, ElementType::U16),
        (Type::SYMMEM_I32, ElementType::I32),
        (Type::SYMMEM_U32, ElementType::U32),
        (Type::SYMMEM_I64, ElementType::I64),
        (Type::SYMMEM_U64, ElementType::U64),
        (Type::SYMMEM_F16, ElementType::F16),
        (Type::SYMMEM_BF16, ElementType::Bf16),
        (Type::SYMMEM_F32, ElementType::F32),
        (Type::SYMMEM_F64, ElementType::F64),
        (Type::SYMMEM_F8_E4M3, ElementType::F8E4M3),
        (Type::SYMMEM_F8_E5M2, ElementType::F8E5M2),
    ];
    let found = all.iter().find(|(element, _)| *element as u32 == number);
    let found = found.map(|(_, element)| *element);
    found.ok_or_else(|| invalid(format!("there is no element type {number}")))
}

fn operator_of(number: u32) -> Result<ReduceOp, Failure> {
    use symmem_operator as Operator;
    let all = [
        (Operator::SYMMEM_SUM, ReduceOp::Sum),
        (Operator::SYMMEM_AVERAGE, ReduceOp::Average),
        (Operator::SYMMEM_MINIMUM, ReduceOp::Minimum),
        (Operator::SYMMEM_MAXIMUM, ReduceOp::Maximum),
        (Operator::SYMMEM_PRODUCT, ReduceOp::Product),
    ];
    let found = all.iter().find(|(operator, _)| *operator as u32 == number);
    let found = found.map(|(_, operator)| *operator);
    found.ok_or_else(|| invalid(format!("there is no reduction {number}")))
}

/// How many parts of a call's count an operand has.
#[derive(Clone, Copy)]
enum Parts {
    One,
    /// One for each rank.
    Each,
}

/// A call's operands and the count of a part.
struct Call {
    stream: *mut symmem_stream,
    destination: (symmem_operand, Parts),
    source: (symmem_operand, Parts),
    count: usize,
}

impl Call {
    /// Enqueues the call that `verb` makes with the operands as the library takes them.
    ///
    /// # Safety
    /// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
    unsafe fn enqueue<T: Reducible>(
        &self,
        verb: impl FnOnce(&Queue, Operand<'_, T>, Operand<'_, T>) -> symmem::Result<()>,
    ) -> Result<(), Failure> {
        let stream = stream_of(self.stream)?;
        let rank = stream.rank()?;
        let world = rank.communicator.world_size();
        let length = |parts| match parts {
            Parts::One => Ok(self.count),
            Parts::Each => self.count.checked_mul(world).ok_or_else(|| {
                invalid(format!("{} elements for each of {world} ranks", self.count))
            }),
        };
        let (to, from) = (length(self.destination.1)?, length(self.source.1)?);
        let (destination, source) = (self.destination.0, self.source.0);
        let (to_buffer, from_buffer) = (destination.buffer()?, source.buffer()?);
        // SAFETY: guaranteed by the caller.
        let (to, from) = unsafe {
            (
                destination.elements(&rank, to_buffer.as_deref(), to, "destination")?,
                source.elements(&rank, from_buffer.as_deref(), from, "source")?,
            )
        };
        Ok(verb(&stream.lock(), to, from)?)
    }

    /// Enqueues a reduction.
    ///
    /// # Safety
    /// As [`Call::enqueue`].
    unsafe fn reduce(
        &self,
        (element, operation): (u32, u32),
        reduction: Reduction,
    ) -> Result<(), Failure> {
        let operator = operator_of(operation)?;
        with_element!(element_of(element)?, T => {
            // SAFETY: guaranteed by the caller.
            unsafe {
                self.enqueue::<T>(|queue, to, from| match reduction {
                    Reduction::All => queue.all_reduce(to, from, operator),
                    Reduction::To(root) => queue.reduce(root as usize, to, from, operator),
                    Reduction::Scatter => queue.reduce_scatter(to, from, operator),
                })
            }
        })
    }
}

/// Who gets what a reduction makes.
#[derive(Clone, Copy)]
enum Reduction {
    All,
    To(u32),
    Scatter,
}

impl symmem_operand {
    /// Returns the buffer that it names, if it names one.
    pub fn buffer(&self) -> Result<Option<Arc<Buffer>>, Failure> {
        match self.buffer.is_null() {
            true => Ok(None),
            false => buffer_of(self.buffer).map(Some),
        }
    }

    /// Returns `length` elements there, in `buffer` if there is one.
    ///
    /// # Safety
    /// As [`Call::enqueue`].
    pub unsafe fn elements<'a, T: Reducible>(
        &self,
        rank: &'a Rank,
        buffer: Option<&'a Buffer>,
        length: usize,
        name: &str,
    ) -> Result<Operand<'a, T>, Failure> {
        let offset = self.offset;
        let too_long = || invalid(format!("{name}: {length} elements from byte {offset} on"));
        if let Some(buffer) = buffer {
            let bytes = length.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
            return Ok(buffer.slice(offset, bytes)?.cast::<T>()?.into());
        }
        if self.address.is_null() && length > 0 {
            return Err(invalid(format!(
                "{name} is neither a buffer nor an address"
            )));
        }
        let address = self
            .address
            .addr()
            .checked_add(offset)
            .ok_or_else(too_long)?;
        let address = DeviceAddress(address as u64);
        // SAFETY: guaranteed by the caller.
        let slice = unsafe { rank.communicator.device_slice::<T>(address, length) };
        Ok(slice?.into())
    }
}

/// Reduces `count` elements of all ranks into `destination` at all ranks. In place if both operands are the same.
/// `element` is a symmem_type, `operation` a symmem_operator.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_all_reduce(
    stream: *mut symmem_stream,
    destination: symmem_operand,
    source: symmem_operand,
    count: usize,
    element: u32,
    operation: u32,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::One),
        source: (source, Parts::One),
        count,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_all_reduce", || unsafe {
        call.reduce((element, operation), Reduction::All)
    })
}

/// Reduces `count` elements of all ranks into `destination` at rank `root`.
/// `element` is a symmem_type, `operation` a symmem_operator.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_reduce(
    stream: *mut symmem_stream,
    root: u32,
    destination: symmem_operand,
    source: symmem_operand,
    count: usize,
    element: u32,
    operation: u32,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::One),
        source: (source, Parts::One),
        count,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_reduce", || unsafe {
        call.reduce((element, operation), Reduction::To(root))
    })
}

/// Reduces `count` elements for each rank: `source` has `count` times as many elements as there are ranks, and rank r gets
/// part r.
/// `element` is a symmem_type, `operation` a symmem_operator.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_reduce_scatter(
    stream: *mut symmem_stream,
    destination: symmem_operand,
    source: symmem_operand,
    count: usize,
    element: u32,
    operation: u32,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::One),
        source: (source, Parts::Each),
        count,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_reduce_scatter", || unsafe {
        call.reduce((element, operation), Reduction::Scatter)
    })
}

/// Copies `bytes` bytes of every rank into `destination` of all ranks, in rank order.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_all_gather(
    stream: *mut symmem_stream,
    destination: symmem_operand,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::Each),
        source: (source, Parts::One),
        count: bytes,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_all_gather", || unsafe {
        call.enqueue::<u8>(|queue, to, from| queue.all_gather(to, from))
    })
}

/// Copies `bytes` bytes of rank `root` into `destination` of all ranks.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_broadcast(
    stream: *mut symmem_stream,
    root: u32,
    destination: symmem_operand,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::One),
        source: (source, Parts::One),
        count: bytes,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_broadcast", || unsafe {
        call.enqueue::<u8>(|queue, to, from| queue.broadcast(root as usize, to, from))
    })
}

/// Copies part r of `source` of rank s into part s of `destination` of rank r; a part has `bytes` bytes.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_all_to_all(
    stream: *mut symmem_stream,
    destination: symmem_operand,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::Each),
        source: (source, Parts::Each),
        count: bytes,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_all_to_all", || unsafe {
        call.enqueue::<u8>(|queue, to, from| queue.all_to_all(to, from))
    })
}

/// Copies `bytes` bytes of every rank into `destination` of rank `root`, in rank order.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_gather(
    stream: *mut symmem_stream,
    root: u32,
    destination: symmem_operand,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::Each),
        source: (source, Parts::One),
        count: bytes,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_gather", || unsafe {
        call.enqueue::<u8>(|queue, to, from| queue.gather(root as usize, to, from))
    })
}

/// Copies part r of `source` of rank `root` into `destination` of rank r; a part has `bytes` bytes.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many bytes, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_scatter(
    stream: *mut symmem_stream,
    root: u32,
    destination: symmem_operand,
    source: symmem_operand,
    bytes: usize,
) -> symmem_status {
    let call = Call {
        stream,
        destination: (destination, Parts::One),
        source: (source, Parts::Each),
        count: bytes,
    };
    // SAFETY: guaranteed by the caller.
    run("symmem_scatter", || unsafe {
        call.enqueue::<u8>(|queue, to, from| queue.scatter(root as usize, to, from))
    })
}

/// Enqueues a barrier: later work of this stream starts once the streams of all ranks have reached it.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_barrier(stream: *mut symmem_stream) -> symmem_status {
    run("symmem_barrier", || {
        Ok(stream_of(stream)?.lock().barrier()?)
    })
}
