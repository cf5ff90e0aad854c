//! The vendors' libraries of matrix products, which have the same functions behind a prefix each, and other
//! numbers for the same things.
//!
//! A backend finds and opens its own and says how it differs ([`Dialect`]); what is done with it stands here
//! once. Both are column-major, and our matrices are row-major: what they are given is the transposed
//! product, `Cᵀ[n, m] = Bᵀ[n, k] · Aᵀ[k, m]`, so their first matrix is our `B`, and the bias along their
//! rows is ours along columns.
//!
//! What bites: a library loads a kernel when it is first used, which may wait for the device. So whoever
//! prepares a product runs each of its ways once, while no kernel waits for a peer: the one for operands that
//! are not aligned, which is taken for them whatever was chosen, is among them.

mod product;
mod products;
mod table;
mod way;

pub use products::Products;
pub use way::TOLD_WORDS;

use crate::library::{Library, file_of};
use std::ffi::{c_int, c_void};
use std::path::PathBuf;
use symmem_core::backend::abi::*;
use symmem_core::backend::{CallResult, Failure, write_text};
use table::{Code, Object, Table, find};

/// Names and numbers of one vendor's library.
pub struct Dialect {
    /// The vendor's name for it.
    pub name: &'static str,
    /// What its functions' names begin with.
    pub prefix: &'static str,
    /// What its version is divided by to have the major part, and the rest of that to have the minor part.
    pub version_units: [u32; 2],
    /// Whether the version is asked of an instance; else a function without arguments returns it.
    pub version_of_instance: bool,
    /// The first version whose numbers and structs these are; 0 where the library's file name says it.
    pub least_version: u32,
    /// Sums in f32.
    pub compute_f32: c_int,
    /// Elements of [`ElementType::F32`].
    pub f32: c_int,
    /// Elements of [`ElementType::F16`].
    pub f16: c_int,
    /// Elements of [`ElementType::BF16`].
    pub bf16: c_int,
    /// A matrix that is transposed first.
    pub transposed: c_int,
    /// Attribute of an operation: whether its first matrix is [`Dialect::transposed`].
    pub transpose_first: c_int,
    /// Attribute of an operation: what is done behind the product.
    pub epilogue: c_int,
    /// The epilogue that adds a bias to each column.
    pub epilogue_bias: u32,
    /// Attribute of an operation: where the bias is.
    pub bias_pointer: c_int,
    /// Attribute of an operation: what the bias is made of; `None` where the result's element is meant.
    pub bias_element: Option<c_int>,
    /// Attribute of a preference: the largest workspace, in bytes.
    pub most_workspace: c_int,
    /// Attributes of a preference: the least alignment of each of the four matrices, in bytes; `None` where
    /// the library's kernels take any.
    pub alignments: Option<[c_int; 4]>,
    /// Attribute of a preference: how sums of parts of `k` may be added up, and the ways among them that do so in
    /// f32; `None` where the library's kernels know no others. Without it a sum may be rounded in between, too
    /// (`2026-11-22-selftest-products-before-2xh200`).
    pub partial_sums: Option<(c_int, u32)>,
    /// 64-bit words of the struct that names a way.
    pub way_words: usize,
    /// What its codes mean, and what to do about each.
    pub codes: &'static [(Code, Status, &'static str)],
}

/// How the version is asked for.
enum Version {
    Plain(unsafe extern "C" fn() -> usize),
    OfInstance(unsafe extern "C" fn(Object, *mut c_int) -> Code),
}

/// The library, opened.
pub struct MatrixLibrary {
    table: Table,
    version: Version,
    dialect: &'static Dialect,
}

impl MatrixLibrary {
    /// Takes its functions from an opened library.
    ///
    /// # Errors
    /// `LIBRARY_MISSING` with the function that it lacks.
    ///
    /// # Safety
    /// The library has the functions of its vendor's header with this prefix and behaves as that says.
    pub unsafe fn new(dialect: &'static Dialect, library: &Library) -> CallResult<Self> {
        let lacks = |function: String| {
            Failure::new(
                Status::LIBRARY_MISSING,
                "dlsym",
                format!(
                    "the library that was found as {} has no symbol {function}: install it again, or name \
                     another's directory in {}",
                    dialect.name,
                    crate::library::SEARCH_VARIABLE
                ),
            )
        };
        let version = find(library, dialect.prefix, "GetVersion").map_err(lacks)?;
        // SAFETY: the vendor's function of this name has the type that its dialect says.
        let version = unsafe {
            match dialect.version_of_instance {
                false => Version::Plain(std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn() -> usize,
                >(version)),
                true => Version::OfInstance(std::mem::transmute::<
                    *mut c_void,
                    unsafe extern "C" fn(Object, *mut c_int) -> Code,
                >(version)),
            }
        };
        // SAFETY: the caller's word.
        let table = unsafe { Table::load(library, dialect.prefix) }.map_err(lacks)?;
        Ok(Self {
            table,
            version,
            dialect,
        })
    }

    /// The file it was loaded from.
    pub fn file(&self) -> Option<PathBuf> {
        file_of(self.table.multiply as *const c_void)
    }

    /// Its version, as it numbers it. Where only an instance tells, one is made and ended on the current
    /// device, which then has to be idle.
    ///
    /// # Errors
    /// The library's; `LIBRARY_MISSING` where it is too old.
    pub fn version(&self) -> CallResult<u32> {
        if let Version::Plain(_) = self.version {
            return self.version_of(std::ptr::null_mut());
        }
        let instance = self.instance()?;
        let version = self.version_of(instance);
        // SAFETY: made above, and used no more.
        let ended = self.check("Destroy", unsafe { (self.table.destroy)(instance) });
        version.and_then(|version| ended.map(|()| version))
    }

    /// A version as people write it.
    pub fn version_text(&self, version: u32) -> String {
        let [major, minor] = self.dialect.version_units;
        format!(
            "{}.{}.{}",
            version / major,
            version % major / minor,
            version % minor
        )
    }

    /// A fresh instance on the current device.
    fn instance(&self) -> CallResult<Object> {
        let mut instance = std::ptr::null_mut();
        // SAFETY: the place is writable.
        self.check("Create", unsafe { (self.table.create)(&raw mut instance) })?;
        Ok(instance)
    }

    /// The version, and that it is one whose numbers these are. `instance` is live, or not asked.
    fn version_of(&self, instance: Object) -> CallResult<u32> {
        let version = match self.version {
            // SAFETY: the function takes nothing.
            Version::Plain(ask) => u32::try_from(unsafe { ask() }).unwrap_or(0),
            Version::OfInstance(ask) => {
                let mut version: c_int = 0;
                // SAFETY: the caller's word; the place is writable.
                self.check("GetVersion", unsafe { ask(instance, &raw mut version) })?;
                u32::try_from(version).unwrap_or(0)
            }
        };
        if version >= self.dialect.least_version {
            return Ok(version);
        }
        Err(Failure::new(
            Status::LIBRARY_MISSING,
            self.name_of("GetVersion"),
            format!(
                "{} is {}; {} or newer is needed, from which on its numbers are the ones that are used here",
                self.dialect.name,
                self.version_text(version),
                self.version_text(self.dialect.least_version)
            ),
        ))
    }

    /// What crosses the table. `instance` is live.
    fn description(&self, instance: Object) -> CallResult<VendorDescription> {
        let mut description = VendorDescription {
            name: [0; 16],
            file: [0; 256],
            version: self.version_of(instance)?,
            flags: 0,
        };
        write_text(&mut description.name, self.dialect.name);
        let file = self.file().map(|file| file.display().to_string());
        write_text(&mut description.file, &file.unwrap_or_default());
        Ok(description)
    }

    fn name_of(&self, function: &str) -> String {
        format!("{}{function}", self.dialect.prefix)
    }

    /// The result of one of its functions.
    #[inline]
    fn check(&self, function: &str, code: Code) -> CallResult<()> {
        match code {
            0 => Ok(()),
            _ => Err(self.failure(function, code)),
        }
    }

    #[cold]
    fn failure(&self, function: &str, code: Code) -> Failure {
        let known = self.dialect.codes.iter().find(|known| known.0 == code);
        let (status, message) = known.map_or(
            (Status::CALL_FAILED, "a code that is not in its header"),
            |&(_, status, message)| (status, message),
        );
        Failure::of_call(status, self.name_of(function), code, message)
    }
}

// Miri opens no libraries.
#[cfg(all(test, not(miri)))]
mod tests {
    use super::*;

    const DIALECT: Dialect = Dialect {
        name: "Products",
        prefix: "products",
        version_units: [100_000, 100],
        version_of_instance: true,
        least_version: 0,
        compute_f32: 0,
        f32: 0,
        f16: 0,
        bf16: 0,
        transposed: 0,
        transpose_first: 0,
        epilogue: 0,
        epilogue_bias: 0,
        bias_pointer: 0,
        bias_element: None,
        most_workspace: 0,
        alignments: None,
        partial_sums: None,
        way_words: 1,
        codes: &[],
    };

    #[test]
    fn a_library_without_a_function_is_told_with_it() {
        let library = Library::open("libc.so.6", &[], "").expect("the C library");
        // SAFETY: nothing is called: the first look-up already fails.
        let failure = unsafe { MatrixLibrary::new(&DIALECT, &library) }.err();
        let failure = failure.expect("no such library");
        assert_eq!(failure.status, Status::LIBRARY_MISSING);
        for word in ["Products", "productsGetVersion", "SYMMEM_LIBRARY_PATH"] {
            assert!(failure.message.contains(word), "{}", failure.message);
        }
    }
}
