//! A strict fake `libcublasLt.so` and `libhipblaslt.so`, for tests on machines without a GPU.
//!
//! It runs over the fake CUDA driver or the fake HIP runtime, which it finds as a program does. `objects` has the
//! objects a program holds, `heuristics` the algorithms that the heuristic returns, `multiply` the GEMM itself, and `numbers`
//! what differs between the two libraries. The fake runtime's report lists what a program does wrong. The README lists
//! the switches.

#![allow(
    missing_docs,
    non_snake_case,
    clippy::missing_safety_doc,
    reason = "the vendors' functions, as their headers document them"
)]

#[cfg(not(target_os = "linux"))]
compile_error!("the fake library runs on Linux");

mod heuristics;
mod multiply;
mod numbers;
mod objects;

use fake_library::Calls;
use heuristics::Problem;
use multiply::Call;
use numbers::{CUBLAS, Code, HIPBLAS, Numbers, Result};
use objects::Layout;
use std::ffi::{c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};

static CALLS: Calls = Calls::new("FAKE_BLASLT_FAIL");

/// Reports a broken rule and returns the error of the call that broke it.
fn broken(numbers: &Numbers, what: &str) -> Code {
    fake_library::violation(&format!("{}: {what}", numbers.prefix));
    numbers.invalid
}

/// Runs an exported function: counts the call, injects failures, catches panics. A call that destroys an object does so
/// before an injected failure.
fn enter(numbers: &'static Numbers, name: &str, call: impl FnOnce() -> Result) -> c_int {
    let symbol = format!("{}{name}", numbers.prefix);
    let run = || {
        if fake_library::vendor() != numbers.vendor {
            return Err(broken(numbers, "this is the other vendor's function"));
        }
        let ordered = CALLS.count(&symbol, numbers.failed.0).map_err(Code);
        if ordered.is_err() && !name.contains("Destroy") {
            return ordered;
        }
        call().and(ordered)
    };
    match catch_unwind(AssertUnwindSafe(run)) {
        Ok(Ok(())) => 0,
        Ok(Err(code)) => code.0,
        Err(_) => {
            broken(numbers, &format!("{name} panicked"));
            numbers.failed.0
        }
    }
}

fn version(numbers: &Numbers) -> u32 {
    fake_library::number("FAKE_BLASLT_VERSION", numbers.version)
}

#[unsafe(no_mangle)]
pub extern "C" fn cublasLtGetVersion() -> usize {
    version(&CUBLAS) as usize
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn hipblasLtGetVersion(instance: u64, place: *mut c_int) -> c_int {
    enter(&HIPBLAS, "GetVersion", || {
        objects::instance(&HIPBLAS, instance)?;
        if place.is_null() {
            return Err(HIPBLAS.invalid);
        }
        // SAFETY: the caller promises a writable output.
        unsafe { place.write(version(&HIPBLAS) as c_int) };
        Ok(())
    })
}

/// Exports the functions that both libraries have. Each entry gives the name after the prefix, the exported names, and
/// the body, which gets the numbers of the library that was called.
macro_rules! exported {
    ($( $name:literal [$cublas:ident, $hipblas:ident]
        ($($parameter:ident: $type:ty),* $(,)?) |$numbers:ident| $body:expr; )*) => {$(
        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the library's signature")]
        pub unsafe extern "C" fn $cublas($($parameter: $type),*) -> c_int {
            let $numbers = &CUBLAS;
            enter($numbers, $name, || $body)
        }

        #[unsafe(no_mangle)]
        #[allow(clippy::too_many_arguments, reason = "the library's signature")]
        pub unsafe extern "C" fn $hipblas($($parameter: $type),*) -> c_int {
            let $numbers = &HIPBLAS;
            enter($numbers, $name, || $body)
        }
    )*};
}

exported! {
    "Create" [cublasLtCreate, hipblasLtCreate](place: *mut u64) |numbers| {
        objects::create(numbers, place)
    };
    "Destroy" [cublasLtDestroy, hipblasLtDestroy](instance: u64) |numbers| {
        objects::destroy(numbers, instance)
    };
    "MatrixLayoutCreate" [cublasLtMatrixLayoutCreate, hipblasLtMatrixLayoutCreate](
        place: *mut u64, element: c_int, rows: u64, columns: u64, stride: i64
    ) |numbers| {
        let stride = u64::try_from(stride).unwrap_or(0);
        objects::create_layout(numbers, place, Layout { element, rows, columns, stride })
    };
    "MatrixLayoutDestroy" [cublasLtMatrixLayoutDestroy, hipblasLtMatrixLayoutDestroy](
        layout: u64
    ) |numbers| {
        objects::destroy_layout(numbers, layout)
    };
    "MatmulDescCreate" [cublasLtMatmulDescCreate, hipblasLtMatmulDescCreate](
        place: *mut u64, compute: c_int, scale: c_int
    ) |numbers| {
        objects::create_operation(numbers, place, compute, scale)
    };
    "MatmulDescDestroy" [cublasLtMatmulDescDestroy, hipblasLtMatmulDescDestroy](
        operation: u64
    ) |numbers| {
        objects::destroy_operation(numbers, operation)
    };
    "MatmulDescSetAttribute" [cublasLtMatmulDescSetAttribute, hipblasLtMatmulDescSetAttribute](
        operation: u64, attribute: c_int, value: *const c_void, bytes: usize
    ) |numbers| {
        // SAFETY: the caller promises a readable value of `bytes` bytes.
        unsafe { objects::set_operation(numbers, operation, attribute, value, bytes) }
    };
    "MatmulPreferenceCreate" [cublasLtMatmulPreferenceCreate, hipblasLtMatmulPreferenceCreate](
        place: *mut u64
    ) |numbers| {
        objects::create_preference(numbers, place)
    };
    "MatmulPreferenceDestroy" [cublasLtMatmulPreferenceDestroy, hipblasLtMatmulPreferenceDestroy](
        preference: u64
    ) |numbers| {
        objects::destroy_preference(numbers, preference)
    };
    "MatmulPreferenceSetAttribute"
    [cublasLtMatmulPreferenceSetAttribute, hipblasLtMatmulPreferenceSetAttribute](
        preference: u64, attribute: c_int, value: *const c_void, bytes: usize
    ) |numbers| {
        // SAFETY: the caller promises a readable value of `bytes` bytes.
        unsafe { objects::set_preference(numbers, preference, attribute, value, bytes) }
    };
    "MatmulAlgoGetHeuristic" [cublasLtMatmulAlgoGetHeuristic, hipblasLtMatmulAlgoGetHeuristic](
        instance: u64, operation: u64, a: u64, b: u64, c: u64, d: u64, preference: u64,
        wanted: c_int, found: *mut u64, count: *mut c_int
    ) |numbers| {
        objects::instance(numbers, instance)?;
        let problem = Problem::new(numbers, operation, [a, b, c, d])?;
        // SAFETY: the caller promises room for `wanted` results and a writable count.
        unsafe { heuristics::tell(numbers, &problem, preference, wanted, found, count) }
    };
    "Matmul" [cublasLtMatmul, hipblasLtMatmul](
        instance: u64, operation: u64,
        alpha: *const f32, a: u64, a_layout: u64, b: u64, b_layout: u64,
        beta: *const f32, c: u64, c_layout: u64, d: u64, d_layout: u64,
        heuristic: *const u64, workspace: u64, workspace_bytes: usize, stream: u64
    ) |numbers| {
        let matrices = [a_layout, b_layout, c_layout, d_layout];
        let call = Call {
            instance,
            problem: Problem::new(numbers, operation, matrices)?,
            alpha,
            beta,
            first: a,
            second: b,
            added: c,
            result: d,
            heuristic,
            workspace,
            workspace_bytes: workspace_bytes as u64,
            stream,
        };
        // SAFETY: the caller promises readable scalars and a readable algorithm.
        unsafe { multiply::call(numbers, &call) }
    };
}
