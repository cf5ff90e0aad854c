//! Checks links and code blocks of the pages.
//!
//! The book's pages link to each other with relative paths, and to other files with their URL in the repository, since
//! mdBook copies only its own folder. The check looks up both in the working tree.

use super::chapters;
use crate::error::{Result, at};
use crate::readme::SOURCE;
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

/// Pages outside of the book.
const PAGES: [&str; 5] = [
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "AGENTS.md",
];

/// Returns broken links, and code blocks without a language, which rustdoc would compile as Rust.
pub fn problems(root: &Path) -> Result<Vec<String>> {
    let mut pages = chapters(root)?;
    pages.extend(
        PAGES
            .map(|page| root.join(page))
            .into_iter()
            .filter(|page| page.exists()),
    );
    let mut problems = Vec::new();
    for page in pages {
        let name = page
            .strip_prefix(root)
            .unwrap_or(&page)
            .display()
            .to_string();
        let text = at(&page, std::fs::read_to_string(&page))?;
        for link in links(&text) {
            if let Some(problem) = problem(root, &page, &link)? {
                problems.push(format!("{name}: {link}: {problem}"));
            }
        }
        let mut inside = false;
        for (number, line) in text.lines().enumerate() {
            let Some(language) = line.trim_start().strip_prefix("```") else {
                continue;
            };
            if !inside && language.is_empty() {
                problems.push(format!(
                    "{name}:{}: a code block without a language",
                    number + 1
                ));
            }
            inside = !inside;
        }
    }
    Ok(problems)
}

/// Returns the problem of a link, if it has one.
fn problem(root: &Path, page: &Path, link: &str) -> Result<Option<String>> {
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    let file: PathBuf = match target.strip_prefix(SOURCE) {
        Some(path) => root.join(path),
        None if target.contains("://") => return Ok(None),
        None if target.is_empty() => page.to_owned(),
        None => page.parent().unwrap_or(root).join(target),
    };
    if !file.exists() {
        return Ok(Some("there is no such file".into()));
    }
    if anchor.is_empty() {
        return Ok(None);
    }
    let text = at(&file, std::fs::read_to_string(&file))?;
    let found = anchors(&text).contains(anchor);
    Ok((!found).then(|| "there is no such heading".into()))
}

/// Returns the text without code blocks and code spans.
fn prose(text: &str) -> String {
    let mut inside = false;
    let lines = text.lines().filter(|line| {
        let fence = line.trim_start().starts_with("```");
        inside ^= fence;
        !inside && !fence
    });
    // Every second piece between backticks is code.
    let lines = lines.map(|line| line.split('`').step_by(2).collect::<String>() + "\n");
    lines.collect()
}

/// Returns the targets of inline links and of link definitions.
fn links(text: &str) -> Vec<String> {
    let prose = prose(text);
    let inline = prose
        .split("](")
        .skip(1)
        .filter_map(|rest| rest.split(')').next());
    let defined = text.lines().filter_map(|line| {
        let (_, target) = line.strip_prefix('[')?.split_once("]: ")?;
        Some(target)
    });
    inline
        .chain(defined)
        .map(|link| link.trim().to_owned())
        .collect()
}

/// Returns the anchors that GitHub and mdBook generate for a page's headings.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut inside = false;
    let mut anchors = BTreeSet::new();
    for line in text.lines() {
        inside ^= line.trim_start().starts_with("```");
        if inside || !line.starts_with('#') {
            continue;
        }
        let kept = line
            .trim_start_matches('#')
            .trim()
            .chars()
            .filter_map(|c| match c {
                ' ' => Some('-'),
                c if c.is_alphanumeric() || c == '-' || c == '_' => Some(c.to_ascii_lowercase()),
                _ => None,
            });
        let anchor: String = kept.collect();
        let mut unique = anchor.clone();
        let mut count = 0;
        while !anchors.insert(unique.clone()) {
            count += 1;
            unique = format!("{anchor}-{count}");
        }
    }
    anchors
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn anchors_are_those_of_github() {
        let found = anchors("# `put`, get & signal\n```sh\n# no heading\n```\n## NCCL\n## NCCL\n");
        let expected = ["put-get--signal", "nccl", "nccl-1"].map(str::to_owned);
        assert_eq!(found, BTreeSet::from(expected));
    }

    #[test]
    fn a_link_in_code_is_none() {
        let text = "[a](b.md) `[c](d.md)`\n```sh\n[e](f.md)\n```\n[`g`](h.md#i)\n[j]: k.md\n";
        assert_eq!(links(text), ["b.md", "h.md#i", "k.md"]);
    }

    #[test]
    fn a_missing_file_a_missing_heading_and_a_block_without_a_language_are_found() {
        let scratch = crate::tools::Scratch::new("book-links").unwrap();
        let folder = scratch.path().join("docs/src");
        std::fs::create_dir_all(&folder).unwrap();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "a.md",
            "# Here\n[1](#here) [2](#there) [3](b.md#gone) [4](c.md)\n",
        );
        write(
            "b.md",
            &format!("[5]({SOURCE}docs/src/a.md#here) [6]({SOURCE}d)\n```\nx\n```\n"),
        );
        assert_eq!(
            problems(scratch.path()).unwrap(),
            [
                "docs/src/a.md: #there: there is no such heading".to_owned(),
                "docs/src/a.md: b.md#gone: there is no such heading".to_owned(),
                "docs/src/a.md: c.md: there is no such file".to_owned(),
                format!("docs/src/b.md: {SOURCE}d: there is no such file"),
                "docs/src/b.md:2: a code block without a language".to_owned(),
            ]
        );
    }
}
