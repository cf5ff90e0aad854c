//! The report of a selftest: every case with its outcome, and the totals.

use super::case::Case;
use super::collectives::{CollectiveVariant, MulticastKernels};
use super::outcome::Outcome;
use super::rank::WorldDescription;
use super::world::Record;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// The result of a selftest, as it is written to JSON.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Report {
    /// [`super::SCHEMA`].
    pub schema: String,
    /// Version of symmem.
    pub version: String,
    /// Name of the backend.
    pub backend: String,
    /// Whether all cases ran, and not only the sample.
    pub full: bool,
    /// Whether only a quarter of the sample ran.
    #[serde(default)]
    pub quick: bool,
    /// Seed of the sample and of the data.
    pub seed: u64,
    /// Counts over all worlds.
    pub totals: Totals,
    /// One report per world size.
    pub worlds: Vec<WorldReport>,
}

/// The results of one world.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct WorldReport {
    /// World size, in ranks.
    pub world: u32,
    /// The ranks by node, as [`crate::RanksPerNode`] writes them; empty in reports of before there were nodes.
    #[serde(default)]
    pub ranks_per_node: String,
    /// The machine and features that the world ran on.
    pub about: WorldDescription,
    /// Why the world did not start, or did not shut down cleanly; `None` if it did both.
    #[serde(rename = "trouble", default, skip_serializing_if = "Option::is_none")]
    pub failure: Option<String>,
    /// The cases, in order.
    pub cases: Vec<NamedRecord>,
}

/// A [`Record`] with the case's readable name.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct NamedRecord {
    /// The case's name.
    pub name: String,
    /// The case, its outcome and duration.
    #[serde(flatten)]
    pub record: Record,
}

/// Counts of cases by outcome.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Cases that passed.
    pub passed: usize,
    /// Cases that were skipped, by reason.
    pub skipped: BTreeMap<String, usize>,
    /// Cases that failed.
    pub failed: usize,
    /// Passed cases that name a multicast algorithm.
    #[serde(default)]
    pub multicast: usize,
    /// Those of them that ran multicast kernels; the others ran a replacement algorithm.
    #[serde(default)]
    pub by_multicast: usize,
}

impl Totals {
    /// Counts an outcome.
    pub fn count(&mut self, outcome: &Outcome) {
        match outcome {
            Outcome::Passed => self.passed += 1,
            Outcome::Skipped(reason) => *self.skipped.entry(reason.clone()).or_default() += 1,
            Outcome::Failed(_) => self.failed += 1,
        }
    }

    /// Counts a passed case of a world of `world` ranks in the multicast totals.
    pub fn count_multicast(&mut self, case: &Case, world: u32, about: &WorldDescription) {
        self.multicast += usize::from(is_by_multicast(case));
        let by_kernels = uses_multicast(case, world, about.multicast_kernels);
        self.by_multicast += usize::from(by_kernels);
    }

    /// Adds the counts of `other`.
    pub fn add(&mut self, other: &Self) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.multicast += other.multicast;
        self.by_multicast += other.by_multicast;
        for (reason, count) in &other.skipped {
            *self.skipped.entry(reason.clone()).or_default() += count;
        }
    }

    /// Returns the number of all cases.
    pub fn cases(&self) -> usize {
        self.passed + self.failed + self.skipped.values().sum::<usize>()
    }
}

impl std::fmt::Display for Totals {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let skipped: usize = self.skipped.values().sum();
        write!(
            formatter,
            "{} passed, {} failed, {skipped} skipped",
            self.passed, self.failed
        )?;
        for (index, (reason, count)) in self.skipped.iter().enumerate() {
            write!(
                formatter,
                "{}{count}: {reason}",
                if index == 0 { " (" } else { "; " }
            )?;
        }
        if skipped > 0 {
            write!(formatter, ")")?;
        }
        if self.multicast > 0 {
            let (by_kernels, all) = (self.by_multicast, self.multicast);
            write!(
                formatter,
                "; {by_kernels} of {all} multicast cases ran multicast kernels"
            )?;
        }
        Ok(())
    }
}

impl WorldReport {
    /// Whether every case passed, and the world started and shut down cleanly.
    pub(super) fn has_passed(&self) -> bool {
        let passed = |case: &NamedRecord| case.record.outcome == Outcome::Passed;
        self.failure.is_none() && self.cases.iter().all(passed)
    }

    /// Returns the passed cases that ran multicast kernels.
    pub fn by_multicast(&self) -> impl Iterator<Item = &Record> {
        let records = self.cases.iter().map(|case| &case.record);
        records.filter(|record| {
            record.outcome == Outcome::Passed
                && uses_multicast(&record.case, self.world, self.about.multicast_kernels)
        })
    }

    /// Returns the multicast operations and algorithms for which no passed case ran multicast kernels.
    pub fn ways_without_multicast(&self) -> Vec<CollectiveVariant> {
        let mut variants: Vec<CollectiveVariant> = Vec::new();
        for variant in self
            .cases
            .iter()
            .filter_map(|case| variant(&case.record.case))
        {
            if variant.algorithm.is_multicast() && !variants.contains(&variant) {
                variants.push(variant);
            }
        }
        for record in self.by_multicast() {
            variants.retain(|other| variant(&record.case) != Some(*other));
        }
        variants
    }
}

impl Report {
    /// Whether every case passed or was skipped, and every world started and shut down cleanly.
    pub fn is_clean(&self) -> bool {
        self.totals.failed == 0 && self.worlds.iter().all(|world| world.failure.is_none())
    }
}

pub(super) fn variant(case: &Case) -> Option<CollectiveVariant> {
    match case {
        Case::Collective(case) => Some(case.variant),
        _ => None,
    }
}

/// Whether a case names a multicast algorithm.
pub(super) fn is_by_multicast(case: &Case) -> bool {
    variant(case).is_some_and(|variant| variant.algorithm.is_multicast())
}

/// Whether a case runs multicast kernels in a world of `world` ranks with these features.
pub(super) fn uses_multicast(case: &Case, world: u32, kernels: MulticastKernels) -> bool {
    matches!(case, Case::Collective(case) if case.uses_multicast(world as usize, kernels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::collectives::{AlgorithmName, Collective, CollectiveCase, Members, Mode};
    use crate::dtype::Dtype;

    #[test]
    fn what_names_multicast_and_went_another_way_is_not_counted_as_multicast() {
        let named = |variant: CollectiveVariant, members, outcome| NamedRecord {
            name: String::new(),
            record: Record {
                case: Case::Collective(CollectiveCase {
                    variant,
                    members,
                    ..by_multicast()
                }),
                outcome,
                nanoseconds: 0,
            },
        };
        let variant = |operation| CollectiveVariant {
            operation,
            ..by_multicast().variant
        };
        let (reduce, gather) = (Collective::AllReduce, Collective::AllGather);
        let failed = Outcome::Failed("a byte".into());
        let world = WorldReport {
            world: 2,
            ranks_per_node: "2".into(),
            about: WorldDescription::default(),
            failure: None,
            cases: vec![
                named(variant(reduce), Members::All, Outcome::Passed),
                named(variant(reduce), Members::Halves, Outcome::Passed),
                named(variant(gather), Members::RestReversed, Outcome::Passed),
                named(variant(gather), Members::All, failed),
            ],
        };
        assert_eq!(world.by_multicast().count(), 1);
        assert_eq!(world.ways_without_multicast(), [variant(gather)]);
        let mut totals = Totals::default();
        for case in &world.cases[..3] {
            totals.count(&case.record.outcome);
            totals.count_multicast(&case.record.case, 2, &world.about);
        }
        let said = "3 passed, 0 failed, 0 skipped; 1 of 3 multicast cases ran multicast kernels";
        assert_eq!(totals.to_string(), said);
        let alone = WorldReport { world: 1, ..world };
        assert_eq!(alone.by_multicast().count(), 0);
    }

    #[test]
    fn floats_of_8_bits_and_what_is_captured_count_where_the_world_has_them() {
        let case = |dtype, mode| {
            Case::Collective(CollectiveCase {
                dtype,
                mode,
                ..by_multicast()
            })
        };
        let goes =
            |case: &Case, captured, f8| uses_multicast(case, 2, MulticastKernels { captured, f8 });
        let f8 = case(Dtype::F8E4m3, Mode::Eager);
        assert!(goes(&f8, false, true) && !goes(&f8, true, false));
        let captured = case(Dtype::F32, Mode::Captured);
        assert!(goes(&captured, true, false) && !goes(&captured, false, true));
        // NVLS does not reduce 8-bit integers.
        assert!(!goes(&case(Dtype::I8, Mode::Eager), true, true));
    }

    #[test]
    fn a_report_of_before_these_counts_is_read() {
        let totals = r#"{"passed": 3, "skipped": {}, "failed": 1}"#;
        let totals: Totals = serde_json::from_str(totals).unwrap();
        assert_eq!((totals.cases(), totals.by_multicast), (4, 0));
        let about =
            r#"{"device": "", "driver_version": 0, "share_kind": "", "shares_device": false}"#;
        let about: WorldDescription = serde_json::from_str(about).unwrap();
        assert_eq!(about.multicast_kernels, MulticastKernels::default());
    }

    /// An all-reduce of all ranks by multicast.
    fn by_multicast() -> CollectiveCase {
        let variant = CollectiveVariant {
            operation: Collective::AllReduce,
            algorithm: AlgorithmName::Multicast,
        };
        CollectiveCase::plain(variant, Dtype::F32, 1)
    }
}
