//! A vendor's library as a table of functions, filled once.

/// Declares a struct of the C functions of a library, and how it is filled.
///
/// Functions are fields, named as the library names them; an optional one is an [`Option`], and may
/// have other spellings, tried in order:
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
/// // SAFETY: these are their signatures in every C library.
/// let table = unsafe { Table::load(&library) }.expect("abs is there");
/// // SAFETY: any number but the least has an absolute value.
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
            /// Names that the library may lack.
            pub const OPTIONAL: &[&str] = &[$( stringify!($optional) ),*];

            /// Looks every symbol up.
            ///
            /// # Errors
            /// The required symbol that is missing.
            ///
            /// # Safety
            /// The library is the one whose functions these are, or behaves as it does.
            pub unsafe fn load(
                library: &$crate::library::Library,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $( $required: {
                        let address = library
                            .symbol_named(concat!(stringify!($required), "\0"))
                            .ok_or(stringify!($required))?;
                        // SAFETY: by the caller's word the symbol is the library's function of this
                        // name, whose signature is the same in all versions of it.
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
                            // SAFETY: as above.
                            |address| unsafe {
                                std::mem::transmute::<
                                    *mut std::ffi::c_void,
                                    unsafe extern "C" fn($($other_type),*) -> $other_result,
                                >(address)
                            },
                        ), )*
                })
            }

            /// Optional symbols that this library lacks.
            pub fn missing(&self) -> Vec<&'static str> {
                let mut missing = Vec::new();
                $( if self.$optional.is_none() { missing.push(stringify!($optional)); } )*
                missing
            }
        }
    };
}
