//! The functions of cuBLASLt or hipBLASLt, as a table that is filled once.
//!
//! Both libraries have the same functions, each with its own prefix, so the symbol's name is prefix plus name.

use crate::library::Library;
use std::ffi::{c_int, c_void};

/// Status code of a function; 0 is success.
pub type Code = c_int;
/// An object of the library: a handle, a description of an operation or a matrix, a preference.
pub type Object = *mut c_void;

/// Declares the table and `Table::load`.
macro_rules! functions {
    ($( $(#[$doc:meta])* $field:ident = $name:literal ($($argument:ident: $type:ty),* $(,)?); )*) => {
        /// The library's functions.
        pub struct Table {
            $( $(#[$doc])* pub $field: unsafe extern "C" fn($($argument: $type),*) -> Code, )*
        }

        impl Table {
            /// Looks up every function.
            ///
            /// # Errors
            /// The name of a missing function.
            ///
            /// # Safety
            /// The library is cuBLASLt or hipBLASLt, or has functions of the same signatures and behavior.
            pub unsafe fn load(library: &Library, prefix: &str) -> Result<Self, String> {
                Ok(Self {
                    $( $field: {
                        let address = find(library, prefix, $name)?;
                        // SAFETY: the caller says that the library is the vendor's, whose function of this name
                        // has this signature in all versions.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($type),*) -> Code,
                            >(address)
                        }
                    }, )*
                })
            }
        }
    };
}

/// Returns the address of a function.
///
/// # Errors
/// The function's name, if the library lacks it.
pub fn find(library: &Library, prefix: &str, name: &str) -> Result<*mut c_void, String> {
    let address = library.symbol_named(&format!("{prefix}{name}\0"));
    address.ok_or_else(|| format!("{prefix}{name}"))
}

functions! {
    /// Creates a handle on the current device.
    create = "Create"(instance: *mut Object);
    /// Destroys a handle; waits for the device.
    destroy = "Destroy"(instance: Object);
    /// Creates a column-major matrix layout.
    layout_create = "MatrixLayoutCreate"(
        layout: *mut Object, element: c_int, rows: u64, columns: u64, stride: i64
    );
    /// Destroys a layout.
    layout_destroy = "MatrixLayoutDestroy"(layout: Object);
    /// Creates the description of an operation.
    operation_create = "MatmulDescCreate"(operation: *mut Object, compute: c_int, scale: c_int);
    /// Destroys the description.
    operation_destroy = "MatmulDescDestroy"(operation: Object);
    /// Sets an attribute of the description.
    operation_set = "MatmulDescSetAttribute"(
        operation: Object, attribute: c_int, value: *const c_void, bytes: usize
    );
    /// Creates a preference: constraints on the heuristic's candidates.
    preference_create = "MatmulPreferenceCreate"(preference: *mut Object);
    /// Destroys a preference.
    preference_destroy = "MatmulPreferenceDestroy"(preference: Object);
    /// Sets an attribute of a preference.
    preference_set = "MatmulPreferenceSetAttribute"(
        preference: Object, attribute: c_int, value: *const c_void, bytes: usize
    );
    /// Returns heuristic candidates, the best guess first.
    heuristic = "MatmulAlgoGetHeuristic"(
        instance: Object, operation: Object,
        a: Object, b: Object, c: Object, d: Object,
        preference: Object, wanted: c_int, found: *mut c_void, count: *mut c_int
    );
    /// Enqueues D = alpha · A · B + beta · C.
    multiply = "Matmul"(
        instance: Object, operation: Object,
        alpha: *const c_void,
        a: *const c_void, a_layout: Object,
        b: *const c_void, b_layout: Object,
        beta: *const c_void,
        c: *const c_void, c_layout: Object,
        d: *mut c_void, d_layout: Object,
        heuristic: *const c_void,
        workspace: *mut c_void, workspace_bytes: usize,
        stream: *mut c_void
    );
}
