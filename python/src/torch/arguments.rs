//! What operators have in common: what their arguments must be, and where their work goes.

use super::call::{DeviceType, Target};
use super::error::CallError;
use super::symbols::{SUCCESS, Symbols};
use super::tensor::{Layout, Tensor};
use std::ptr;

/// How an operator's work ends.
pub type Outcome = Result<(), CallError>;

/// Where the work on a tensor of this layout goes, by the stack's value of the communicator.
pub fn target_of(
    symbols: &Symbols,
    layout: Layout,
    communicator: u64,
) -> Result<Target, CallError> {
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
pub unsafe fn pair(
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
pub fn layouts(input: &Tensor, output: &Tensor) -> Result<(Layout, Layout), CallError> {
    let (source, destination) = (input.layout("input")?, output.layout("output")?);
    alike(("input", source), ("output", destination))?;
    Ok((source, destination))
}

/// Checks that two tensors, by their names, have the same element type and device.
pub fn alike((one, source): (&str, Layout), (other, destination): (&str, Layout)) -> Outcome {
    if source.element != destination.element {
        let message = format!(
            "{one} has elements of {:?}, but {other} of {:?}",
            source.element, destination.element
        );
        return Err(CallError::ElementType(message));
    }
    same_device((one, source), (other, destination))
}

/// Checks that two tensors, by their names, are on the same device.
pub fn same_device((one, source): (&str, Layout), (other, destination): (&str, Layout)) -> Outcome {
    let place = |layout: Layout| (layout.device_type, layout.device_index);
    match place(source) == place(destination) {
        true => Ok(()),
        false => Err(CallError::Argument(format!(
            "{one} and {other} are on different devices"
        ))),
    }
}

/// The number of ranks that an argument gives.
pub fn ranks(value: u64) -> Result<usize, CallError> {
    match usize::try_from(value as i64) {
        Ok(world) if world > 0 => Ok(world),
        _ => Err(CallError::Argument(format!(
            "world is {}; it must be the number of ranks",
            value as i64
        ))),
    }
}

/// The first dimension, which must split into one equal part for each rank.
pub fn divisible(sizes: &mut [i64], world: usize) -> Result<&mut i64, CallError> {
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
pub fn ratio(
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
