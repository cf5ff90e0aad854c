//! A sample of conformance cases that is divided among worlds: of one to eight ranks on the host backend, and of one to four over
//! the fake runtimes. With `SYMMEM_TESTS=all`, each world runs all cases.

use super::worlds::{
    Backend, Part, account, end, held_against_cuda, is_full, once, options, refuse_failures,
};
use std::sync::OnceLock;
use std::time::Duration;
use symmem_conformance::{Case, Outcome, Totals, World, plan};

/// World sizes on the host backend; one sample is divided among them.
const SIZES: [u32; 8] = [1, 2, 3, 4, 5, 6, 7, 8];
/// World sizes over the fake runtimes; another sample is divided among them.
const FAKE_SIZES: [u32; 4] = [1, 2, 3, 4];
/// Deadline of each wait, so that a case that hangs does not delay the rest for long.
const DEADLINE: Duration = Duration::from_secs(20);

/// The cases of a subject.
pub struct Divided {
    /// The subject's name, in reports.
    pub name: &'static str,
    /// Returns a sample for a number of worlds, by a seed: the world's index, and a case of it.
    pub sample: fn(usize, u64) -> Vec<(usize, Case)>,
    /// Returns all cases, by a seed, and their number.
    pub full: fn(u64) -> Vec<Case>,
    pub full_count: fn() -> usize,
    /// The samples for the host backend and for the fake runtimes.
    pub samples: [OnceLock<Vec<(usize, Case)>>; 2],
}

impl Divided {
    fn cases(&self, part: Part) -> Vec<Case> {
        if is_full() {
            return (self.full)(plan::SEED);
        }
        let (sizes, index): (&[u32], usize) = match part.backend {
            Backend::Host => (&SIZES, 0),
            _ => (&FAKE_SIZES, 1),
        };
        let sample = self.samples[index]
            .get_or_init(|| (self.sample)(sizes.len(), plan::SEED + index as u64));
        let number = sizes.iter().position(|&size| size == part.ranks);
        let number = number.expect("a test's world is among the sizes");
        let here = sample.iter().filter(|(of, _)| *of == number);
        here.map(|(_, case)| case.clone()).collect()
    }

    /// Runs the cases of a world, once, and returns their outcomes.
    pub fn check(&self, part: Part) -> Vec<Outcome> {
        once(part, || self.run(part))
    }

    fn run(&self, part: Part) -> Vec<Outcome> {
        let kind = if part.threads { "threads" } else { "processes" };
        let name = format!("{}-{:?}-{}-{kind}", self.name, part.backend, part.ranks);
        let mut options = options(part.backend, part.ranks, part.threads, &name);
        options.deadline = DEADLINE;
        let mut world = World::launch(options).unwrap_or_else(|error| panic!("{name}: {error}"));
        let (mut totals, mut failed, mut outcomes) = (Totals::default(), Vec::new(), Vec::new());
        for record in world.run(&self.cases(part), |_| ()) {
            totals.count(&record.outcome);
            if let Outcome::Failed(reason) = &record.outcome {
                failed.push(format!("{}: {reason}", record.case));
            }
            outcomes.push(record.outcome);
        }
        account(&name, &totals, (self.full_count)());
        refuse_failures(&name, &failed);
        end(world, &name);
        outcomes
    }

    /// Checks that HIP does every case that CUDA does, over the fake runtimes.
    pub fn hold_hip_against_cuda(&self) {
        let mut wrong = Vec::new();
        let check = |part| self.check(part);
        let compared: usize = (FAKE_SIZES.into_iter())
            .map(|world| held_against_cuda(part(Backend::HipLinked, world), check, &mut wrong))
            .sum();
        assert!(wrong.is_empty(), "{}", wrong.join("\n"));
        let all: usize = FAKE_SIZES
            .into_iter()
            .map(|world| self.cases(part(Backend::Linked, world)).len())
            .sum();
        assert_eq!(compared, all);
    }
}

/// Returns the world of this many processes.
pub fn part(backend: Backend, ranks: u32) -> Part {
    Part {
        backend,
        ranks,
        threads: false,
        part: 0,
    }
}
