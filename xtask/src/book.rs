//! `cargo xtask book`: checks README and book (size, links, code blocks, chapters, the table of variables, the tables of
//! results), or the links of the rendered book.

mod links;
mod rendered;
mod table;
/// The library's table. It is compiled here, since a dependency would make every maintainers' command compile the
/// library.
#[path = "../../src/base/variables.rs"]
mod variables;

use crate::error::{Error, Result, at};
use crate::readme;
use crate::tools::root;
use std::path::{Path, PathBuf};

/// Bytes that a visitor of the repository's page reads at most.
const README_BYTES: usize = 12_288;
/// The page with the table of variables.
const VARIABLES_PAGE: &str = "docs/src/variables.md";
const BEGIN: &str = "<!-- variables:begin -->\n";
const END: &str = "<!-- variables:end -->";

#[derive(clap::Args)]
pub struct Options {
    /// Write the table of variables and the tables of results into their pages first
    #[arg(long)]
    write: bool,
    /// Check the links and anchors of the HTML that mdBook rendered into this folder instead
    #[arg(long, value_name = "DIR", conflicts_with = "write")]
    rendered: Option<PathBuf>,
}

pub fn run(options: &Options) -> Result<()> {
    if options.write {
        let path = root().join(VARIABLES_PAGE);
        let page = at(&path, std::fs::read_to_string(&path))?;
        let changed = between(&page, BEGIN, END, &table::all()).ok_or_else(|| Error::Source {
            path: path.clone(),
            what: "the marks of the table are missing".into(),
        })?;
        at(&path, std::fs::write(&path, changed))?;
        readme::write(&root())?;
    }
    let problems = match &options.rendered {
        Some(folder) => rendered::problems(&root(), folder)?,
        None => problems(&root())?,
    };
    match problems.is_empty() {
        true => Ok(()),
        false => Err(Error::Book(problems)),
    }
}

/// Replaces the text between two marks; `None` if the marks are missing.
fn between(page: &str, begin: &str, end: &str, text: &str) -> Option<String> {
    let (head, rest) = page.split_once(begin)?;
    let (_, tail) = rest.split_once(end)?;
    Some(format!("{head}{begin}{text}{end}{tail}"))
}

/// Returns the problems of the pages, one line each.
fn problems(root: &Path) -> Result<Vec<String>> {
    let mut problems = links::problems(root)?;
    let read = |name: &str| {
        let path = root.join(name);
        at(&path, std::fs::read_to_string(&path))
    };
    let readme = read("README.md")?.len();
    if readme > README_BYTES {
        problems.push(format!(
            "README.md: {readme} bytes, of at most {README_BYTES}; move text to docs/src"
        ));
    }
    let page = read(VARIABLES_PAGE)?;
    if between(&page, BEGIN, END, &table::all()).as_deref() != Some(page.as_str()) {
        problems.push(format!(
            "{VARIABLES_PAGE}: the table is not that of src/base/variables.rs; run `cargo xtask book --write`"
        ));
    }
    for page in readme::stale(root)? {
        problems.push(format!(
            "{page}: a table of results is not what its file makes; run `cargo xtask book --write`"
        ));
    }
    let (summary, library) = (read("docs/src/SUMMARY.md")?, read("src/lib.rs")?);
    for chapter in chapters(root)? {
        let name = chapter.file_name().unwrap_or_default().to_string_lossy();
        if name == "SUMMARY.md" {
            continue;
        }
        if !summary.contains(&format!("({name})")) {
            problems.push(format!("docs/src/{name}: SUMMARY.md does not list it"));
        }
        let text = at(&chapter, std::fs::read_to_string(&chapter))?;
        if text.contains("```rust") && !library.contains(&format!("../docs/src/{name}\"")) {
            problems.push(format!(
                "docs/src/{name}: src/lib.rs does not include it, so its examples are not compiled"
            ));
        }
    }
    Ok(problems)
}

/// Returns the book's files in alphabetical order.
fn chapters(root: &Path) -> Result<Vec<PathBuf>> {
    let folder = root.join("docs/src");
    let mut files = Vec::new();
    for entry in at(&folder, std::fs::read_dir(&folder))? {
        files.push(at(&folder, entry)?.path());
    }
    files.sort();
    Ok(files)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_readme_and_the_book_have_no_problem() {
        assert_eq!(problems(&root()).unwrap(), Vec::<String>::new());
    }

    #[test]
    fn a_stale_table_a_chapter_that_is_not_listed_and_one_that_is_not_compiled_are_found() {
        let scratch = crate::tools::Scratch::new("book").unwrap();
        let write = |name: &str, text: &str| {
            let path = scratch.path().join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        write("README.md", &"x".repeat(README_BYTES + 1));
        write("src/lib.rs", "");
        write("docs/src/SUMMARY.md", "[variables](variables.md)\n");
        write(VARIABLES_PAGE, &format!("{BEGIN}old{END}"));
        write("docs/src/other.md", "```rust\nfn main() {}\n```\n");
        let found = problems(scratch.path()).unwrap();
        for expected in [
            "README.md: 12289 bytes",
            "variables.md: the table is not",
            "other.md: SUMMARY.md does not list it",
            "other.md: src/lib.rs does not include it",
        ] {
            assert!(
                found.iter().any(|line| line.contains(expected)),
                "{expected}: {found:?}"
            );
        }
        assert_eq!(found.len(), 4, "{found:?}");
    }

    #[test]
    fn only_what_is_between_the_marks_changes() {
        let page = format!("a {BEGIN}old{END} b");
        assert_eq!(
            between(&page, BEGIN, END, "new\n"),
            Some(format!("a {BEGIN}new\n{END} b"))
        );
        assert_eq!(between("no marks", BEGIN, END, "new"), None);
    }
}
