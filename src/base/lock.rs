//! Locks for values that stay consistent even if a thread panics while it holds the lock.
//!
//! So the panic of one thread does not fail the calls of others.

use std::sync::{Mutex, MutexGuard, PoisonError};

/// Locks `mutex`. Blocks while another thread holds it.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Takes the value out of `mutex`.
pub fn into_inner<T>(mutex: Mutex<T>) -> T {
    mutex.into_inner().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_outlives_the_panic_of_its_holder() {
        let mutex = Mutex::new(7);
        std::thread::scope(|scope| {
            let holder = scope.spawn(|| {
                let _held = lock(&mutex);
                std::panic::resume_unwind(Box::new("planted"));
            });
            assert!(holder.join().is_err());
        });
        assert!(mutex.is_poisoned(), "or else nothing was tested");
        assert_eq!(*lock(&mutex), 7);
        assert_eq!(into_inner(mutex), 7);
    }
}
