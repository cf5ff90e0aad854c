//! How much of the one backend's code is the other's. What both do is core's.
//!
//! A line counts as shared if it stands in a window of six lines that the other backend has too. Lines are
//! compared without what surrounds them, and blank ones are left out: closing braces and the blank lines between
//! functions would make windows of nothing.

use std::collections::HashSet;
use std::fmt;

use super::{Source, sources};
use crate::error::Result;

/// Lines of a window.
const WINDOW: usize = 6;
/// Of a hundred lines this many are too many.
const LIMIT: usize = 5;

/// What was counted.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap {
    lines: usize,
    /// Where shared lines are, and how many, by file.
    shared: Vec<(String, usize)>,
}

/// Counts the lines of `backend-hip` that stand in `backend-cuda` too.
pub fn measure() -> Result<Overlap> {
    let [one, other] = [
        sources("backend-hip", &["rs"])?,
        sources("backend-cuda", &["rs"])?,
    ];
    Ok(compare(&one, &other))
}

fn compare(one: &[Source], other: &[Source]) -> Overlap {
    let other: Vec<Vec<&str>> = other.iter().map(lines).collect();
    let windows: HashSet<&[&str]> = other
        .iter()
        .flat_map(|lines| lines.windows(WINDOW))
        .collect();
    let mut overlap = Overlap {
        lines: 0,
        shared: Vec::new(),
    };
    for source in one {
        let lines = lines(source);
        let mut shared = vec![false; lines.len()];
        for (first, window) in lines.windows(WINDOW).enumerate() {
            if windows.contains(window) {
                shared[first..first + WINDOW].fill(true);
            }
        }
        let count = shared.iter().filter(|shared| **shared).count();
        overlap.lines += lines.len();
        if count != 0 {
            overlap.shared.push((source.path.clone(), count));
        }
    }
    overlap
}

fn lines(source: &Source) -> Vec<&str> {
    let trimmed = source.text.lines().map(str::trim);
    trimmed.filter(|line| !line.is_empty()).collect()
}

impl Overlap {
    fn shared(&self) -> usize {
        self.shared.iter().map(|(_, count)| count).sum()
    }

    /// Why it is too much, if it is.
    pub fn complaint(&self) -> Option<String> {
        let too_much = self.lines == 0 || self.shared() * 100 >= self.lines * LIMIT;
        too_much.then(|| {
            let mut files = self.shared.clone();
            files.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
            let files: Vec<String> = files
                .iter()
                .map(|(path, count)| format!("{path}: {count}"))
                .collect();
            format!(
                "{self}; under {LIMIT} % is meant: move what both backends do to core\n{}",
                files.join("\n")
            )
        })
    }
}

impl fmt::Display for Overlap {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shared = self.shared();
        let percent = 100.0 * shared as f64 / self.lines.max(1) as f64;
        write!(
            formatter,
            "{shared} of {} lines of backend-hip stand in backend-cuda too, in windows of {WINDOW}: {percent:.1} %",
            self.lines
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(lines: impl IntoIterator<Item = String>) -> Source {
        Source {
            path: "file".into(),
            text: lines.into_iter().collect::<Vec<_>>().join("\n\n  "),
        }
    }

    fn numbered(name: &str, lines: std::ops::Range<u32>) -> impl Iterator<Item = String> + use<> {
        let name = name.to_owned();
        lines.map(move |line| format!("{name} {line}"))
    }

    #[test]
    fn a_window_that_both_have_counts_with_all_its_lines() {
        let one = source(numbered("own", 0..150).chain(numbered("both", 0..8)));
        let other = source(numbered("both", 0..8).chain(numbered("other", 0..9)));
        let overlap = compare(&[one], &[other]);
        assert_eq!((overlap.lines, overlap.shared()), (158, 8));
        let complaint = overlap.complaint().unwrap();
        assert!(
            complaint.contains("5.1 %") && complaint.ends_with("file: 8"),
            "{complaint}"
        );
    }

    #[test]
    fn fewer_lines_than_a_window_do_not_count() {
        let one = source(numbered("own", 0..9).chain(numbered("both", 0..5)));
        let other = source(numbered("both", 0..5).chain(numbered("other", 0..9)));
        let overlap = compare(&[one], &[other]);
        assert_eq!(overlap.shared(), 0);
        assert_eq!(overlap.complaint(), None);
    }

    #[test]
    fn a_backend_that_is_not_there_is_no_success() {
        assert!(compare(&[], &[]).complaint().is_some());
    }
}
