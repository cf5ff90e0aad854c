//! The implementations of the operators, for host memory and for GPUs.
//!
//! PyTorch gives an operator a stack of 64-bit values. Integers are on it as they are. A tensor is a reference that the
//! operator owns: it must give it back or return it. Results go to the start of the stack, and PyTorch owns them from
//! then on; it takes nothing from the stack of an operator that throws.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::arguments::{Outcome, alike, divisible, layouts, pair, ranks, ratio, target_of};
use super::call::{Call, Kind, enqueue};
use super::error::CallError;
use super::products;
use super::raise;
use super::reduced_products;
use super::rows;
use super::symbols::{self, Symbols};
use super::tensor::{Layout, Tensor};

/// Defines the function that PyTorch calls for an operator, from the function that does the work.
macro_rules! kernels {
    ($($(#[$doc:meta])* $kernel:ident = $name:literal, $results:literal results, $body:path;)*) => {
        $(
            $(#[$doc])*
            ///
            /// # Safety
            ///
            /// Only PyTorch may call it, with the stack of the operator's schema.
            pub unsafe extern "C-unwind" fn $kernel(stack: *mut u64, inputs: u64, outputs: u64) {
                let symbols = symbols::loaded();
                // SAFETY: PyTorch passes a stack of at least `inputs` values.
                let text = unsafe { attempt(symbols, $name, $body, $results, stack, inputs, outputs) };
                if !text.is_null() {
                    // SAFETY: the text ends with NUL, and nothing in this frame needs dropping.
                    unsafe { raise::throw(symbols, text) }
                }
            }
        )*
    };
}

kernels! {
    /// `all_reduce(Tensor input, int op, int communicator) -> Tensor`
    all_reduce_kernel = "all_reduce", 1 results, all_reduce;
    /// `all_reduce_(Tensor(a!) tensor, int op, int communicator) -> ()`
    all_reduce_in_place_kernel = "all_reduce_", 0 results, all_reduce_in_place;
    /// `all_gather(Tensor input, int world, int communicator) -> Tensor`
    all_gather_kernel = "all_gather", 1 results, all_gather;
    /// `reduce_scatter(Tensor input, int op, int world, int communicator) -> Tensor`
    reduce_scatter_kernel = "reduce_scatter", 1 results, reduce_scatter;
    /// `all_to_all_single(Tensor input, int world, int communicator) -> Tensor`
    all_to_all_kernel = "all_to_all_single", 1 results, all_to_all;
    /// `all_gather_matmul(Tensor a, Tensor b, int world, int communicator) -> Tensor`
    all_gather_matmul_kernel = "all_gather_matmul", 1 results, all_gather_matmul;
    /// `matmul_reduce_scatter(Tensor a, Tensor b, int world, int communicator) -> Tensor`
    matmul_reduce_scatter_kernel = "matmul_reduce_scatter", 1 results, matmul_reduce_scatter;
    /// `matmul_all_reduce(Tensor a, Tensor b, int communicator) -> Tensor`
    matmul_all_reduce_kernel = "matmul_all_reduce", 1 results, matmul_all_reduce;
    /// `all_reduce_rms_norm(Tensor input, Tensor residual, Tensor weight, float epsilon, float weight_offset,
    /// int communicator) -> (Tensor, Tensor)`
    all_reduce_rms_norm_kernel = "all_reduce_rms_norm", 2 results, rows::all_reduce_rms_norm;
    /// `all_reduce_rms_norm_(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float epsilon, float weight_offset,
    /// int communicator) -> ()`
    all_reduce_rms_norm_in_place_kernel = "all_reduce_rms_norm_", 0 results, rows::all_reduce_rms_norm_in_place;
    /// `all_reduce_rms_norm_f8_(Tensor input, Tensor(a!) residual, Tensor weight, Tensor(b!) output, Tensor(c!) scales, int kind,
    /// float epsilon, float weight_offset, int communicator) -> ()`
    all_reduce_rms_norm_f8_kernel = "all_reduce_rms_norm_f8_", 0 results, rows::all_reduce_rms_norm_f8;
    /// `all_gather_out(Tensor input, Tensor(a!) output, int communicator) -> ()`
    all_gather_out_kernel = "all_gather_out", 0 results, all_gather_out;
    /// `reduce_scatter_out(Tensor input, Tensor(a!) output, int op, int communicator) -> ()`
    reduce_scatter_out_kernel = "reduce_scatter_out", 0 results, reduce_scatter_out;
    /// `all_to_all_single_out(Tensor input, Tensor(a!) output, int communicator) -> ()`
    all_to_all_out_kernel = "all_to_all_single_out", 0 results, all_to_all_out;
}

/// Runs an operator. It drops all it owns before it returns, and returns null or the text of the error to throw.
///
/// Never inlined: a frame that catches panics has a table for the unwinder, and the wheel has an unwinder of its own, which cannot
/// read the state of the one that PyTorch's exception goes by.
///
/// # Safety
///
/// `stack` must have `inputs` values, and tensors among them must be references that nobody else uses.
#[inline(never)]
unsafe fn attempt<const N: usize>(
    symbols: &'static Symbols,
    name: &str,
    body: fn(&'static Symbols, &mut [u64; N]) -> Outcome,
    results: u64,
    stack: *mut u64,
    inputs: u64,
    outputs: u64,
) -> *const c_char {
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        if inputs != N as u64 || outputs != results {
            let message = format!(
                "PyTorch passed {inputs} arguments for {outputs} results, not {N} for {results}"
            );
            return Err(CallError::Argument(message));
        }
        // SAFETY: the stack has N values, for this function alone.
        body(symbols, unsafe { &mut *stack.cast::<[u64; N]>() })
    }));
    match outcome {
        Ok(Ok(())) => ptr::null(),
        Ok(Err(error)) => raise::remember(name, error),
        Err(payload) => {
            raise::remember(name, CallError::Panic(raise::panic_text(payload.as_ref())))
        }
    }
}

fn all_reduce(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first argument is a tensor.
    let input = unsafe { Tensor::from_stack(stack[0], symbols)? };
    let layout = input.layout("input")?;
    let output = input.empty_like(input.sizes()?)?;
    let op = stack[1] as i64;
    submit(
        symbols,
        Kind::AllReduce,
        &input,
        &output,
        layout,
        layout.count,
        None,
        op,
        stack[2],
    )?;
    stack[0] = output.into_stack();
    Ok(())
}

fn all_reduce_in_place(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first argument is a tensor.
    let tensor = unsafe { Tensor::from_stack(stack[0], symbols)? };
    let layout = tensor.layout("tensor")?;
    let op = stack[1] as i64;
    submit(
        symbols,
        Kind::AllReduce,
        &tensor,
        &tensor,
        layout,
        layout.count,
        None,
        op,
        stack[2],
    )
}

fn all_gather(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first argument is a tensor.
    let input = unsafe { Tensor::from_stack(stack[0], symbols)? };
    let layout = input.layout("input")?;
    let world = ranks(stack[1])?;
    let mut sizes = input.sizes()?.to_vec();
    match sizes.first_mut() {
        Some(first) => match first.checked_mul(world as i64) {
            Some(size) => *first = size,
            None => {
                return Err(CallError::Argument(format!(
                    "the first dimension, {first} x {world}, is too large"
                )));
            }
        },
        None => sizes.push(world as i64),
    }
    let output = input.empty_like(&sizes)?;
    submit(
        symbols,
        Kind::AllGather,
        &input,
        &output,
        layout,
        layout.count,
        Some(world),
        0,
        stack[2],
    )?;
    stack[0] = output.into_stack();
    Ok(())
}

fn reduce_scatter(symbols: &'static Symbols, stack: &mut [u64; 4]) -> Outcome {
    // SAFETY: the schema's first argument is a tensor.
    let input = unsafe { Tensor::from_stack(stack[0], symbols)? };
    let layout = input.layout("input")?;
    let world = ranks(stack[2])?;
    let mut sizes = input.sizes()?.to_vec();
    *divisible(&mut sizes, world)? /= world as i64;
    let output = input.empty_like(&sizes)?;
    let (count, op) = (layout.count / world, stack[1] as i64);
    submit(
        symbols,
        Kind::ReduceScatter,
        &input,
        &output,
        layout,
        count,
        Some(world),
        op,
        stack[3],
    )?;
    stack[0] = output.into_stack();
    Ok(())
}

fn all_to_all(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first argument is a tensor.
    let input = unsafe { Tensor::from_stack(stack[0], symbols)? };
    let layout = input.layout("input")?;
    let world = ranks(stack[1])?;
    let mut sizes = input.sizes()?.to_vec();
    divisible(&mut sizes, world)?;
    let output = input.empty_like(&sizes)?;
    submit(
        symbols,
        Kind::AllToAll,
        &input,
        &output,
        layout,
        layout.count,
        Some(world),
        0,
        stack[2],
    )?;
    stack[0] = output.into_stack();
    Ok(())
}

/// The layout of A, its rows and columns, the columns of B, and whether B is stored by columns.
fn factors(a: &Tensor, b: &Tensor) -> Result<(Layout, [usize; 3], bool), CallError> {
    let layout = a.layout("a")?;
    let (_, [rows, k], _) = a.matrix("a")?;
    let (of_b, [b_rows, n], b_columns) = b.matrix("b")?;
    alike(("a", layout), ("b", of_b))?;
    if k != b_rows {
        return Err(CallError::Argument(format!(
            "a is {rows} x {k} and b {b_rows} x {n}; a has as many columns as b has rows"
        )));
    }
    Ok((layout, [rows, k, n], b_columns))
}

fn matmul_reduce_scatter(symbols: &'static Symbols, stack: &mut [u64; 4]) -> Outcome {
    let (communicator, world) = (stack[3], ranks(stack[2]));
    added_up(symbols, &mut stack[..2], Some(world), communicator)
}

fn matmul_all_reduce(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    let communicator = stack[2];
    added_up(symbols, &mut stack[..2], None, communicator)
}

/// A product that is added up over the ranks, and divided among them if `world` is there.
fn added_up(
    symbols: &'static Symbols,
    stack: &mut [u64],
    world: Option<Result<usize, CallError>>,
    communicator: u64,
) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (a, b) = unsafe { pair(symbols, stack[0], stack[1])? };
    let world = world.transpose()?;
    let (layout, [m, k, n], b_columns) = factors(&a, &b)?;
    let mut sizes = [m as i64, n as i64];
    if let Some(world) = world {
        *divisible(&mut sizes, world)? /= world as i64;
    }
    let c = a.empty_like(&sizes)?;
    let call = reduced_products::Call {
        reduction: match world {
            Some(_) => symmem::Reduction::Scatter,
            None => symmem::Reduction::All,
        },
        c: c.destination()?,
        a: a.source()?,
        b: b.source()?,
        m,
        n,
        k,
        b_columns,
        element: layout.element,
        world,
        target: target_of(symbols, layout, communicator)?,
    };
    // SAFETY: the tensors live during the call, and their memory as PyTorch's does.
    unsafe { reduced_products::enqueue(&call) }.map_err(CallError::Enqueue)?;
    stack[0] = c.into_stack();
    Ok(())
}

fn all_gather_matmul(symbols: &'static Symbols, stack: &mut [u64; 4]) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (a, b) = unsafe { pair(symbols, stack[0], stack[1])? };
    let (layout, [rows, k, n], b_columns) = factors(&a, &b)?;
    let world = ranks(stack[2])?;
    let sizes = [rows.saturating_mul(world) as i64, n as i64];
    let c = a.empty_like(&sizes)?;
    let call = products::Call {
        c: c.destination()?,
        a: a.source()?,
        b: b.source()?,
        rows,
        n,
        k,
        b_columns,
        element: layout.element,
        world,
        target: target_of(symbols, layout, stack[3])?,
    };
    // SAFETY: the tensors live during the call, and their memory as PyTorch's does.
    unsafe { products::enqueue(&call) }.map_err(CallError::Enqueue)?;
    stack[0] = c.into_stack();
    Ok(())
}

fn all_gather_out(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (input, output) = unsafe { pair(symbols, stack[0], stack[1])? };
    let (source, destination) = layouts(&input, &output)?;
    let world = ratio("output", destination.count, "input", source.count)?;
    submit(
        symbols,
        Kind::AllGather,
        &input,
        &output,
        source,
        source.count,
        world,
        0,
        stack[2],
    )
}

fn reduce_scatter_out(symbols: &'static Symbols, stack: &mut [u64; 4]) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (input, output) = unsafe { pair(symbols, stack[0], stack[1])? };
    let (source, destination) = layouts(&input, &output)?;
    let world = ratio("input", source.count, "output", destination.count)?;
    let op = stack[2] as i64;
    submit(
        symbols,
        Kind::ReduceScatter,
        &input,
        &output,
        source,
        destination.count,
        world,
        op,
        stack[3],
    )
}

fn all_to_all_out(symbols: &'static Symbols, stack: &mut [u64; 3]) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (input, output) = unsafe { pair(symbols, stack[0], stack[1])? };
    let (source, destination) = layouts(&input, &output)?;
    if source.count != destination.count {
        let message = format!(
            "input has {} elements, but output has {}",
            source.count, destination.count
        );
        return Err(CallError::Argument(message));
    }
    submit(
        symbols,
        Kind::AllToAll,
        &input,
        &output,
        source,
        source.count,
        None,
        0,
        stack[2],
    )
}

/// Hands the collective over.
#[inline]
#[expect(
    clippy::too_many_arguments,
    reason = "each operator knows a different part"
)]
fn submit(
    symbols: &Symbols,
    kind: Kind,
    input: &Tensor,
    output: &Tensor,
    layout: Layout,
    count: usize,
    world: Option<usize>,
    op: i64,
    communicator: u64,
) -> Outcome {
    // First the address to write: it may give a lazily cloned tensor new memory, and both may be the same tensor.
    let destination = output.destination()?;
    let source = if ptr::eq(input, output) {
        destination
    } else {
        input.source()?
    };
    let target = target_of(symbols, layout, communicator)?;
    let call = Call {
        kind,
        destination,
        source,
        count,
        world,
        element: layout.element,
        op,
        target,
    };
    // SAFETY: the tensors live during the call, and their memory as PyTorch's does.
    unsafe { enqueue(&call) }.map_err(CallError::Enqueue)
}
