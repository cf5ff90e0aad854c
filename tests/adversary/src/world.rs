//! Runs a program: its ranks are threads of this process.

use crate::counts::Counts;
use crate::fake::Fake;
use crate::plan::plan;
use crate::program::Program;
use crate::rank::{DEADLINE, Failure, Held, Rank};
use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};
use symmem::backends::Selection;
use symmem::{Builder, LaunchEnvironment};

/// Where ranks wait for each other without the library.
#[derive(Default)]
pub struct Meeting {
    come: AtomicUsize,
    /// A rank has failed and does not come.
    failed: AtomicBool,
}

impl Meeting {
    /// Waits until `all` calls have been made.
    pub fn meet(&self, all: usize) -> Result<(), Failure> {
        self.come.fetch_add(1, Ordering::AcqRel);
        while self.come.load(Ordering::Acquire) < all {
            if self.failed.load(Ordering::Acquire) {
                return Err("another rank failed".into());
            }
            std::thread::sleep(Duration::from_micros(200));
        }
        Ok(())
    }
}

/// Panics of any thread since the last program.
static PANICS: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Notes every panic: the library's threads may panic where no rank sees it.
pub fn note_panics() {
    std::panic::set_hook(Box::new(|panic| {
        let place = panic.location().map(ToString::to_string);
        let text = format!(
            "{} at {}",
            message(panic.payload()),
            place.unwrap_or_default()
        );
        eprintln!("panic: {text}");
        PANICS
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(text);
    }));
}

fn message(payload: &(dyn std::any::Any + Send)) -> String {
    let text = payload.downcast_ref::<String>().map(String::as_str);
    let text = text.or_else(|| payload.downcast_ref::<&str>().copied());
    text.unwrap_or("without a message").to_owned()
}

/// Runs programs over one backend.
pub struct Runner {
    /// The backend's name.
    pub backend: String,
    /// The fake driver, if the backend has one.
    pub fake: Option<Fake>,
    /// What has been done.
    pub counts: Counts,
    programs: AtomicUsize,
}

impl Runner {
    /// Makes a runner.
    pub fn new(backend: String, fake: Option<Fake>) -> Self {
        Self {
            backend,
            fake,
            counts: Counts::default(),
            programs: AtomicUsize::new(0),
        }
    }

    /// Runs a program. Returns what went wrong, first things first.
    pub fn run(&self, program: &Program) -> Result<(), Vec<Failure>> {
        let plan = plan(program);
        let number = self.programs.fetch_add(1, Ordering::Relaxed);
        self.counts.add("programs".into(), 1);
        let failures: Mutex<Vec<(Instant, Failure)>> = Mutex::default();
        let meeting = Meeting::default();
        std::thread::scope(|scope| {
            for rank in 0..program.world {
                let (failures, meeting, plan) = (&failures, &meeting, &plan);
                scope.spawn(move || {
                    let open = |opened: usize, checked: bool| {
                        let job = format!("adversary-{}-{number}-{opened}", std::process::id());
                        let launch =
                            LaunchEnvironment::local(rank as u32, program.world as u32, job)?;
                        Builder::new()
                            .launch(launch)
                            .backend(Selection::Named(self.backend.clone()))
                            .deadline(DEADLINE)
                            .setup_deadline(DEADLINE)
                            .check_calls(checked)
                            .build()
                    };
                    let mut one = Rank {
                        rank,
                        world: program.world,
                        held: Held {
                            // The host backend has none.
                            copy_engine: self.backend != "host",
                            ..Held::default()
                        },
                        counts: &self.counts,
                        meeting,
                        open: &open,
                        opened: 0,
                        met: Cell::new(0),
                    };
                    let run = || one.run(plan, program.communicators);
                    let outcome = catch_unwind(AssertUnwindSafe(run));
                    let outcome = outcome
                        .unwrap_or_else(|payload| Err(format!("panicked: {}", message(&*payload))));
                    if let Err(failure) = outcome {
                        let failure = (Instant::now(), format!("rank {rank}: {failure}"));
                        failures
                            .lock()
                            .unwrap_or_else(PoisonError::into_inner)
                            .push(failure);
                        meeting.failed.store(true, Ordering::Release);
                        let left = one.held.communicators.iter().flatten();
                        left.for_each(symmem::Communicator::abort);
                    }
                });
            }
        });
        let failures = failures
            .into_inner()
            .unwrap_or_else(PoisonError::into_inner);
        let mut failures: Vec<_> = failures.into_iter().collect();
        failures.sort_by_key(|(time, _)| *time);
        let mut failures: Vec<Failure> = failures.into_iter().map(|(_, text)| text).collect();
        let mut panics = PANICS.lock().unwrap_or_else(PoisonError::into_inner);
        failures.extend(panics.drain(..).map(|text| format!("panic: {text}")));
        if let Some(fake) = &self.fake {
            failures.extend(fake.wrong(program.enqueues_beside()));
        }
        if failures.is_empty() {
            Ok(())
        } else {
            Err(failures)
        }
    }
}
