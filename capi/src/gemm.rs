//! All-gather + GEMM.

use crate::collectives::{symmem_operand, symmem_type};
use crate::handles::{
    Buffer, Gemm, gemm_of, optional, out, rank_of, stream_of, symmem_communicator, symmem_gemm,
    symmem_stream, take_gemm,
};
use crate::status::{Failure, invalid, run, symmem_status};
use half::{bf16, f16};
use std::ffi::c_void;
use symmem::{
    AllGatherGemm, DeviceAddress, GemmElement, GemmOptions, GemmShape, Matrix, MatrixOrder,
    Operands, Queue, Sharding,
};

/// The shape of C[m, n] = A[m, k] * B[k, n]. A and C are row-major, without gaps. Each rank has a shard of A and its own B, and
/// gets its own C. Set `size` to `sizeof(struct symmem_gemm_shape)`; the same at all ranks.
#[repr(C)]
pub struct symmem_gemm_shape {
    /// The size of this struct, in bytes.
    pub size: u32,
    /// SYMMEM_F16 or SYMMEM_BF16.
    pub element: u32,
    /// Rows of A and C.
    pub m: usize,
    /// Columns of B and C on each rank.
    pub n: usize,
    /// Columns of A, rows of B.
    pub k: usize,
    /// 0: rank r has the rows of A from r * ceil(m / world) on; 1: the columns from r * ceil(k / world) on.
    pub by_columns: u32,
    /// 0: B is row-major; 1: column-major.
    pub b_columns: u32,
    /// 1: a bias is added to each row.
    pub bias: u32,
    /// 0.
    pub reserved: u32,
}

/// Prepares an all-gather + GEMM. All ranks call it, in the same order; blocks until they have, and tries the vendor's
/// candidates on temporary memory of the matrices' size. If a field but m, n and k is refused at one rank, the others wait for
/// the setup deadline.
///
/// @param gemm Where to store it. End it by symmem_gemm_destroy.
/// @param shard_elements Where to store how many elements the buffer for a shard of A has at every rank; may be null.
///
/// # Safety
/// `shape` is null or a struct of at least `size` bytes; the other pointers are null or valid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_gemm_create(
    communicator: *mut symmem_communicator,
    shape: *const symmem_gemm_shape,
    gemm: *mut *mut symmem_gemm,
    shard_elements: *mut usize,
) -> symmem_status {
    run("symmem_gemm_create", || {
        // SAFETY: guaranteed by the caller.
        let place = unsafe { out(gemm, "gemm") }?;
        let rank = rank_of(communicator)?;
        // SAFETY: guaranteed by the caller.
        let (element, shape) = unsafe { shape_of(shape) }?;
        let options = GemmOptions::default();
        let communicator = &rank.communicator;
        let gemm = match element {
            _ if element == symmem_type::SYMMEM_F16 as u32 => {
                Gemm::F16(communicator.all_gather_gemm(&shape, &options)?)
            }
            _ if element == symmem_type::SYMMEM_BF16 as u32 => {
                Gemm::Bf16(communicator.all_gather_gemm(&shape, &options)?)
            }
            other => {
                return Err(invalid(format!(
                    "shape.element is {other}; all-gather + GEMM takes SYMMEM_F16 and SYMMEM_BF16"
                )));
            }
        };
        // SAFETY: guaranteed by the caller.
        if let Some(place) = unsafe { optional(shard_elements) } {
            place.write(shape.shard_elements(communicator.world_size()));
        }
        place.write(gemm.into());
        Ok(())
    })
}

/// Returns the element's number and the shape that a struct describes.
///
/// # Safety
/// As [`symmem_gemm_create`].
unsafe fn shape_of(shape: *const symmem_gemm_shape) -> Result<(u32, GemmShape), Failure> {
    // SAFETY: guaranteed by the caller: every version of the struct begins with its size.
    let size = unsafe { shape.cast::<u32>().as_ref() }.ok_or_else(|| invalid("shape is null"))?;
    if (*size as usize) < size_of::<symmem_gemm_shape>() {
        return Err(invalid(format!(
            "shape.size is {size}, but the struct has {} bytes; set it to sizeof(struct symmem_gemm_shape)",
            size_of::<symmem_gemm_shape>()
        )));
    }
    // SAFETY: the struct is as large as this version's.
    let given = unsafe { &*shape };
    let flag = |name, value| match value {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(invalid(format!("shape.{name} is {value}, not 0 or 1"))),
    };
    if given.reserved != 0 {
        return Err(invalid(format!(
            "shape.reserved is {}, not 0",
            given.reserved
        )));
    }
    let shape = GemmShape {
        sharding: match flag("by_columns", given.by_columns)? {
            false => Sharding::Rows,
            true => Sharding::Columns,
        },
        b_order: match flag("b_columns", given.b_columns)? {
            false => MatrixOrder::Rows,
            true => MatrixOrder::Columns,
        },
        bias: flag("bias", given.bias)?,
        ..GemmShape::new(given.m, given.n, given.k)
    };
    Ok((given.element, shape))
}

/// Enqueues an all-gather + GEMM. `a` is a part of a symmetric buffer, the same at all ranks, of as many elements as
/// symmem_gemm_create told; the other matrices are any memory of this rank's device, without gaps. `bias` is null unless the
/// shape has one.
///
/// # Safety
/// The matrices are on this rank's device, aligned to an element, until the stream has passed the work.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn symmem_all_gather_gemm(
    stream: *mut symmem_stream,
    gemm: *mut symmem_gemm,
    a: symmem_operand,
    b: *const c_void,
    c: *mut c_void,
    bias: *const c_void,
) -> symmem_status {
    run("symmem_all_gather_gemm", || {
        let stream = stream_of(stream)?;
        let world = stream.rank()?.communicator.world_size();
        let gemm = gemm_of(gemm)?;
        let buffer = a.buffer()?;
        let buffer = buffer.ok_or_else(|| {
            invalid(
                "a is an address; peers load the shard, so use symmem_in with a symmetric buffer",
            )
        })?;
        let others = [("b", b), ("c", c.cast_const()), ("bias", bias)];
        let call = Call {
            buffer: &buffer,
            offset: a.offset,
            world,
            others,
        };
        // SAFETY: guaranteed by the caller.
        unsafe {
            match &*gemm {
                Gemm::F16(gemm) => call.enqueue::<f16>(&stream.lock(), gemm),
                Gemm::Bf16(gemm) => call.enqueue::<bf16>(&stream.lock(), gemm),
            }
        }
    })
}

/// The operands of a call: the buffer of the shards, and the other matrices by name.
struct Call<'a> {
    buffer: &'a Buffer,
    offset: usize,
    world: usize,
    others: [(&'static str, *const c_void); 3],
}

impl Call<'_> {
    /// Enqueues the call.
    ///
    /// # Safety
    /// As [`symmem_all_gather_gemm`].
    unsafe fn enqueue<T: GemmElement<Output = T>>(
        &self,
        queue: &Queue,
        gemm: &AllGatherGemm<T>,
    ) -> Result<(), Failure> {
        let shape = gemm.shape();
        let bytes = shape.shard_elements(self.world) * size_of::<T>();
        let given = |number: usize, rows, columns, order| {
            let (name, pointer) = self.others[number];
            if pointer.is_null() {
                return Err(invalid(format!("{name} is null")));
            }
            let address = DeviceAddress(pointer.addr() as u64);
            if !address.0.is_multiple_of(align_of::<T>() as u64) {
                return Err(invalid(format!(
                    "{name} is at {address:?}, which is no multiple of an element's size"
                )));
            }
            let stride = match order {
                MatrixOrder::Columns => rows,
                _ => columns,
            };
            // SAFETY: guaranteed by the caller.
            Ok(unsafe { Matrix::from_raw(address, rows, columns, stride, order) })
        };
        if !shape.bias && !self.others[2].1.is_null() {
            return Err(invalid("bias is not null, but the shape has none"));
        }
        let bias = shape.bias.then(|| given(2, 1, shape.n, MatrixOrder::Rows));
        let operands = Operands {
            a: self.buffer.slice(self.offset, bytes)?.cast::<T>()?,
            b: given(0, shape.k, shape.n, shape.b_order)?,
            c: given(1, shape.m, shape.n, MatrixOrder::Rows)?,
            bias: bias.transpose()?,
            scale: None,
            gathered: None,
        };
        Ok(queue.all_gather_gemm(gemm, &operands)?)
    }
}

/// Destroys an all-gather + GEMM. The handle is gone then; its memory stays until work with it is done.
#[unsafe(no_mangle)]
pub extern "C" fn symmem_gemm_destroy(gemm: *mut symmem_gemm) -> symmem_status {
    run("symmem_gemm_destroy", || take_gemm(gemm).map(drop))
}
