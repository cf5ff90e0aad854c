//! A macro that declares a shared library's functions as a table, filled once.

/// Declares a struct of a library's C functions, and how to load it.
///
/// Each function is a field under its exported name. An optional function is an [`Option`], and may have other
/// spellings, which are tried in order:
///
/// ```
/// use std::ffi::c_int;
/// use symmem_gpu::library::Library;
///
/// symmem_gpu::symbol_table! {
///     /// Some functions of the C library.
///     pub struct Table {
///         required { abs(value: c_int) -> c_int; }
///         optional { labs_fast or "labs" (value: i64) -> i64; no_such_name() -> c_int; }
///     }
/// }
///
/// let library = Library::open("libc.so.6", &[], "install it")?;
/// // SAFETY: every C library has these functions with these signatures.
/// let table = unsafe { Table::load(&library) }.expect("abs is there");
/// // SAFETY: `abs` is defined for every number but `c_int::MIN`.
/// assert_eq!(unsafe { (table.abs)(-3) }, 3);
/// assert!(table.labs_fast.is_some());
/// assert_eq!(table.missing(), ["no_such_name"]);
/// # Ok::<_, symmem_core::backend::Failure>(())
/// ```
#[macro_export]
macro_rules! symbol_table {
    (
        $(#[$doc:meta])*
        $visibility:vis struct $table:ident {
            required { $(
                $required:ident($($argument:ident: $type:ty),* $(,)?) -> $result:ty;
            )* }
            optional { $(
                $optional:ident $(or $spelling:literal)*
                ($($other:ident: $other_type:ty),* $(,)?) -> $other_result:ty;
            )* }
        }
    ) => {
        $(#[$doc])*
        #[allow(non_snake_case, missing_docs, reason = "named as the library names them")]
        $visibility struct $table {
            $( pub $required: unsafe extern "C" fn($($argument: $type),*) -> $result, )*
            $( pub $optional:
                Option<unsafe extern "C" fn($($other: $other_type),*) -> $other_result>, )*
        }

        #[allow(dead_code, reason = "not every table is reported on")]
        impl $table {
            /// Names of the optional functions.
            pub const OPTIONAL: &[&str] = &[$( stringify!($optional) ),*];

            /// Looks up every symbol.
            ///
            /// # Errors
            /// The name of a missing required symbol.
            ///
            /// # Safety
            /// The library has functions of these names with these signatures.
            pub unsafe fn load(
                library: &$crate::library::Library,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $( $required: {
                        let address = library
                            .symbol_named(concat!(stringify!($required), "\0"))
                            .ok_or(stringify!($required))?;
                        // SAFETY: the caller says that the library's function of this name has this signature.
                        unsafe {
                            std::mem::transmute::<
                                *mut std::ffi::c_void,
                                unsafe extern "C" fn($($type),*) -> $result,
                            >(address)
                        }
                    }, )*
                    $( $optional: library
                        .symbol_named(concat!(stringify!($optional), "\0"))
                        $( .or_else(|| library.symbol_named(concat!($spelling, "\0"))) )*
                        .map(
                            // SAFETY: as for the required functions.
                            |address| unsafe {
                                std::mem::transmute::<
                                    *mut std::ffi::c_void,
                                    unsafe extern "C" fn($($other_type),*) -> $other_result,
                                >(address)
                            },
                        ), )*
                })
            }

            /// Returns the names of the optional functions that this library lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $( if self.$optional.is_none() { missing.push(stringify!($optional)); } )*
                missing
            }
        }
    };
}
