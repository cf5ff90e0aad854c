//! The functions of a library of matrix products, as a table filled once.
//!
//! The vendors' libraries have the same functions behind a prefix each, so a name is put together here from
//! the prefix and what stands behind it.

use crate::library::Library;
use std::ffi::{c_int, c_void};

/// What a function returns; 0 is success.
pub type Code = c_int;
/// The library's own object: an instance, a description of an operation or of a matrix, a preference.
pub type Object = *mut c_void;

/// Declares the table, and how it is filled.
macro_rules! functions {
    ($( $(#[$doc:meta])* $field:ident = $name:literal ($($argument:ident: $type:ty),* $(,)?); )*) => {
        /// The library's functions.
        pub struct Table {
            $( $(#[$doc])* pub $field: unsafe extern "C" fn($($argument: $type),*) -> Code, )*
        }

        impl Table {
            /// Looks every function up.
            ///
            /// # Errors
            /// The name of the one that is missing.
            ///
            /// # Safety
            /// The library is the one whose functions these are, or behaves as it does.
            pub unsafe fn load(library: &Library, prefix: &str) -> Result<Self, String> {
                Ok(Self {
                    $( $field: {
                        let address = find(library, prefix, $name)?;
                        // SAFETY: by the caller's word the symbol is the library's function of this
                        // name, whose signature is the same in all versions of it.
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

/// The address of a function.
///
/// # Errors
/// Its name, where it is missing.
pub fn find(library: &Library, prefix: &str, name: &str) -> Result<*mut c_void, String> {
    let address = library.symbol_named(&format!("{prefix}{name}\0"));
    address.ok_or_else(|| format!("{prefix}{name}"))
}

functions! {
    /// Begins an instance on the current device.
    create = "Create"(instance: *mut Object);
    /// Ends it; waits for the device.
    destroy = "Destroy"(instance: Object);
    /// Describes a matrix, column-major.
    layout_create = "MatrixLayoutCreate"(
        layout: *mut Object, element: c_int, rows: u64, columns: u64, stride: i64
    );
    /// Gives it up.
    layout_destroy = "MatrixLayoutDestroy"(layout: Object);
    /// Describes an operation.
    operation_create = "MatmulDescCreate"(operation: *mut Object, compute: c_int, scale: c_int);
    /// Gives it up.
    operation_destroy = "MatmulDescDestroy"(operation: Object);
    /// Says more of it.
    operation_set = "MatmulDescSetAttribute"(
        operation: Object, attribute: c_int, value: *const c_void, bytes: usize
    );
    /// Begins a list of what is asked of ways to do it.
    preference_create = "MatmulPreferenceCreate"(preference: *mut Object);
    /// Gives it up.
    preference_destroy = "MatmulPreferenceDestroy"(preference: Object);
    /// Asks something.
    preference_set = "MatmulPreferenceSetAttribute"(
        preference: Object, attribute: c_int, value: *const c_void, bytes: usize
    );
    /// The ways that the library has, its best guess first.
    heuristic = "MatmulAlgoGetHeuristic"(
        instance: Object, operation: Object,
        a: Object, b: Object, c: Object, d: Object,
        preference: Object, wanted: c_int, found: *mut c_void, count: *mut c_int
    );
    /// D = alpha · A · B + beta · C, in stream order.
    multiply = "Matmul"(
        instance: Object, operation: Object,
        alpha: *const c_void,
        a: *const c_void, a_layout: Object,
        b: *const c_void, b_layout: Object,
        beta: *const c_void,
        c: *const c_void, c_layout: Object,
        d: *mut c_void, d_layout: Object,
        way: *const c_void,
        workspace: *mut c_void, workspace_bytes: usize,
        stream: *mut c_void
    );
}
