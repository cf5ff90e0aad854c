//! What happens when the process exits.

use std::ffi::c_int;
use std::sync::{Mutex, Once, PoisonError};

/// In the order in which they were asked for.
static WISHES: Mutex<Vec<fn()>> = Mutex::new(Vec::new());

/// Makes the process call a function when it exits, once, however often this is called for it.
pub fn at_exit(wish: fn()) {
    let mut wishes = WISHES.lock().unwrap_or_else(PoisonError::into_inner);
    if !wishes
        .iter()
        .any(|known| std::ptr::fn_addr_eq(*known, wish))
    {
        wishes.push(wish);
    }
    drop(wishes);
    unsafe extern "C" {
        // Of the C library.
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn fulfil() {
        let wishes = std::mem::take(&mut *WISHES.lock().unwrap_or_else(PoisonError::into_inner));
        for wish in wishes {
            // A panic cannot leave a function that C calls.
            let _ = std::panic::catch_unwind(wish);
        }
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, which the C library keeps in mind for `atexit`. Without room
        // for it, nothing is done.
        unsafe { atexit(fulfil) };
    });
}
