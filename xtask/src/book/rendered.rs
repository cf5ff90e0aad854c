//! Checks links and anchors of the HTML that mdBook writes.
//!
//! The check of the sources cannot see what mdBook makes of them: which anchors its headings get, which pages it writes
//! and which files it copies. Links into the repository on the web are looked up in the working tree.

use crate::error::{Error, Result, at};
use crate::readme::SOURCE;
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};

/// The URL at which a reader edits a file of the repository, before its path.
const EDIT: &str = "https://github.com/symmem/symmem/edit/main/";

/// A rendered page.
struct Page {
    /// The folder to which its links are relative.
    base: PathBuf,
    links: Vec<String>,
    anchors: BTreeSet<String>,
}

/// Returns the links that lead nowhere, one line each.
pub fn problems(root: &Path, folder: &Path) -> Result<Vec<String>> {
    let mut pages = BTreeMap::new();
    collect(folder, folder, &mut pages)?;
    if !pages.contains_key(Path::new("index.html")) {
        return Err(Error::Source {
            path: folder.to_owned(),
            what: "there is no index.html; render the book into it with `mdbook build docs -d DIR`"
                .into(),
        });
    }
    let mut problems = Vec::new();
    for (name, page) in &pages {
        for link in &page.links {
            if let Some(problem) = problem(root, folder, &pages, name, page, link) {
                problems.push(format!("{}: {link}: {problem}", name.display()));
            }
        }
    }
    Ok(problems)
}

/// Reads the pages of a folder, by their paths in the book.
fn collect(book: &Path, folder: &Path, pages: &mut BTreeMap<PathBuf, Page>) -> Result<()> {
    for entry in at(folder, std::fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        if path.is_dir() {
            collect(book, &path, pages)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            let name = path.strip_prefix(book).unwrap_or(&path).to_owned();
            let text = at(&path, std::fs::read_to_string(&path))?;
            let page = Page::parse(&name, &text);
            pages.insert(name, page);
        }
    }
    Ok(())
}

impl Page {
    fn parse(name: &Path, text: &str) -> Self {
        let mut page = Self {
            base: name.parent().unwrap_or(Path::new("")).to_owned(),
            links: Vec::new(),
            anchors: BTreeSet::new(),
        };
        for tag in tags(text) {
            if tag.starts_with("base ") {
                // The page for addresses that do not exist is shown at any of them, so its links start at the site.
                page.base = PathBuf::new();
                continue;
            }
            for (attribute, value) in attributes(tag) {
                match attribute {
                    "id" => _ = page.anchors.insert(value),
                    "href" | "src" => page.links.push(value),
                    _ => {}
                }
            }
        }
        page
    }
}

/// Returns the text of each tag, without comments and the contents of scripts.
fn tags(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        loop {
            rest = &rest[rest.find('<')? + 1..];
            if let Some(comment) = rest.strip_prefix("!--") {
                rest = &comment[comment.find("-->")?..];
                continue;
            }
            let end = rest.find('>')?;
            let tag = &rest[..end];
            rest = &rest[end..];
            if tag.starts_with("script") {
                rest = &rest[rest.find("</script")?..];
            }
            return Some(tag);
        }
    })
}

/// Returns the attributes of a tag that have a quoted value, with entities replaced.
fn attributes(tag: &str) -> impl Iterator<Item = (&str, String)> {
    let mut rest = tag;
    std::iter::from_fn(move || {
        let (head, tail) = rest.split_once("=\"")?;
        let (value, tail) = tail.split_once('"')?;
        rest = tail;
        let name = head
            .split_ascii_whitespace()
            .next_back()
            .unwrap_or_default();
        let value = value.replace("&quot;", "\"").replace("&#x27;", "'");
        Some((name, value.replace("&#39;", "'").replace("&amp;", "&")))
    })
}

/// Returns what is wrong with a link.
fn problem(
    root: &Path,
    folder: &Path,
    pages: &BTreeMap<PathBuf, Page>,
    name: &Path,
    page: &Page,
    link: &str,
) -> Option<&'static str> {
    let (target, anchor) = link.split_once('#').unwrap_or((link, ""));
    for place in [SOURCE, EDIT] {
        if let Some(path) = target.strip_prefix(place) {
            return (!root.join(path).exists()).then_some("the repository has no such file");
        }
    }
    if target.contains("://") || target.starts_with("data:") || target.starts_with("mailto:") {
        return None;
    }
    let target = match target.strip_prefix('/') {
        Some(path) => PathBuf::from(path),
        None if target.is_empty() => name.to_owned(),
        None => page.base.join(target),
    };
    let Some(target) = plain(&target) else {
        return Some("it leads out of the book");
    };
    if !folder.join(&target).exists() {
        return Some("there is no such file");
    }
    match pages.get(&target) {
        Some(other) if !anchor.is_empty() && !other.anchors.contains(anchor) => {
            Some("there is no such anchor")
        }
        _ => None,
    }
}

/// Returns the path without `.` and `..`; `None` if it leads out of the book.
fn plain(path: &Path) -> Option<PathBuf> {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(part) => plain.push(part),
            Component::ParentDir => plain.pop().then_some(())?,
            _ => {}
        }
    }
    Some(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, files: &[(&str, &str)]) -> Result<Vec<String>> {
        let scratch = crate::tools::Scratch::new(name)?;
        for (name, text) in files {
            let path = scratch.path().join("book").join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        }
        problems(scratch.path(), &scratch.path().join("book"))
    }

    #[test]
    fn a_missing_page_a_missing_anchor_and_a_missing_file_of_the_repository_are_found() {
        let index = format!(
            "<a class=\"x\" href=\"a/b.html#here\">1</a> <a href=\"a/b.html#gone\">2</a> <a href=\"c.html\">3</a>\
             <a href=\"{SOURCE}d.rs\">4</a> <img src=\"../e.png\"> <a href=\"https://example.com/#f\">5</a>\
             <!-- <a href=\"g.html\"> --><script>\"<a href=\\\"h.html\\\">\"</script>"
        );
        let other = "<h1 id=\"here\"><a href=\"#here\">H</a></h1><a href=\"../index.html\">up</a>";
        assert_eq!(
            check(
                "book-links-rendered",
                &[("index.html", &index), ("a/b.html", other)]
            )
            .unwrap(),
            [
                "index.html: a/b.html#gone: there is no such anchor".to_owned(),
                "index.html: c.html: there is no such file".to_owned(),
                format!("index.html: {SOURCE}d.rs: the repository has no such file"),
                "index.html: ../e.png: it leads out of the book".to_owned(),
            ]
        );
    }

    #[test]
    fn a_folder_without_a_book_is_refused() {
        let error = check("book-none-rendered", &[("other.html", "")]).unwrap_err();
        assert!(error.to_string().contains("mdbook build"), "{error}");
    }
}
