//! Collectives.

use crate::handles::{OnStream, Rank, buffer_of, stream_of, symmem_buffer, symmem_stream};
use crate::status::{Failure, invalid, run, symmem_status};
use std::ffi::c_void;
use symmem::{DeviceAddress, F8E4M3, F8E5M2, Operand, Queue, ReduceOp, Reducible};

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

/// Calls `$body` with `$T` as the element type of a number.
macro_rules! with_element {
    ($number:expr, $T:ident => $body:expr) => {
        match $number {
            1 => {
                type $T = i8;
                $body
            }
            2 => {
                type $T = u8;
                $body
            }
            3 => {
                type $T = i16;
                $body
            }
            4 => {
                type $T = u16;
                $body
            }
            5 => {
                type $T = i32;
                $body
            }
            6 => {
                type $T = u32;
                $body
            }
            7 => {
                type $T = i64;
                $body
            }
            8 => {
                type $T = u64;
                $body
            }
            9 => {
                type $T = half::f16;
                $body
            }
            10 => {
                type $T = half::bf16;
                $body
            }
            11 => {
                type $T = f32;
                $body
            }
            12 => {
                type $T = f64;
                $body
            }
            13 => {
                type $T = F8E4M3;
                $body
            }
            14 => {
                type $T = F8E5M2;
                $body
            }
            other => Err(invalid(format!("there is no element type {other}"))),
        }
    };
}

fn operator_of(number: u32) -> Result<ReduceOp, Failure> {
    Ok(match number {
        1 => ReduceOp::Sum,
        2 => ReduceOp::Average,
        3 => ReduceOp::Minimum,
        4 => ReduceOp::Maximum,
        5 => ReduceOp::Product,
        other => return Err(invalid(format!("there is no reduction {other}"))),
    })
}

/// Calls `call` with the operands as the library takes them, on the stream.
///
/// # Safety
/// Addresses are of memory on this rank's device, with as many elements, until the stream has passed the work.
unsafe fn with_operands<T: Reducible>(
    stream: &OnStream,
    (destination, to): (symmem_operand, usize),
    (source, from): (symmem_operand, usize),
    call: impl FnOnce(&Queue, Operand<'_, T>, Operand<'_, T>) -> symmem::Result<()>,
) -> Result<(), Failure> {
    let rank = stream.rank()?;
    let buffers = [&destination, &source].map(|operand| match operand.buffer.is_null() {
        true => Ok(None),
        false => buffer_of(operand.buffer).map(Some),
    });
    let [to_buffer, from_buffer] = buffers;
    let (to_buffer, from_buffer) = (to_buffer?, from_buffer?);
    // SAFETY: guaranteed by the caller.
    let (to, from) = unsafe {
        (
            operand_of(&rank, destination, to_buffer.as_deref(), to, "destination")?,
            operand_of(&rank, source, from_buffer.as_deref(), from, "source")?,
        )
    };
    Ok(call(&stream.lock(), to, from)?)
}

/// Returns `length` elements at an operand.
///
/// # Safety
/// As [`with_operands`].
unsafe fn operand_of<'a, T: Reducible>(
    rank: &'a Rank,
    operand: symmem_operand,
    buffer: Option<&'a crate::handles::Buffer>,
    length: usize,
    name: &str,
) -> Result<Operand<'a, T>, Failure> {
    let too_long = || {
        invalid(format!(
            "{name}: {length} elements from byte {} on",
            operand.offset
        ))
    };
    let bytes = length.checked_mul(size_of::<T>()).ok_or_else(too_long)?;
    if let Some(buffer) = buffer {
        let end = operand.offset.checked_add(bytes).ok_or_else(too_long)?;
        return Ok(buffer.bytes.slice(operand.offset..end)?.cast::<T>()?.into());
    }
    if operand.address.is_null() && length > 0 {
        return Err(invalid(format!(
            "{name} is neither a buffer nor an address"
        )));
    }
    let address = operand
        .address
        .addr()
        .checked_add(operand.offset)
        .ok_or_else(too_long)?;
    // SAFETY: guaranteed by the caller.
    let slice = unsafe {
        rank.communicator
            .device_slice::<T>(DeviceAddress(address as u64), length)
    };
    Ok(slice?.into())
}

/// Returns a number of elements at each rank together.
fn times(count: usize, stream: &OnStream) -> Result<usize, Failure> {
    let world = stream.rank()?.communicator.world_size();
    let all = count.checked_mul(world);
    all.ok_or_else(|| invalid(format!("{count} elements for each of {world} ranks")))
}

fn once(count: usize, _: &OnStream) -> Result<usize, Failure> {
    Ok(count)
}

/// The number of elements of an operand, by the count of a call.
type Length = fn(usize, &OnStream) -> Result<usize, Failure>;

/// The operands of a call: destination, source, and the lengths of both.
struct Call {
    destination: (symmem_operand, Length),
    source: (symmem_operand, Length),
    count: usize,
}

impl Call {
    /// Enqueues a reduction.
    ///
    /// # Safety
    /// As [`with_operands`].
    unsafe fn reduce(
        self,
        name: &'static str,
        stream: *mut symmem_stream,
        (element, operation): (u32, u32),
        verb: impl Reduction,
    ) -> symmem_status {
        run(name, || {
            let stream = stream_of(stream)?;
            let operator = operator_of(operation)?;
            let to = (self.destination.0, self.destination.1(self.count, &stream)?);
            let from = (self.source.0, self.source.1(self.count, &stream)?);
            with_element!(element, T => {
                // SAFETY: guaranteed by the caller.
                unsafe {
                    with_operands::<T>(&stream, to, from, |queue, to, from| {
                        verb.enqueue(queue, to, from, operator)
                    })
                }
            })
        })
    }

    /// Enqueues a call that moves bytes.
    ///
    /// # Safety
    /// As [`with_operands`].
    unsafe fn copy(
        self,
        name: &'static str,
        stream: *mut symmem_stream,
        verb: impl FnOnce(&Queue, Operand<'_, u8>, Operand<'_, u8>) -> symmem::Result<()>,
    ) -> symmem_status {
        run(name, || {
            let stream = stream_of(stream)?;
            let to = (self.destination.0, self.destination.1(self.count, &stream)?);
            let from = (self.source.0, self.source.1(self.count, &stream)?);
            // SAFETY: guaranteed by the caller.
            unsafe { with_operands::<u8>(&stream, to, from, verb) }
        })
    }
}

/// A reducing verb, for any element type.
trait Reduction {
    fn enqueue<T: Reducible>(
        self,
        queue: &Queue,
        to: Operand<'_, T>,
        from: Operand<'_, T>,
        operator: ReduceOp,
    ) -> symmem::Result<()>;
}

struct AllReduce;
struct Reduce(usize);
struct ReduceScatter;

impl Reduction for AllReduce {
    fn enqueue<T: Reducible>(
        self,
        queue: &Queue,
        to: Operand<'_, T>,
        from: Operand<'_, T>,
        operator: ReduceOp,
    ) -> symmem::Result<()> {
        queue.all_reduce(to, from, operator)
    }
}

impl Reduction for Reduce {
    fn enqueue<T: Reducible>(
        self,
        queue: &Queue,
        to: Operand<'_, T>,
        from: Operand<'_, T>,
        operator: ReduceOp,
    ) -> symmem::Result<()> {
        queue.reduce(self.0, to, from, operator)
    }
}

impl Reduction for ReduceScatter {
    fn enqueue<T: Reducible>(
        self,
        queue: &Queue,
        to: Operand<'_, T>,
        from: Operand<'_, T>,
        operator: ReduceOp,
    ) -> symmem::Result<()> {
        queue.reduce_scatter(to, from, operator)
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
        destination: (destination, once),
        source: (source, once),
        count,
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call.reduce("symmem_all_reduce", stream, (element, operation), AllReduce) }
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
        destination: (destination, once),
        source: (source, once),
        count,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        call.reduce(
            "symmem_reduce",
            stream,
            (element, operation),
            Reduce(root as usize),
        )
    }
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
        destination: (destination, once),
        source: (source, times),
        count,
    };
    // SAFETY: guaranteed by the caller.
    unsafe {
        call.reduce(
            "symmem_reduce_scatter",
            stream,
            (element, operation),
            ReduceScatter,
        )
    }
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
        destination: (destination, times),
        source: (source, once),
        count: bytes,
    };
    let verb =
        |queue: &Queue, to: Operand<'_, u8>, from: Operand<'_, u8>| queue.all_gather(to, from);
    // SAFETY: guaranteed by the caller.
    unsafe { call.copy("symmem_all_gather", stream, verb) }
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
        destination: (destination, once),
        source: (source, once),
        count: bytes,
    };
    let verb = |queue: &Queue, to: Operand<'_, u8>, from: Operand<'_, u8>| {
        queue.broadcast(root as usize, to, from)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call.copy("symmem_broadcast", stream, verb) }
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
        destination: (destination, times),
        source: (source, times),
        count: bytes,
    };
    let verb =
        |queue: &Queue, to: Operand<'_, u8>, from: Operand<'_, u8>| queue.all_to_all(to, from);
    // SAFETY: guaranteed by the caller.
    unsafe { call.copy("symmem_all_to_all", stream, verb) }
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
        destination: (destination, times),
        source: (source, once),
        count: bytes,
    };
    let verb = |queue: &Queue, to: Operand<'_, u8>, from: Operand<'_, u8>| {
        queue.gather(root as usize, to, from)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call.copy("symmem_gather", stream, verb) }
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
        destination: (destination, once),
        source: (source, times),
        count: bytes,
    };
    let verb = |queue: &Queue, to: Operand<'_, u8>, from: Operand<'_, u8>| {
        queue.scatter(root as usize, to, from)
    };
    // SAFETY: guaranteed by the caller.
    unsafe { call.copy("symmem_scatter", stream, verb) }
}

/// Enqueues a barrier: later work of this stream starts once the streams of all ranks have reached it.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_barrier(stream: *mut symmem_stream) -> symmem_status {
    run("symmem_barrier", || {
        Ok(stream_of(stream)?.lock().barrier()?)
    })
}
