//! `libhiprtc.so`, which older releases include in the runtime's own file. AMD's run-time compiler is clang, and so is
//! this one, with the options that hiprtc passes. Like hiprtc it accepts headers by the names that sources include, a
//! target, and C++.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

// `hiprtcResult` of hiprtc.h.
const SUCCESS: c_int = 0;
const INVALID_INPUT: c_int = 3;
const INVALID_PROGRAM: c_int = 4;
const INVALID_OPTION: c_int = 5;
const COMPILATION: c_int = 6;

/// The target of a `hiprtcProgram` pointer.
struct Program {
    source: String,
    name: String,
    headers: Vec<(String, String)>,
    log: Vec<u8>,
    code: Vec<u8>,
}

/// # Safety
/// `text` is null or ends with a zero.
unsafe fn text(text: *const c_char) -> Option<String> {
    if text.is_null() {
        return None;
    }
    // SAFETY: the caller promises text that ends with a zero.
    let text = unsafe { CStr::from_ptr(text) };
    Some(text.to_string_lossy().into_owned())
}

/// # Safety
/// `list` is null or has `count` texts.
unsafe fn texts(count: c_int, list: *const *const c_char) -> Option<Vec<String>> {
    let count = usize::try_from(count).ok()?;
    if list.is_null() {
        return (count == 0).then(Vec::new);
    }
    // SAFETY: the caller promises `count` texts.
    (0..count)
        .map(|index| unsafe { text(*list.add(index)) })
        .collect()
}

/// # Safety
/// `program` is null, or came from [`hiprtcCreateProgram`] and has not been destroyed.
unsafe fn program<'a>(program: *mut c_void) -> Option<&'a mut Program> {
    // SAFETY: the caller promises null or a live program.
    unsafe { program.cast::<Program>().as_mut() }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcVersion(major: *mut c_int, minor: *mut c_int) -> c_int {
    let release = crate::release::release();
    // SAFETY: the caller promises two writable outputs.
    unsafe {
        major.write((release / 100) as c_int);
        minor.write((release % 100) as c_int);
    }
    SUCCESS
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs)]
pub extern "C" fn hiprtcGetErrorString(code: c_int) -> *const c_char {
    match code {
        SUCCESS => c"HIPRTC_SUCCESS",
        INVALID_INPUT => c"HIPRTC_ERROR_INVALID_INPUT",
        INVALID_PROGRAM => c"HIPRTC_ERROR_INVALID_PROGRAM",
        INVALID_OPTION => c"HIPRTC_ERROR_INVALID_OPTION",
        COMPILATION => c"HIPRTC_ERROR_COMPILATION",
        _ => c"HIPRTC_ERROR_INTERNAL_ERROR",
    }
    .as_ptr()
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcCreateProgram(
    place: *mut *mut c_void,
    source: *const c_char,
    name: *const c_char,
    count: c_int,
    contents: *const *const c_char,
    names: *const *const c_char,
) -> c_int {
    // SAFETY: the caller promises `count` entries in both lists, and texts that end with a zero.
    let (source, name, contents, names) = unsafe {
        (
            text(source),
            text(name),
            texts(count, contents),
            texts(count, names),
        )
    };
    let (Some(source), Some(contents), Some(names)) = (source, contents, names) else {
        return INVALID_INPUT;
    };
    let program = Box::new(Program {
        source,
        name: name.unwrap_or_else(|| "CompileSourceXXXX".into()),
        headers: names.into_iter().zip(contents).collect(),
        log: vec![0],
        code: Vec::new(),
    });
    // SAFETY: the caller promises a writable output.
    unsafe { place.write(Box::into_raw(program).cast()) };
    SUCCESS
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcCompileProgram(
    raw: *mut c_void,
    count: c_int,
    options: *const *const c_char,
) -> c_int {
    // SAFETY: the caller promises a live program and `count` options.
    let (Some(program), Some(options)) =
        (unsafe { program(raw) }, unsafe { texts(count, options) })
    else {
        return INVALID_PROGRAM;
    };
    let allowed =
        |option: &String| option.starts_with("--offload-arch=gfx") || option.starts_with("-std=");
    if let Some(option) = options.iter().find(|option| !allowed(option)) {
        program.log = format!("{option}: only a target and a language are known here\0").into();
        return INVALID_OPTION;
    }
    match program.compile(&options) {
        Ok(code) => {
            program.code = code;
            SUCCESS
        }
        Err(log) => {
            program.log = format!("{log}\0").into();
            COMPILATION
        }
    }
}

impl Program {
    fn compile(&self, options: &[String]) -> Result<Vec<u8>, String> {
        static NUMBERS: AtomicU32 = AtomicU32::new(0);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let folder = format!("fake-hiprtc-{}-{number}", std::process::id());
        let folder = std::env::temp_dir().join(folder);
        let code = self.compile_in(&folder, options);
        // A failure to remove the folder affects nothing.
        let _ = std::fs::remove_dir_all(&folder);
        code
    }

    fn compile_in(&self, folder: &Path, options: &[String]) -> Result<Vec<u8>, String> {
        let write = |name: &str, contents: &str| -> Result<PathBuf, String> {
            let path = folder.join(name);
            let parent = path.parent().unwrap_or(folder);
            std::fs::create_dir_all(parent)
                .and_then(|()| std::fs::write(&path, contents))
                .map_err(|error| format!("{}: {error}", path.display()))?;
            Ok(path)
        };
        for (name, contents) in &self.headers {
            write(name, contents)?;
        }
        let source = write(&self.name, &self.source)?;
        let result = folder.join("code.co");
        let output = Command::new("clang-22")
            .args(["-x", "hip", "--cuda-device-only", "--no-gpu-bundle-output"])
            .args(["-nogpuinc", "-nogpulib", "-O3", "-mcode-object-version=5"])
            .args(options)
            .arg("-I")
            .arg(folder)
            .arg("-o")
            .args([&result, &source])
            .output()
            .map_err(|error| format!("clang-22: {error}"))?;
        match output.status.success() {
            true => std::fs::read(&result).map_err(|error| error.to_string()),
            false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
        }
    }
}

/// # Safety
/// `place` is writable for the length of `bytes`.
unsafe fn give(bytes: Option<&[u8]>, place: *mut c_char) -> c_int {
    match bytes {
        Some(bytes) => {
            // SAFETY: the caller promises room for all of `bytes`.
            unsafe { place.cast::<u8>().copy_from(bytes.as_ptr(), bytes.len()) };
            SUCCESS
        }
        None => INVALID_PROGRAM,
    }
}

/// # Safety
/// `place` is writable.
unsafe fn give_length(bytes: Option<&[u8]>, place: *mut usize) -> c_int {
    match bytes {
        Some(bytes) => {
            // SAFETY: the caller promises a writable output.
            unsafe { place.write(bytes.len()) };
            SUCCESS
        }
        None => INVALID_PROGRAM,
    }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcGetProgramLogSize(raw: *mut c_void, bytes: *mut usize) -> c_int {
    // SAFETY: the caller promises a live program and a writable output.
    unsafe { give_length(program(raw).map(|program| &*program.log), bytes) }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcGetProgramLog(raw: *mut c_void, log: *mut c_char) -> c_int {
    // SAFETY: the caller promises a live program and room for the log.
    unsafe { give(program(raw).map(|program| &*program.log), log) }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcGetCodeSize(raw: *mut c_void, bytes: *mut usize) -> c_int {
    // SAFETY: the caller promises a live program and a writable output.
    unsafe { give_length(program(raw).map(|program| &*program.code), bytes) }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcGetCode(raw: *mut c_void, code: *mut c_char) -> c_int {
    // SAFETY: the caller promises a live program and room for the code.
    unsafe { give(program(raw).map(|program| &*program.code), code) }
}

#[unsafe(no_mangle)]
#[allow(non_snake_case, missing_docs, clippy::missing_safety_doc)]
pub unsafe extern "C" fn hiprtcDestroyProgram(place: *mut *mut c_void) -> c_int {
    // SAFETY: the caller promises a readable and writable pointer to a live program, which this call consumes.
    unsafe {
        let program = place.replace(std::ptr::null_mut()).cast::<Program>();
        if program.is_null() {
            return INVALID_PROGRAM;
        }
        drop(Box::from_raw(program));
    }
    SUCCESS
}
