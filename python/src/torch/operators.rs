//! The implementations of the operators, for host memory and for GPUs.
//!
//! PyTorch gives an operator a stack of 64-bit values. Integers are on it as they are. A tensor is a reference that the
//! operator owns: it must give it back or return it. Results go to the start of the stack, and PyTorch owns them from
//! then on; it takes nothing from the stack of an operator that throws.

use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::call::{Call, DeviceType, Kind, Target, enqueue};
use super::error::CallError;
use super::norm;
use super::products;
use super::raise;
use super::symbols::{self, SUCCESS, Symbols};
use super::tensor::{Layout, Tensor};

type Outcome = Result<(), CallError>;

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
    /// `all_reduce_rms_norm(Tensor input, Tensor residual, Tensor weight, float epsilon, float weight_offset,
    /// int communicator) -> (Tensor, Tensor)`
    all_reduce_rms_norm_kernel = "all_reduce_rms_norm", 2 results, all_reduce_rms_norm;
    /// `all_reduce_rms_norm_(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float epsilon, float weight_offset,
    /// int communicator) -> ()`
    all_reduce_rms_norm_in_place_kernel = "all_reduce_rms_norm_", 0 results, all_reduce_rms_norm_in_place;
    /// `all_gather_out(Tensor input, Tensor(a!) output, int communicator) -> ()`
    all_gather_out_kernel = "all_gather_out", 0 results, all_gather_out;
    /// `reduce_scatter_out(Tensor input, Tensor(a!) output, int op, int communicator) -> ()`
    reduce_scatter_out_kernel = "reduce_scatter_out", 0 results, reduce_scatter_out;
    /// `all_to_all_single_out(Tensor input, Tensor(a!) output, int communicator) -> ()`
    all_to_all_out_kernel = "all_to_all_single_out", 0 results, all_to_all_out;
}

/// Runs an operator. It drops all it owns before it returns, and returns null or the text of the error to throw.
///
/// # Safety
///
/// `stack` must have `inputs` values, and tensors among them must be references that nobody else uses.
#[inline]
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

fn all_gather_matmul(symbols: &'static Symbols, stack: &mut [u64; 4]) -> Outcome {
    // SAFETY: the schema's first two arguments are tensors.
    let (a, b) = unsafe { pair(symbols, stack[0], stack[1])? };
    let layout = a.layout("a")?;
    let (_, [rows, k], _) = a.matrix("a")?;
    let (of_b, [b_rows, n], b_columns) = b.matrix("b")?;
    alike(("a", layout), ("b", of_b))?;
    if k != b_rows {
        return Err(CallError::Argument(format!(
            "a is {rows} x {k} and b {b_rows} x {n}; a has as many columns as b has rows"
        )));
    }
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

fn all_reduce_rms_norm(symbols: &'static Symbols, stack: &mut [u64; 6]) -> Outcome {
    // SAFETY: the schema's first three arguments are tensors.
    let rows = unsafe { Rows::from_stack(symbols, stack)? };
    let output = rows.input.empty_like(rows.input.sizes()?)?;
    let sums = rows.residual.empty_like(rows.input.sizes()?)?;
    rows.submit(symbols, &output, &sums, stack)?;
    stack[0] = output.into_stack();
    stack[1] = sums.into_stack();
    Ok(())
}

fn all_reduce_rms_norm_in_place(symbols: &'static Symbols, stack: &mut [u64; 6]) -> Outcome {
    // SAFETY: the schema's first three arguments are tensors.
    let rows = unsafe { Rows::from_stack(symbols, stack)? };
    rows.submit(symbols, &rows.input, &rows.residual, stack)
}

/// Rows to sum and normalise.
struct Rows {
    input: Tensor,
    residual: Tensor,
    weight: Tensor,
    layout: Layout,
    /// Elements of a row.
    hidden: usize,
}

impl Rows {
    /// Takes the tensors over, and checks that they fit together.
    ///
    /// # Safety
    ///
    /// As for [`Tensor::from_stack`], for the first three values.
    unsafe fn from_stack(symbols: &'static Symbols, stack: &[u64; 6]) -> Result<Self, CallError> {
        // SAFETY: the caller vouches for all three, which are owned before any can fail.
        let (both, weight) = unsafe {
            let both = pair(symbols, stack[0], stack[1]);
            (both, Tensor::from_stack(stack[2], symbols))
        };
        let ((input, residual), weight) = (both?, weight?);
        let layout = input.layout("input")?;
        let (of_residual, of_weight) = (residual.layout("residual")?, weight.layout("weight")?);
        alike(("input", layout), ("residual", of_residual))?;
        alike(("input", layout), ("weight", of_weight))?;
        let (sizes, others) = (input.sizes()?, residual.sizes()?);
        if sizes != others {
            return Err(CallError::Argument(format!(
                "input is {sizes:?} and residual {others:?}; pass tensors of the same sizes"
            )));
        }
        let hidden = of_weight.count;
        if sizes.last() != Some(&(hidden as i64)) || hidden == 0 {
            return Err(CallError::Argument(format!(
                "input is {sizes:?} and weight has {hidden} elements; its rows must have as many"
            )));
        }
        Ok(Self {
            input,
            residual,
            weight,
            layout,
            hidden,
        })
    }

    /// Hands the call over.
    fn submit(
        &self,
        symbols: &Symbols,
        output: &Tensor,
        sums: &Tensor,
        stack: &[u64; 6],
    ) -> Outcome {
        let layout = self.layout;
        // First the addresses to write: see `submit` below.
        let (output, sums) = (output.destination()?, sums.destination()?);
        let call = norm::Call {
            output,
            input: self.input.source()?,
            residual: self.residual.source()?,
            residual_out: sums,
            weight: self.weight.source()?,
            count: layout.count,
            hidden: self.hidden,
            epsilon: f64::from_bits(stack[3]),
            weight_offset: f64::from_bits(stack[4]),
            element: layout.element,
            target: target_of(symbols, layout, stack[5])?,
        };
        // SAFETY: the tensors live during the call, and their memory as PyTorch's does.
        unsafe { norm::enqueue(&call) }.map_err(CallError::Enqueue)
    }
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

/// Where the work on a tensor of this layout goes, by the stack's value of the communicator.
fn target_of(symbols: &Symbols, layout: Layout, communicator: u64) -> Result<Target, CallError> {
    Ok(Target {
        communicator: communicator as i64,
        device_type: layout.device_type,
        device_index: layout.device_index,
        stream: match layout.device_type {
            DeviceType::Cpu => 0,
            DeviceType::Cuda => current_stream(symbols, layout.device_index)?,
        },
    })
}

/// PyTorch's current stream for a GPU, on this thread.
fn current_stream(symbols: &Symbols, device: i32) -> Result<u64, CallError> {
    let Some(function) = symbols.current_stream else {
        let message = "this extension was loaded without PyTorch's GPU library".to_owned();
        return Err(CallError::Argument(message));
    };
    let mut stream = ptr::null_mut();
    // SAFETY: the function writes one pointer.
    match unsafe { function(device, &mut stream) } {
        SUCCESS => Ok(stream.expose_provenance() as u64),
        _ => Err(symbols.failed("aoti_torch_get_current_cuda_stream")),
    }
}

/// Takes two tensors over. Both are owned before either can fail.
///
/// # Safety
///
/// As for [`Tensor::from_stack`].
unsafe fn pair(
    symbols: &'static Symbols,
    input: u64,
    output: u64,
) -> Result<(Tensor, Tensor), CallError> {
    // SAFETY: the caller vouches for both.
    let (input, output) = unsafe {
        (
            Tensor::from_stack(input, symbols),
            Tensor::from_stack(output, symbols),
        )
    };
    Ok((input?, output?))
}

/// The layouts of two tensors that must have the same element type and device.
fn layouts(input: &Tensor, output: &Tensor) -> Result<(Layout, Layout), CallError> {
    let (source, destination) = (input.layout("input")?, output.layout("output")?);
    alike(("input", source), ("output", destination))?;
    Ok((source, destination))
}

/// Checks that two tensors, by their names, have the same element type and device.
fn alike((one, source): (&str, Layout), (other, destination): (&str, Layout)) -> Outcome {
    if source.element != destination.element {
        let message = format!(
            "{one} has elements of {:?}, but {other} of {:?}",
            source.element, destination.element
        );
        return Err(CallError::ElementType(message));
    }
    if (source.device_type, source.device_index)
        != (destination.device_type, destination.device_index)
    {
        return Err(CallError::Argument(format!(
            "{one} and {other} are on different devices"
        )));
    }
    Ok(())
}

/// The number of ranks that an argument gives.
fn ranks(value: u64) -> Result<usize, CallError> {
    match usize::try_from(value as i64) {
        Ok(world) if world > 0 => Ok(world),
        _ => Err(CallError::Argument(format!(
            "world is {}; it must be the number of ranks",
            value as i64
        ))),
    }
}

/// The first dimension, which must split into one equal part for each rank.
fn divisible(sizes: &mut [i64], world: usize) -> Result<&mut i64, CallError> {
    match sizes.first_mut() {
        Some(first) if *first % world as i64 == 0 => Ok(first),
        Some(first) => {
            let message = format!(
                "input's first dimension, {first}, does not split into {world} equal parts"
            );
            Err(CallError::Argument(message))
        }
        None => Err(CallError::Argument(
            "input has no dimension to split".to_owned(),
        )),
    }
}

/// How often the small tensor fits into the large one; `None` where both are empty.
fn ratio(
    large: &str,
    elements: usize,
    small: &str,
    part: usize,
) -> Result<Option<usize>, CallError> {
    match elements.checked_rem(part) {
        Some(0) if elements > 0 => Ok(Some(elements / part)),
        None if elements == 0 => Ok(None),
        _ => {
            let message = format!(
                "{large} has {elements} elements, which is no multiple of {small}'s {part}"
            );
            Err(CallError::Argument(message))
        }
    }
}
