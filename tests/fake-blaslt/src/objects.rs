//! The objects that a program holds: instances, and descriptions of matrices, operations and preferences.

use crate::broken;
use crate::numbers::{Numbers, Result};
use fake_library::{at_exit, current_context, waits_for_all};
use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, Once, PoisonError};

/// A column-major matrix.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Layout {
    pub element: c_int,
    pub rows: u64,
    pub columns: u64,
    pub stride: u64,
}

/// An operation.
#[derive(Clone, Copy, Debug)]
pub struct Operation {
    pub transposes_first: bool,
    pub has_bias: bool,
    pub bias: u64,
    pub bias_element: Option<c_int>,
    /// The address of the factor of the first matrix; 0 for 1.
    pub scale: u64,
}

/// What the program asks of the heuristic.
#[derive(Clone, Copy, Debug)]
pub struct Preference {
    pub most_workspace: u64,
    /// Alignment of each matrix in bytes.
    pub alignments: [u32; 4],
    pub partial_sums: u32,
}

#[derive(Clone, Copy, Debug)]
pub enum Object {
    /// A library handle, with the context that was current when it was created.
    Instance(u64),
    Layout(Layout),
    Operation(Operation),
    Preference(Preference),
}

static LIVE: Mutex<BTreeMap<u64, Object>> = Mutex::new(BTreeMap::new());
/// Handles are numbers that are not addresses.
static NEXT: AtomicU64 = AtomicU64::new(0x424c_0000);

fn live() -> MutexGuard<'static, BTreeMap<u64, Object>> {
    LIVE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Keeps an object and writes its handle to `place`.
fn keep(numbers: &Numbers, place: *mut u64, object: Object) -> Result {
    report_at_exit();
    if place.is_null() {
        return Err(numbers.invalid);
    }
    let handle = NEXT.fetch_add(16, Ordering::Relaxed);
    // SAFETY: the caller promises that `place` is writable.
    unsafe { place.write(handle) };
    live().insert(handle, object);
    Ok(())
}

/// Returns the object of a handle.
pub fn find(numbers: &Numbers, handle: u64) -> Result<Object> {
    let found = live().get(&handle).copied();
    found.ok_or_else(|| {
        broken(
            numbers,
            "an object is used that was destroyed or never created",
        )
    })
}

macro_rules! finders {
    ($($name:ident = $kind:ident($type:ty);)*) => {$(
        /// Returns the object of a handle, if it is of this kind.
        pub fn $name(numbers: &Numbers, handle: u64) -> Result<$type> {
            match find(numbers, handle)? {
                Object::$kind(found) => Ok(found),
                other => Err(broken(numbers, &format!("{other:?} is used as a {}", stringify!($name)))),
            }
        }
    )*};
}

finders! {
    instance = Instance(u64);
    layout = Layout(Layout);
    operation = Operation(Operation);
    preference = Preference(Preference);
}

/// Removes an object of the kind that `is` accepts.
fn forget(numbers: &Numbers, handle: u64, is: fn(&Object) -> bool) -> Result {
    if !is(&find(numbers, handle)?) {
        return Err(broken(
            numbers,
            "an object is destroyed as another kind of object",
        ));
    }
    live().remove(&handle);
    Ok(())
}

pub fn create(numbers: &Numbers, place: *mut u64) -> Result {
    let context = current_context().map_err(|_| numbers.failed)?;
    // Creating an instance allocates device memory.
    waits_for_all("creating a handle");
    keep(numbers, place, Object::Instance(context))
}

pub fn destroy(numbers: &Numbers, handle: u64) -> Result {
    let context = instance(numbers, handle)?;
    if current_context() != Ok(context) {
        return Err(broken(
            numbers,
            "a handle is destroyed on a device other than its own",
        ));
    }
    waits_for_all("destroying a handle");
    forget(numbers, handle, |object| {
        matches!(object, Object::Instance(_))
    })
}

pub fn create_layout(numbers: &Numbers, place: *mut u64, layout: Layout) -> Result {
    let Layout {
        element,
        rows,
        columns,
        stride,
    } = layout;
    let known = [numbers.f16, numbers.bf16, numbers.f32, numbers.f8_e4m3].contains(&element);
    if !known || rows == 0 || columns == 0 || stride < rows {
        return Err(broken(numbers, &format!("invalid matrix: {layout:?}")));
    }
    keep(numbers, place, Object::Layout(layout))
}

pub fn destroy_layout(numbers: &Numbers, handle: u64) -> Result {
    forget(numbers, handle, |object| {
        matches!(object, Object::Layout(_))
    })
}

pub fn create_operation(
    numbers: &Numbers,
    place: *mut u64,
    compute: c_int,
    scale: c_int,
) -> Result {
    if compute != numbers.compute_f32 || scale != numbers.f32 {
        let what = format!("compute type {compute} or scale type {scale} is not supported");
        return Err(broken(numbers, &what));
    }
    let operation = Operation {
        transposes_first: false,
        has_bias: false,
        bias: 0,
        bias_element: None,
        scale: 0,
    };
    keep(numbers, place, Object::Operation(operation))
}

pub fn destroy_operation(numbers: &Numbers, handle: u64) -> Result {
    forget(numbers, handle, |object| {
        matches!(object, Object::Operation(_))
    })
}

/// Reads an attribute's value, whose size must be that of its type.
///
/// # Safety
/// `value` is readable for `bytes`.
unsafe fn value<T: Copy>(numbers: &Numbers, value: *const c_void, bytes: usize) -> Result<T> {
    if value.is_null() || bytes != size_of::<T>() {
        let what = format!(
            "an attribute of {} bytes is set with {bytes} bytes",
            size_of::<T>()
        );
        return Err(broken(numbers, &what));
    }
    // SAFETY: the caller promises `bytes` readable bytes, `bytes` is the type's size, and the value need not be
    // aligned.
    Ok(unsafe { value.cast::<T>().read_unaligned() })
}

/// # Safety
/// As [`value`].
pub unsafe fn set_operation(
    numbers: &Numbers,
    handle: u64,
    attribute: c_int,
    pointer: *const c_void,
    bytes: usize,
) -> Result {
    let mut changed = operation(numbers, handle)?;
    // SAFETY: the caller promises what `value` asks for; this holds for all calls below.
    let number = || unsafe { value::<c_int>(numbers, pointer, bytes) };
    if attribute == numbers.transpose_first || attribute == numbers.transpose_second {
        let transposes = match number()? {
            which if which == numbers.plain => false,
            which if which == numbers.transposed => true,
            _ => return Err(broken(numbers, "an invalid transposition")),
        };
        if attribute == numbers.transpose_first {
            changed.transposes_first = transposes;
        } else if transposes {
            // The library could do this; symmem never asks for it.
            return Err(numbers.unsupported);
        }
    } else if attribute == numbers.epilogue {
        // SAFETY: the caller promises what `value` asks for.
        changed.has_bias = match unsafe { value::<u32>(numbers, pointer, bytes) }? {
            which if which == numbers.epilogue_plain => false,
            which if which == numbers.epilogue_bias => true,
            _ => {
                return Err(broken(
                    numbers,
                    "an epilogue that is invalid or missing in the fake",
                ));
            }
        };
    } else if attribute == numbers.bias_pointer {
        // SAFETY: the caller promises what `value` asks for.
        changed.bias = unsafe { value::<u64>(numbers, pointer, bytes) }?;
    } else if attribute == numbers.scale_of_first {
        // SAFETY: the caller promises what `value` asks for.
        changed.scale = unsafe { value::<u64>(numbers, pointer, bytes) }?;
    } else if attribute == numbers.bias_element {
        changed.bias_element = Some(number()?);
    } else {
        return Err(broken(
            numbers,
            &format!("unknown attribute {attribute} of an operation"),
        ));
    }
    live().insert(handle, Object::Operation(changed));
    Ok(())
}

pub fn create_preference(numbers: &Numbers, place: *mut u64) -> Result {
    let preference = Preference {
        most_workspace: 0,
        alignments: [256; 4],
        partial_sums: u32::MAX,
    };
    keep(numbers, place, Object::Preference(preference))
}

pub fn destroy_preference(numbers: &Numbers, handle: u64) -> Result {
    forget(numbers, handle, |object| {
        matches!(object, Object::Preference(_))
    })
}

/// # Safety
/// As [`value`].
pub unsafe fn set_preference(
    numbers: &Numbers,
    handle: u64,
    attribute: c_int,
    pointer: *const c_void,
    bytes: usize,
) -> Result {
    let mut changed = preference(numbers, handle)?;
    let matrices = numbers.alignments.unwrap_or([-1; 4]);
    if attribute == numbers.most_workspace {
        // SAFETY: the caller promises what `value` asks for.
        changed.most_workspace = unsafe { value::<u64>(numbers, pointer, bytes) }?;
    } else if let Some(which) = matrices.iter().position(|&number| number == attribute) {
        // SAFETY: the caller promises what `value` asks for.
        let alignment = unsafe { value::<u32>(numbers, pointer, bytes) }?;
        if !alignment.is_power_of_two() {
            return Err(broken(numbers, "an alignment that is not a power of two"));
        }
        changed.alignments[which] = alignment;
    } else if numbers
        .partial_sums
        .is_some_and(|(number, _)| number == attribute)
    {
        // SAFETY: the caller promises what `value` asks for.
        changed.partial_sums = unsafe { value::<u32>(numbers, pointer, bytes) }?;
    } else {
        return Err(broken(
            numbers,
            &format!("unknown attribute {attribute} of a preference"),
        ));
    }
    live().insert(handle, Object::Preference(changed));
    Ok(())
}

/// Reports objects that were never destroyed when the process exits.
fn report_at_exit() {
    static ONCE: Once = Once::new();
    extern "C" fn report() {
        let left = live();
        if !left.is_empty() {
            let kinds: Vec<_> = left.values().map(|object| format!("{object:?}")).collect();
            fake_library::violation(&format!(
                "{} cuBLASLt or hipBLASLt objects were never destroyed: {}",
                left.len(),
                kinds.join(", ")
            ));
        }
    }
    ONCE.call_once(|| at_exit(report));
}
