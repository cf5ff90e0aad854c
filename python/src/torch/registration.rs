//! Registers the operators with PyTorch, once for a process.

use std::ffi::CStr;
use std::ptr::{self, NonNull};
use std::sync::{Mutex, PoisonError};

use super::error::LoadError;
use super::operators as op;
use super::symbols::{self, ABI_VERSION, Kernel, SUCCESS, Symbols, TorchLibrary};

const NAMESPACE: &CStr = c"symmem";

/// What PyTorch shows as the place of a registration.
const PLACE: &CStr = c"symmem";

/// The implementations work for these: host memory, and GPUs. AMD's builds of PyTorch use the key of CUDA too.
const KEYS: [&CStr; 2] = [c"CPU", c"CUDA"];

/// Name, schema and implementation. What changes its argument returns nothing: PyTorch's compiler refuses an operator
/// whose result is one of its arguments.
const OPERATORS: [(&CStr, &CStr, Kernel); 14] = [
    (
        c"all_reduce",
        c"all_reduce(Tensor input, int op, int communicator) -> Tensor",
        op::all_reduce_kernel,
    ),
    (
        c"all_reduce_",
        c"all_reduce_(Tensor(a!) tensor, int op, int communicator) -> ()",
        op::all_reduce_in_place_kernel,
    ),
    (
        c"all_gather",
        c"all_gather(Tensor input, int world, int communicator) -> Tensor",
        op::all_gather_kernel,
    ),
    (
        c"reduce_scatter",
        c"reduce_scatter(Tensor input, int op, int world, int communicator) -> Tensor",
        op::reduce_scatter_kernel,
    ),
    (
        c"all_to_all_single",
        c"all_to_all_single(Tensor input, int world, int communicator) -> Tensor",
        op::all_to_all_kernel,
    ),
    (
        c"all_gather_matmul",
        c"all_gather_matmul(Tensor a, Tensor b, int world, int communicator) -> Tensor",
        op::all_gather_matmul_kernel,
    ),
    (
        c"matmul_reduce_scatter",
        c"matmul_reduce_scatter(Tensor a, Tensor b, int world, int communicator) -> Tensor",
        op::matmul_reduce_scatter_kernel,
    ),
    (
        c"matmul_all_reduce",
        c"matmul_all_reduce(Tensor a, Tensor b, int communicator) -> Tensor",
        op::matmul_all_reduce_kernel,
    ),
    (
        c"all_reduce_rms_norm",
        c"all_reduce_rms_norm(Tensor input, Tensor residual, Tensor weight, float epsilon, float weight_offset, int communicator) -> (Tensor, Tensor)",
        op::all_reduce_rms_norm_kernel,
    ),
    (
        c"all_reduce_rms_norm_",
        c"all_reduce_rms_norm_(Tensor(a!) input, Tensor(b!) residual, Tensor weight, float epsilon, float weight_offset, int communicator) -> ()",
        op::all_reduce_rms_norm_in_place_kernel,
    ),
    (
        c"all_reduce_rms_norm_f8_",
        c"all_reduce_rms_norm_f8_(Tensor input, Tensor(a!) residual, Tensor weight, Tensor(b!) output, Tensor(c!) scales, int kind, float epsilon, float weight_offset, int communicator) -> ()",
        op::all_reduce_rms_norm_f8_kernel,
    ),
    (
        c"all_gather_out",
        c"all_gather_out(Tensor input, Tensor(a!) output, int communicator) -> ()",
        op::all_gather_out_kernel,
    ),
    (
        c"reduce_scatter_out",
        c"reduce_scatter_out(Tensor input, Tensor(a!) output, int op, int communicator) -> ()",
        op::reduce_scatter_out_kernel,
    ),
    (
        c"all_to_all_single_out",
        c"all_to_all_single_out(Tensor input, Tensor(a!) output, int communicator) -> ()",
        op::all_to_all_out_kernel,
    ),
];

static REGISTERED: Mutex<bool> = Mutex::new(false);

/// Looks PyTorch's functions up and registers the operators. A second call does nothing. The paths are those of the
/// libraries that Python has loaded.
pub fn register(cpu: &str, cuda: Option<&str>) -> Result<(), LoadError> {
    let mut registered = REGISTERED.lock().unwrap_or_else(PoisonError::into_inner);
    if *registered {
        return Ok(());
    }
    let symbols = symbols::load(cpu, cuda)?;
    let mut libraries = Vec::with_capacity(KEYS.len() + 1);
    let fragment = Library::fragment(symbols)?;
    for (name, schema, _) in OPERATORS {
        // SAFETY: the schema ends with NUL, and PyTorch copies it.
        let status = unsafe { (symbols.library_define)(fragment.handle, schema.as_ptr()) };
        accepted(status, "aoti_torch_library_def", name)?;
    }
    libraries.push(fragment);
    for key in KEYS {
        let library = Library::implementations(symbols, key)?;
        for (name, _, kernel) in OPERATORS {
            // SAFETY: the name ends with NUL, and the kernel stays in memory: nothing unloads this extension.
            let status = unsafe {
                (symbols.library_implement)(library.handle, name.as_ptr(), kernel, ABI_VERSION)
            };
            accepted(status, "torch_library_impl", name)?;
        }
        libraries.push(library);
    }
    // The operators stay for as long as the process lives.
    libraries.into_iter().for_each(std::mem::forget);
    *registered = true;
    Ok(())
}

/// A set of registrations. Dropping it undoes them.
struct Library {
    handle: NonNull<TorchLibrary>,
    symbols: &'static Symbols,
}

impl Library {
    fn fragment(symbols: &'static Symbols) -> Result<Self, LoadError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings end with NUL and live for the whole process.
        let status = unsafe {
            (symbols.library_fragment)(NAMESPACE.as_ptr(), PLACE.as_ptr(), 0, &mut handle)
        };
        Self::new(
            status,
            "aoti_torch_library_init_fragment",
            handle,
            NAMESPACE,
            symbols,
        )
    }

    fn implementations(symbols: &'static Symbols, key: &'static CStr) -> Result<Self, LoadError> {
        let mut handle = ptr::null_mut();
        // SAFETY: the strings end with NUL and live for the whole process.
        let status = unsafe {
            (symbols.library_implementations)(
                NAMESPACE.as_ptr(),
                key.as_ptr(),
                PLACE.as_ptr(),
                0,
                &mut handle,
            )
        };
        Self::new(status, "aoti_torch_library_init_impl", handle, key, symbols)
    }

    fn new(
        status: i32,
        function: &'static str,
        handle: *mut TorchLibrary,
        name: &CStr,
        symbols: &'static Symbols,
    ) -> Result<Self, LoadError> {
        accepted(status, function, name)?;
        match NonNull::new(handle) {
            Some(handle) => Ok(Self { handle, symbols }),
            None => Err(refused(function, name)),
        }
    }
}

impl Drop for Library {
    fn drop(&mut self) {
        // SAFETY: the handle is this value's own, and it is not used again.
        unsafe { (self.symbols.library_delete)(self.handle) };
    }
}

fn accepted(status: i32, function: &'static str, name: &CStr) -> Result<(), LoadError> {
    if status == SUCCESS {
        Ok(())
    } else {
        Err(refused(function, name))
    }
}

fn refused(function: &'static str, name: &CStr) -> LoadError {
    LoadError::Refused {
        function,
        name: format!("symmem::{}", name.to_string_lossy()),
    }
}
