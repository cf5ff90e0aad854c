//! Measures how much text the two GPU backends share, since common code belongs in a crate below them.
//!
//! A line counts as shared if it lies in a window of six lines that the other backend has too. The comparison ignores
//! indentation and blank lines; otherwise closing braces and blank lines between functions would form windows.

use std::collections::HashSet;
use std::fmt;
use std::path::{Path, PathBuf};

use crate::error::{Result, at};

/// Lines in a window.
const WINDOW: usize = 6;
/// The check fails if at least this percentage of lines is shared.
const LIMIT: usize = 5;

/// A file's path, relative to the repository's root, and its text.
struct Source {
    path: String,
    text: String,
}

/// The lines of one backend that the other has too.
#[derive(Debug, PartialEq, Eq)]
pub struct Overlap {
    lines: usize,
    /// The number of shared lines of each file with shared lines.
    shared: Vec<(String, usize)>,
}

/// Counts the lines of `backend-hip` that are in `backend-cuda`, too.
pub fn measure(root: &Path) -> Result<Overlap> {
    let one = sources(root, "backend-hip")?;
    let other = sources(root, "backend-cuda")?;
    Ok(compare(&one, &other))
}

/// Reads the Rust files in `folder` and below.
fn sources(root: &Path, folder: &str) -> Result<Vec<Source>> {
    let mut files = Vec::new();
    collect(&root.join(folder), &mut files)?;
    files.retain(|file| file.extension().is_some_and(|extension| extension == "rs"));
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = at(&file, std::fs::read_to_string(&file))?;
            let path = file.strip_prefix(root).unwrap_or(&file).to_string_lossy();
            Ok(Source {
                path: path.into_owned(),
                text,
            })
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in at(folder, std::fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
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

    /// Returns the error text if the limit is reached or there was nothing to compare. It lists the files with most
    /// shared lines first.
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
                "{self}; the limit is {LIMIT} %: move common code into a crate below them\n{}",
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
            "{shared} of {} lines of backend-hip are in backend-cuda too, in windows of {WINDOW} lines: {percent:.1} %",
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
    fn all_lines_of_a_shared_window_count() {
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
    fn shared_runs_shorter_than_a_window_do_not_count() {
        let one = source(numbered("own", 0..9).chain(numbered("both", 0..5)));
        let other = source(numbered("both", 0..5).chain(numbered("other", 0..9)));
        let overlap = compare(&[one], &[other]);
        assert_eq!(overlap.shared(), 0);
        assert_eq!(overlap.complaint(), None);
    }

    #[test]
    fn a_missing_backend_is_an_error() {
        assert!(compare(&[], &[]).complaint().is_some());
    }
}
