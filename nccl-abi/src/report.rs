//! What is told on stderr: which library serves what, and, if asked for, how many calls each did.

use crate::call::Kind;
use crate::library;
use crate::member::{self, Member};
use std::ffi::c_int;
use std::sync::Once;
use std::sync::atomic::{AtomicU64, Ordering};

/// Set to 1, it asks for the number of calls of each communicator when it ends.
const VARIABLE: &str = "SYMMEM_NCCL_REPORT";

/// Calls of a communicator, by kind: those that symmem did and those that NCCL did.
#[derive(Default)]
pub struct Counts([[AtomicU64; 2]; Kind::ALL.len()]);

impl Counts {
    /// Counts a call.
    pub fn add(&self, kind: Kind, by_symmem: bool) {
        self.0[kind as usize][usize::from(by_symmem)].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the counts of the kinds that were called, as text.
    fn text(&self) -> String {
        let all = Kind::ALL.map(|kind| {
            let [by_nccl, by_symmem] = self.0[kind as usize]
                .each_ref()
                .map(|count| count.load(Ordering::Relaxed));
            (by_nccl + by_symmem > 0)
                .then(|| format!("{}: {by_symmem} by symmem, {by_nccl} by NCCL", kind.name()))
        });
        let called: Vec<String> = all.into_iter().flatten().collect();
        match called.is_empty() {
            true => "no collectives".into(),
            false => called.join("; "),
        }
    }
}

/// Prints a line on stderr. A closed stderr loses it.
pub fn line(text: &str) {
    use std::io::Write;
    let _ = writeln!(std::io::stderr(), "symmem-nccl: {text}");
}

/// Prints a communicator's counts, if that is asked for.
pub fn ended(member: &Member) {
    if std::env::var(VARIABLE).is_ok_and(|value| value == "1") {
        let communicator = &member.communicator;
        let nccl = match library::nccl() {
            Ok(nccl) if member.has_nccl => format!("beside {}", nccl.name),
            _ => "without NCCL".into(),
        };
        line(&format!(
            "rank {} of {}, {nccl}: {}",
            communicator.rank(),
            communicator.world_size(),
            member.counts.text()
        ));
    }
}

/// Makes the process report at its exit what it has not ended by then.
pub fn at_exit() {
    unsafe extern "C" {
        // Of the C library.
        fn atexit(function: extern "C" fn()) -> c_int;
    }
    extern "C" fn report() {
        // A panic cannot leave a function that C calls.
        let _ = std::panic::catch_unwind(|| member::all().iter().for_each(|one| ended(one)));
    }
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        // SAFETY: the function lives as long as this library, which the C library keeps in mind for `atexit`. Without room
        // for it, nothing is reported.
        unsafe { atexit(report) };
    });
}
