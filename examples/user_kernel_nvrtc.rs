//! A kernel of one's own, compiled while the program runs, that puts, signals and waits.
//!
//! `symmem run -n 2 -- target/debug/examples/user_kernel_nvrtc`
//!
//! NVRTC, the toolkit's run-time compiler, is looked for in `SYMMEM_LIBRARY_PATH` and then where the
//! loader looks; nothing else of the toolkit is needed, since `symmem_device` has the headers in it.

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
        match Nvrtc::open() {
            None => println!("NVRTC is not installed: skipped"),
            Some(nvrtc) => {
                let architecture = communicator.device().architecture;
                let ptx = nvrtc.compile(SOURCE, architecture)?;
                // SAFETY: compiled from `ring.cu` for this device.
                unsafe { ring::run(&communicator, &ptx)? };
            }
        }
    }
    communicator.finalize()?;
    Ok(())
}

/// The library of any major version whose functions are those below.
struct Nvrtc(Library);

type Program = *mut c_void;

impl Nvrtc {
    fn open() -> Option<Self> {
        let directories = std::env::var_os("SYMMEM_LIBRARY_PATH").unwrap_or_default();
        let directories: Vec<PathBuf> = std::env::split_paths(&directories).collect();
        let names = ["libnvrtc.so.13", "libnvrtc.so.12"];
        let named = names.iter().flat_map(|name| {
            let files = directories
                .iter()
                .map(move |directory| directory.join(name));
            files.filter(|file| file.is_file())
        });
        named
            .chain(names.iter().map(PathBuf::from))
            // SAFETY: the vendor's own library, or the one that the user pointed to.
            .find_map(|file| unsafe { Library::new(file) }.ok())
            .map(Self)
    }

    /// # Safety
    /// The symbol is a function of the type `F`.
    unsafe fn function<F>(&self, name: &str) -> Result<Symbol<'_, F>, libloading::Error> {
        // SAFETY: the caller's word.
        unsafe { self.0.get(name.as_bytes()) }
    }

    fn check(&self, call: &str, status: c_int) -> Result<(), Box<dyn Error>> {
        if status == 0 {
            return Ok(());
        }
        // SAFETY: the type is that of nvrtc.h, and the text lives as long as the library.
        let text = unsafe {
            let describe = self
                .function::<unsafe extern "C" fn(c_int) -> *const c_char>("nvrtcGetErrorString")?;
            CStr::from_ptr(describe(status))
        };
        Err(format!("{call}: {}", text.to_string_lossy()).into())
    }

    /// Compiles a source that includes the device library's headers to PTX.
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
            CString::new(format!("-arch=compute_{architecture}"))?,
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
        // SAFETY: the type is that of nvrtc.h; texts and lists have the lengths named and end with
        // zeros, and live until the end of this function.
        let status = unsafe {
            self.function::<Create>("nvrtcCreateProgram")?(
                &raw mut program,
                source.as_ptr(),
                c"ring.cu".as_ptr(),
                headers.len() as c_int,
                headers.as_ptr(),
                names.as_ptr(),
            )
        };
        self.check("nvrtcCreateProgram", status)?;

        type Compile = unsafe extern "C" fn(Program, c_int, *const *const c_char) -> c_int;
        // SAFETY: as above; the program was made just now.
        let status = unsafe {
            let compile = self.function::<Compile>("nvrtcCompileProgram")?;
            compile(program, options.len() as c_int, options.as_ptr())
        };
        let result = match self.check("nvrtcCompileProgram", status) {
            Ok(()) => self.text(program, "nvrtcGetPTX"),
            Err(error) => {
                let log = self.text(program, "nvrtcGetProgramLog")?;
                Err(format!("{error}\n{}", String::from_utf8_lossy(&log)).into())
            }
        };
        // SAFETY: as above; the program is not used again.
        let status = unsafe {
            let destroy = self
                .function::<unsafe extern "C" fn(*mut Program) -> c_int>("nvrtcDestroyProgram")?;
            destroy(&raw mut program)
        };
        self.check("nvrtcDestroyProgram", status)?;
        result
    }

    /// What `get` gives of a program, whose length `getSize` gives.
    fn text(&self, program: Program, get: &str) -> Result<Vec<u8>, Box<dyn Error>> {
        let size_name = format!("{get}Size");
        let mut size = 0_usize;
        // SAFETY: the type is that of nvrtc.h; the program is live.
        let status = unsafe {
            self.function::<unsafe extern "C" fn(Program, *mut usize) -> c_int>(&size_name)?(
                program,
                &raw mut size,
            )
        };
        self.check(&size_name, status)?;
        let mut text = vec![0_u8; size];
        // SAFETY: as above; the text has as many bytes as were asked for.
        let status = unsafe {
            self.function::<unsafe extern "C" fn(Program, *mut c_char) -> c_int>(get)?(
                program,
                text.as_mut_ptr().cast(),
            )
        };
        self.check(get, status)?;
        // The zero at the end is the loader's business.
        text.pop();
        Ok(text)
    }
}
