//! A tensor that PyTorch handed over, or that was allocated here.

use std::ptr::{self, NonNull};

use super::call::DeviceType;
use super::error::CallError;
use super::symbols::{AtenTensor, SUCCESS, Symbols};
use symmem::ElementType;

/// One reference to a tensor; dropping it gives the reference back.
pub struct Tensor {
    handle: NonNull<AtenTensor>,
    symbols: &'static Symbols,
}

/// What a collective needs to know of a tensor.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Layout {
    /// Number of elements.
    pub count: usize,
    /// Type of one element.
    pub element: ElementType,
    /// Kind of device.
    pub device_type: DeviceType,
    /// Index of the device; -1 for host memory.
    pub device_index: i32,
}

impl Tensor {
    /// Takes over a reference that PyTorch put on an operator's stack.
    ///
    /// # Safety
    ///
    /// `value` must be the stack's value of a tensor argument, and nobody else may use or free it.
    pub unsafe fn from_stack(value: u64, symbols: &'static Symbols) -> Result<Self, CallError> {
        match NonNull::new(ptr::with_exposed_provenance_mut(value as usize)) {
            Some(handle) => Ok(Self { handle, symbols }),
            None => Err(CallError::Argument(
                "a tensor argument is missing".to_owned(),
            )),
        }
    }

    /// Hands the reference over, as an operator's result.
    pub fn into_stack(self) -> u64 {
        let value = self.handle.as_ptr().expose_provenance() as u64;
        std::mem::forget(self);
        value
    }

    /// Reads what a collective needs of a contiguous tensor. `name` is the argument's name, for errors.
    pub fn layout(&self, name: &str) -> Result<Layout, CallError> {
        if !self.is_contiguous()? {
            return Err(CallError::Argument(format!(
                "{name} is not contiguous; pass {name}.contiguous()"
            )));
        }
        self.layout_of_any(name)
    }

    /// Reads what a collective needs, and whether a matrix is stored by columns: the transpose of a contiguous tensor.
    pub fn matrix(&self, name: &str) -> Result<(Layout, [usize; 2], bool), CallError> {
        let &[rows, columns] = self.sizes()? else {
            let dimensions = self.sizes()?.len();
            return Err(CallError::Argument(format!(
                "{name} has {dimensions} dimensions; pass a matrix"
            )));
        };
        let by_rows = self.is_contiguous()?;
        if !by_rows && self.strides()? != [1, rows] {
            return Err(CallError::Argument(format!(
                "{name} is neither contiguous nor the transpose of a contiguous tensor"
            )));
        }
        let sizes = [unsigned(rows)?, unsigned(columns)?];
        Ok((self.layout_of_any(name)?, sizes, !by_rows))
    }

    fn is_contiguous(&self) -> Result<bool, CallError> {
        let function = self.symbols.is_contiguous;
        self.read("aoti_torch_is_contiguous", function, false)
    }

    fn layout_of_any(&self, name: &str) -> Result<Layout, CallError> {
        let symbols = self.symbols;
        let code = self.read("aoti_torch_get_dtype", symbols.element_type, 0)?;
        let Some(element) = symbols.element(code) else {
            return Err(CallError::ElementType(format!(
                "{name} has an element type that no collective works on (PyTorch's code {code})"
            )));
        };
        let device = self.read("aoti_torch_get_device_type", symbols.device_type, 0)?;
        let device_type = if device == symbols.cuda {
            DeviceType::Cuda
        } else if device == symbols.cpu {
            DeviceType::Cpu
        } else {
            return Err(CallError::Argument(format!(
                "{name} is on a device of unknown type {device}"
            )));
        };
        let device_index = match device_type {
            DeviceType::Cuda => {
                self.read("aoti_torch_get_device_index", symbols.device_index, 0)?
            }
            DeviceType::Cpu => -1,
        };
        let count = self.read("aoti_torch_get_numel", symbols.elements_of, 0)?;
        Ok(Layout {
            count: unsigned(count)?,
            element,
            device_type,
            device_index,
        })
    }

    /// The sizes of all dimensions.
    pub fn sizes(&self) -> Result<&[i64], CallError> {
        self.of_dimensions("aoti_torch_get_sizes", self.symbols.sizes)
    }

    /// The strides of all dimensions, in elements.
    fn strides(&self) -> Result<&[i64], CallError> {
        self.of_dimensions("aoti_torch_get_strides", self.symbols.strides)
    }

    /// What a function gives for each dimension: sizes or strides.
    fn of_dimensions(
        &self,
        name: &'static str,
        function: unsafe extern "C" fn(NonNull<AtenTensor>, *mut *const i64) -> i32,
    ) -> Result<&[i64], CallError> {
        let count = unsigned(self.read("aoti_torch_get_dim", self.symbols.dimensions, 0)?)?;
        let first = self.read(name, function, ptr::null())?;
        if count == 0 || first.is_null() {
            return Ok(&[]);
        }
        // SAFETY: PyTorch keeps as many numbers at that address while the tensor lives and is not resized; only the
        // thread that runs the operator may resize it, and that thread is here.
        Ok(unsafe { std::slice::from_raw_parts(first, count) })
    }

    /// Address of the first element, to read; null where there is none.
    pub fn source(&self) -> Result<u64, CallError> {
        let address = self.read(
            "torch_get_const_data_ptr",
            self.symbols.address,
            ptr::null(),
        )?;
        Ok(address.expose_provenance() as u64)
    }

    /// Address of the first element, to write; null where there is none.
    pub fn destination(&self) -> Result<u64, CallError> {
        let address = self.read(
            "torch_get_mutable_data_ptr",
            self.symbols.address_mut,
            ptr::null_mut(),
        )?;
        Ok(address.expose_provenance() as u64)
    }

    /// A new tensor with these sizes, contiguous, and this tensor's element type and device. Its elements have no
    /// defined value.
    pub fn empty_like(&self, sizes: &[i64]) -> Result<Self, CallError> {
        let symbols = self.symbols;
        let mut strides = vec![1; sizes.len()];
        for i in (1..sizes.len()).rev() {
            strides[i - 1] = sizes[i].max(1).saturating_mul(strides[i]);
        }
        let element = self.read("aoti_torch_get_dtype", symbols.element_type, 0)?;
        let device = self.read("aoti_torch_get_device_type", symbols.device_type, 0)?;
        let index = self.read("aoti_torch_get_device_index", symbols.device_index, 0)?;
        let mut handle = ptr::null_mut();
        // SAFETY: `sizes` and `strides` have the length that is passed, and the function only reads them.
        let status = unsafe {
            (symbols.empty)(
                sizes.len() as i64,
                sizes.as_ptr(),
                strides.as_ptr(),
                element,
                device,
                index,
                &mut handle,
            )
        };
        match NonNull::new(handle) {
            Some(handle) if status == SUCCESS => Ok(Self { handle, symbols }),
            _ => Err(symbols.failed("aoti_torch_empty_strided")),
        }
    }

    /// Calls one of the functions that read a property.
    #[inline]
    fn read<T>(
        &self,
        name: &'static str,
        function: unsafe extern "C" fn(NonNull<AtenTensor>, *mut T) -> i32,
        initial: T,
    ) -> Result<T, CallError> {
        let mut value = initial;
        // SAFETY: the handle is a live reference, and `value` has the type that the function writes.
        match unsafe { function(self.handle, &mut value) } {
            SUCCESS => Ok(value),
            _ => Err(self.symbols.failed(name)),
        }
    }
}

impl Drop for Tensor {
    fn drop(&mut self) {
        // SAFETY: the reference is this value's own, and it is not used again. The function fails only on null.
        unsafe { (self.symbols.tensor_delete)(self.handle) };
    }
}

/// A count that PyTorch gives as a signed number.
fn unsigned(count: i64) -> Result<usize, CallError> {
    usize::try_from(count)
        .map_err(|_| CallError::Argument(format!("a tensor has {count} elements or dimensions")))
}
