//! The tables of results in the book and in the README, made from recorded benchmarks, so that nobody copies a figure by
//! hand.
//!
//! A comment of the page names the kind of table and the file in `benches/results`:
//!
//! ```text
//! <!-- results:begin collectives 2026-11-21-collectives-4xh200.json -->
//! <!-- results:end -->
//! ```
//!
//! `cargo xtask book --write` fills the text between both comments, and `cargo xtask book` compares it with the file.
//! `cargo xtask readme FILE` puts a file of the same name and another date into the comments first.

mod collectives;
mod gemm;
mod transfers;

use crate::error::{Error, Result, at};
use crate::tools::root;
use serde_json::Value;
use std::path::{Path, PathBuf};

/// The URL of the repository's files, before their paths.
pub const SOURCE: &str = "https://github.com/symmem/symmem/blob/main/";

const BEGIN: &str = "<!-- results:begin ";
const BEGIN_CLOSES: &str = " -->\n";
const END: &str = "<!-- results:end -->";
/// The pages with tables of results.
const PAGES: [&str; 2] = ["docs/src/results.md", "README.md"];
/// Where recorded benchmarks are.
const FOLDER: &str = "benches/results";

#[derive(clap::Args)]
pub struct Options {
    /// The benchmark's JSON file, in benches/results
    report: PathBuf,
}

/// Replaces files of the same name and another date in the comments, and makes the tables again.
pub fn run(options: &Options) -> Result<()> {
    let root = root();
    let name = options.report.file_name().unwrap_or_default();
    let name = name.to_string_lossy().into_owned();
    let mut shown = false;
    for page in PAGES {
        let path = root.join(page);
        let text = at(&path, std::fs::read_to_string(&path))?;
        let text = rewritten(&path, &text, |table| {
            if series(&table.file) == series(&name) {
                shown = true;
                table.file.clone_from(&name);
            }
            Ok(table.kind.text(&read(&root, &table.file)?, &table.file))
        })?;
        at(&path, std::fs::write(&path, text))?;
    }
    match shown {
        true => Ok(()),
        false => Err(Error::Source {
            path: options.report.clone(),
            what: format!(
                "no table of {} shows a file of this name with another date; put its name into a comment \
                 `{BEGIN}KIND FILE{}` and run `cargo xtask book --write`",
                PAGES.join(" or "),
                BEGIN_CLOSES.trim_end()
            ),
        }),
    }
}

/// Returns the name of a file without its date: `collectives-4xh200.json`.
fn series(name: &str) -> &str {
    name.trim_start_matches(|c: char| c.is_ascii_digit() || c == '-')
}

/// Makes the tables of all pages again from the files that they name.
pub fn write(root: &Path) -> Result<()> {
    for page in PAGES {
        let path = root.join(page);
        let text = at(&path, std::fs::read_to_string(&path))?;
        at(&path, std::fs::write(&path, remade(root, &path, &text)?))?;
    }
    Ok(())
}

/// Returns the pages with a table that is not the one its file makes.
pub fn stale(root: &Path) -> Result<Vec<&'static str>> {
    let mut stale = Vec::new();
    for page in PAGES {
        let path = root.join(page);
        if path.exists() {
            let text = at(&path, std::fs::read_to_string(&path))?;
            if remade(root, &path, &text)? != text {
                stale.push(page);
            }
        }
    }
    Ok(stale)
}

fn remade(root: &Path, path: &Path, page: &str) -> Result<String> {
    rewritten(path, page, |table| {
        Ok(table.kind.text(&read(root, &table.file)?, &table.file))
    })
}

/// Kind and file that a comment names.
struct Table {
    kind: Kind,
    file: String,
}

/// Replaces the text behind each comment. The closure may name another file.
fn rewritten(
    path: &Path,
    page: &str,
    mut text: impl FnMut(&mut Table) -> Result<String>,
) -> Result<String> {
    let wrong = |what: String| Error::Source {
        path: path.to_owned(),
        what,
    };
    let mut parts = page.split(BEGIN);
    let mut made = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (words, rest) = part
            .split_once(BEGIN_CLOSES)
            .ok_or_else(|| wrong(format!("`{BEGIN}` without its `-->`")))?;
        let (_, tail) = rest
            .split_once(END)
            .ok_or_else(|| wrong(format!("`{BEGIN}{words} -->` without `{END}`")))?;
        let (kind, file) = words.split_once(' ').unwrap_or((words, ""));
        let kind = Kind::named(kind)
            .ok_or_else(|| wrong(format!("`{kind}` is no kind of table; use {KINDS:?}")))?;
        let mut table = Table {
            kind,
            file: file.to_owned(),
        };
        let body = text(&mut table)?;
        made += &format!(
            "{BEGIN}{} {}{BEGIN_CLOSES}{body}{END}{tail}",
            kind.name(),
            table.file
        );
    }
    Ok(made)
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    /// Bandwidth and latency between two ranks.
    Transfers,
    /// A table for each collective.
    Collectives,
    /// One table with a row for each collective.
    Summary,
    /// All-gather + GEMM, A sharded by rows.
    GemmRows,
    /// All-gather + GEMM, A sharded by columns.
    GemmColumns,
}

const KINDS: [(&str, Kind); 5] = [
    ("transfers", Kind::Transfers),
    ("collectives", Kind::Collectives),
    ("summary", Kind::Summary),
    ("gemm-rows", Kind::GemmRows),
    ("gemm-columns", Kind::GemmColumns),
];

impl Kind {
    fn named(name: &str) -> Option<Self> {
        let found = KINDS.into_iter().find(|(known, _)| *known == name);
        found.map(|(_, kind)| kind)
    }

    fn name(self) -> &'static str {
        let found = KINDS.into_iter().find(|(_, kind)| *kind == self);
        found.map_or("", |(name, _)| name)
    }

    fn text(self, report: &Value, name: &str) -> String {
        match self {
            Self::Transfers => transfers::section(report, name),
            Self::Collectives => collectives::section(report, name),
            Self::Summary => collectives::summary(report, name),
            Self::GemmRows => gemm::section(report, name, "rows"),
            Self::GemmColumns => gemm::section(report, name, "columns"),
        }
    }
}

fn read(root: &Path, name: &str) -> Result<Value> {
    let path = root.join(FOLDER).join(name);
    let text = at(&path, std::fs::read_to_string(&path))?;
    serde_json::from_str(&text).map_err(|source| Error::Manifest { path, source })
}

/// Returns the number of ranks of a run.
fn ranks(report: &Value) -> u64 {
    let worlds = ["collectives", "ag_gemm"].map(|part| report[part]["world"].as_u64());
    let devices = report["environment"]["devices"].as_array().map(Vec::len);
    let world = worlds.into_iter().flatten().next();
    world.unwrap_or(devices.unwrap_or_default() as u64)
}

/// Returns device, date, commit and file of a report, for the end of a caption.
fn origin(report: &Value, name: &str, folder: &str) -> String {
    let environment = &report["environment"];
    format!(
        "{} × {}, {}, commit {}, [`{name}`]({folder}{FOLDER}/{name})",
        ranks(report),
        word(&environment["devices"][0]),
        word(&environment["date"])
            .split('T')
            .next()
            .unwrap_or_default(),
        word(&environment["commit"])
            .chars()
            .take(12)
            .collect::<String>(),
    )
}

fn word(value: &Value) -> &str {
    value.as_str().unwrap_or("unknown")
}

fn size(bytes: u64) -> String {
    match bytes {
        0..1024 => format!("{bytes} B"),
        1024..1048576 => format!("{} KiB", bytes >> 10),
        1048576..1073741824 => format!("{} MiB", bytes >> 20),
        _ => format!("{} GiB", bytes >> 30),
    }
}

/// Formats a number with three significant digits.
fn figure(rate: f64) -> String {
    match rate {
        rate if rate < 10.0 => format!("{rate:.2}"),
        rate if rate < 100.0 => format!("{rate:.1}"),
        rate => format!("{rate:.0}"),
    }
}

/// Formats a ratio; a dash if there is none.
fn times(ratio: Option<f64>) -> String {
    ratio.map_or("–".into(), |ratio| format!("{ratio:.2}×"))
}

/// Returns the header of a table: columns of names, then right-aligned columns of numbers.
fn head(names: &[&str], numbers: &[&str]) -> String {
    let titles: Vec<&str> = names.iter().chain(numbers).copied().collect();
    format!(
        "| {} |\n|{}{}\n",
        titles.join(" | "),
        "---|".repeat(names.len()),
        "---:|".repeat(numbers.len())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pages_show_what_the_reports_that_they_name_say() {
        assert_eq!(stale(&root()).unwrap(), Vec::<&str>::new());
    }

    #[test]
    fn files_of_one_name_differ_in_the_date_only() {
        assert_eq!(
            series("2026-11-21-collectives-4xh200.json"),
            "collectives-4xh200.json"
        );
    }

    #[test]
    fn only_what_is_between_the_comments_changes_and_another_file_goes_into_them() {
        let page = "a\n<!-- results:begin summary x.json -->\nold\n<!-- results:end -->\nb";
        let made = rewritten(Path::new("page"), page, |table| {
            assert_eq!(table.kind, Kind::Summary);
            table.file = "y.json".into();
            Ok("new\n".into())
        });
        assert_eq!(
            made.unwrap(),
            "a\n<!-- results:begin summary y.json -->\nnew\n<!-- results:end -->\nb"
        );
    }

    #[test]
    fn a_comment_without_its_end_or_with_a_kind_that_there_is_not_is_refused() {
        for (page, expected) in [
            (
                "<!-- results:begin summary x.json -->\n",
                "without `<!-- results:end -->`",
            ),
            (
                "<!-- results:begin other x.json -->\n<!-- results:end -->",
                "`other` is no kind",
            ),
        ] {
            let error = rewritten(Path::new("page"), page, |_| Ok(String::new())).unwrap_err();
            assert!(error.to_string().contains(expected), "{error}");
        }
    }

    #[test]
    fn tables_have_at_most_seven_columns_and_their_captions_name_where_they_come_from() {
        for page in PAGES {
            let text = std::fs::read_to_string(root().join(page)).unwrap();
            for part in text.split(BEGIN).skip(1) {
                let body = part.split_once(END).unwrap().0;
                let lines: Vec<&str> = body.lines().collect();
                let rules = lines
                    .iter()
                    .enumerate()
                    .filter(|(_, line)| line.starts_with("|---"));
                for (number, rule) in rules {
                    assert!(rule.matches('|').count() <= 8, "{page}: {rule}");
                    let caption = lines[number - 3];
                    for part in ["commit ", ".json`](", " × "] {
                        assert!(caption.contains(part), "{page}: {part} in {caption:?}");
                    }
                }
            }
        }
    }
}
