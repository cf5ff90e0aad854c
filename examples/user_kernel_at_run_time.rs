//! A user's kernel, compiled while the program runs, that puts, signals and waits.
//!
//! `symmem run -n 2 -- target/debug/examples/user_kernel_at_run_time`
//!
//! The run-time compiler, NVRTC or hiprtc, is searched for in `SYMMEM_LIBRARY_PATH` and then by the dynamic loader.
//! Nothing else of the toolkit is needed: `symmem_device` contains the headers.

#[path = "kernels/ring.rs"]
mod ring;

use libloading::{Library, Symbol};
use std::error::Error;
use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::PathBuf;
use std::ptr::null_mut;

const SOURCE: &str = include_str!("kernels/ring.cu");

fn main() -> Result<(), Box<dyn Error>> {
    let communicator = symmem::init()?;
    if ring::has_kernels(&communicator) {
        let architecture = communicator.device().architecture;
        let kind = Kind::of(architecture);
        match Compiler::open(kind) {
            None => println!("{} is not installed: skipped", kind.name()),
            Some(compiler) => {
                let code = compiler.compile(SOURCE, architecture)?;
                // SAFETY: the code was compiled from `ring.cu` for this device.
                unsafe { ring::run(&communicator, &code)? };
            }
        }
    }
    communicator.finalize()?;
    Ok(())
}

/// The run-time compiler. The two have the same functions under different prefixes.
#[derive(Clone, Copy, PartialEq)]
enum Kind {
    Nvrtc,
    Hiprtc,
}

impl Kind {
    /// Returns the compiler for an architecture; AMD's are numbered from 900 on.
    fn of(architecture: u32) -> Self {
        match architecture {
            900.. => Self::Hiprtc,
            _ => Self::Nvrtc,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Nvrtc => "NVRTC",
            Self::Hiprtc => "hiprtc",
        }
    }

    /// Prefix of the functions' names.
    fn prefix(self) -> &'static str {
        match self {
            Self::Nvrtc => "nvrtc",
            Self::Hiprtc => "hiprtc",
        }
    }

    /// File names, newest first. In ROCm releases before 7 the HIP runtime's file contains hiprtc, too.
    fn files(self) -> &'static [&'static str] {
        match self {
            Self::Nvrtc => &["libnvrtc.so.13", "libnvrtc.so.12"],
            Self::Hiprtc => &["libhiprtc.so.7", "libhiprtc.so.6", "libamdhip64.so.6"],
        }
    }

    /// The function that returns the compiled code.
    fn result(self) -> &'static str {
        match self {
            Self::Nvrtc => "GetPTX",
            Self::Hiprtc => "GetCode",
        }
    }

    fn target(self, architecture: u32) -> String {
        match (self, architecture) {
            (Self::Nvrtc, number) => format!("-arch=compute_{number}"),
            // The stepping is hexadecimal: 910 is gfx90a.
            (Self::Hiprtc, 910) => "--offload-arch=gfx90a".into(),
            (Self::Hiprtc, number) => format!("--offload-arch=gfx{number}"),
        }
    }
}

/// A loaded compiler; every version that has these functions works.
struct Compiler {
    kind: Kind,
    library: Library,
}

type Program = *mut c_void;

impl Compiler {
    fn open(kind: Kind) -> Option<Self> {
        let directories = std::env::var_os("SYMMEM_LIBRARY_PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&directories).collect();
        let names = kind.files();
        let named = names.iter().flat_map(|name| {
            let files = directories
                .iter()
                .map(move |directory| directory.join(name));
            files.filter(|file| file.is_file())
        });
        named
            .chain(names.iter().map(PathBuf::from))
            // SAFETY: the file is the vendor's library or one that the user chose.
            .find_map(|file| unsafe { Library::new(file) }.ok())
            .map(|library| Self { kind, library })
    }

    /// # Safety
    /// The function of this name, without its prefix, has the type `F`.
    unsafe fn function<F>(&self, name: &str) -> Result<Symbol<'_, F>, libloading::Error> {
        let name = format!("{}{name}", self.kind.prefix());
        // SAFETY: the function has this type, as this function requires.
        unsafe { self.library.get(name.as_bytes()) }
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Box<dyn Error>> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the type is that of nvrtc.h and hiprtc.h, and the text lives as long as the library.
        let text = unsafe {
            let describe =
                self.function::<unsafe extern "C" fn(c_int) -> *const c_char>("GetErrorString")?;
            CStr::from_ptr(describe(status))
        };
        let prefix = self.kind.prefix();
        Err(format!("{prefix}{call}: {}", text.to_string_lossy()).into())
    }

    /// Compiles a source that includes the device library's headers to code that the device loads.
    fn compile(&self, source: &str, architecture: u32) -> Result<Vec<u8>, Box<dyn Error>> {
        let source = CString::new(source)?;
        let texts: Vec<CString> = symmem_device::HEADERS
            .iter()
            .map(|header| CString::new(header.contents))
            .collect::<Result<_, _>>()?;
        let paths: Vec<CString> = symmem_device::HEADERS
            .iter()
            .map(|header| CString::new(header.path))
            .collect::<Result<_, _>>()?;
        let pointers = |texts: &[CString]| -> Vec<_> { texts.iter().map(|t| t.as_ptr()).collect() };
        let (headers, names) = (pointers(&texts), pointers(&paths));
        let options = [
            CString::new("-std=c++17")?,
            CString::new(self.kind.target(architecture))?,
        ];
        let options = pointers(&options);

        type Create = unsafe extern "C" fn(
            *mut Program,
            *const c_char,
            *const c_char,
            c_int,
            *const *const c_char,
            *const *const c_char,
        ) -> c_int;
        let mut program = null_mut();
        // SAFETY: the type is that of nvrtc.h and hiprtc.h; texts end with zeros, lists have the stated lengths, and
        // all live until the end of this function.
        let status = unsafe {
            self.function::<Create>("CreateProgram")?(
                &raw mut program,
                source.as_ptr(),
                c"ring.cu".as_ptr(),
                headers.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check("CreateProgram", status)?;

        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        // SAFETY: the type is that of nvrtc.h and hiprtc.h; the program was just created.
        let status = unsafe {
            let compile = self.function::<Compile>("CompileProgram")?;
            compile(program, options.len() as c_int, options.as_ptr())
        };
        let result = match self.check("CompileProgram", status) {
            Ok(()) => self.text(program, self.kind.result()),
            Err(error) => {
                let log = self.text(program, "GetProgramLog")?;
                Err(format!("{error}\n{}", String::from_utf8_lossy(&log)).into())
            }
        };
        // SAFETY: the type is that of nvrtc.h and hiprtc.h; the program is not used again.
        let status = unsafe {
            let destroy =
                self.function::<unsafe extern "C" fn(*mut Program) -> c_int>("DestroyProgram")?;
            destroy(&raw mut program)
        };
        self.check("DestroyProgram", status)?;
        result
    }

    /// Returns what the function `get` writes; the function `get` + "Size" returns its length.
    fn text(&self, program: Program, get: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let size_name = format!("{get}Size");
        let mut size = 0_usize;
        // SAFETY: the type is that of nvrtc.h and hiprtc.h; the program is live.
        let status = unsafe {
            self.function::<unsafe extern "C" fn(Program, *mut usize) -> c_int>(&size_name)?(
                program,
                &raw mut size,
            )
        };
        self.check(&size_name, status)?;
        let mut text = vec![0_u8; size];
        // SAFETY: the type is that of nvrtc.h and hiprtc.h; the buffer has the size that the library asked for.
        let status = unsafe {
            self.function::<unsafe extern "C" fn(Program, *mut c_char) -> c_int>(get)?(
                program,
                text.as_mut_ptr().cast(),
            )
        };
        self.check(get, status)?;
        // A text ends with a zero byte; a code object does not.
        text.pop_if(|last| self.kind == Kind::Nvrtc && *last == 0);
        Ok(text)
    }
}
