//! A page of sections, with a table of contents that leads to each of them.

use super::Escaped;
use std::fmt::{self, Write};

const STYLE: &str = include_str!("../page.css");
const SCRIPT: &str = include_str!("../page.js");

/// Content security policy: the browser loads nothing but the inline style and script.
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; base-uri 'none'; \
                      form-action 'none'";

/// A page under construction.
pub(in crate::report) struct Document {
    title: String,
    /// HTML above the table of contents, with the first heading.
    head: String,
    sections: String,
    contents: Vec<Entry>,
}

/// A line of the table of contents.
struct Entry {
    id: String,
    title: String,
    /// Whether the entry is a part of the section before it.
    is_part: bool,
}

impl Document {
    /// A page without sections. `head` is HTML with the page's first heading.
    pub fn new(title: &str, head: String) -> Self {
        Self {
            title: title.to_owned(),
            head,
            sections: String::new(),
            contents: Vec::new(),
        }
    }

    /// Begins a section; its HTML follows.
    pub fn section(&mut self, title: &str) -> Result<&mut String, fmt::Error> {
        if !self.contents.is_empty() {
            self.sections.push_str("</section>\n");
        }
        let id = self.enter(title, false);
        let title = Escaped(title);
        writeln!(
            self.sections,
            "<section aria-labelledby=\"{id}\">\n<h2 id=\"{id}\" tabindex=\"-1\">{title}</h2>"
        )?;
        Ok(&mut self.sections)
    }

    /// Begins a part of the section; its HTML follows.
    pub fn part(&mut self, title: &str) -> Result<&mut String, fmt::Error> {
        let id = self.enter(title, true);
        let title = Escaped(title);
        writeln!(
            self.sections,
            "<h3 id=\"{id}\" tabindex=\"-1\">{title}</h3>"
        )?;
        Ok(&mut self.sections)
    }

    fn enter(&mut self, title: &str, is_part: bool) -> String {
        let mut id: String = (title.chars().take(40))
            .map(|letter| match letter.is_ascii_alphanumeric() {
                true => letter.to_ascii_lowercase(),
                false => '-',
            })
            .collect();
        if self.contents.iter().any(|entry| entry.id == id) {
            id += &format!("-{}", self.contents.len());
        }
        self.contents.push(Entry {
            id: id.clone(),
            title: title.to_owned(),
            is_part,
        });
        id
    }

    /// The whole page. `symbols` is HTML that its plots refer to.
    pub fn finish(mut self, symbols: &str) -> Result<String, fmt::Error> {
        if !self.contents.is_empty() {
            self.sections.push_str("</section>\n");
        }
        let mut page = format!(
            "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"{POLICY}\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n\
             <a class=\"skip\" href=\"#content\">Skip to the content</a>\n{symbols}<header>\n{}</header>\n",
            Escaped(&self.title),
            self.head
        );
        self.draw_contents(&mut page)?;
        write!(
            page,
            "<main id=\"content\">\n{}</main>\n<script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            self.sections
        )?;
        Ok(page)
    }

    fn draw_contents(&self, page: &mut String) -> fmt::Result {
        page.push_str(
            "<nav aria-label=\"Contents\">\n<details class=\"contents\">\n<summary>Contents</summary>\n<ul>\n",
        );
        let mut entries = self.contents.iter().peekable();
        while let Some(entry) = entries.next() {
            write!(page, "<li>{}", link(entry))?;
            if entries.peek().is_some_and(|next| next.is_part) {
                page.push_str("\n<ul>\n");
                while let Some(part) = entries.next_if(|next| next.is_part) {
                    writeln!(page, "<li>{}</li>", link(part))?;
                }
                page.push_str("</ul>\n");
            }
            page.push_str("</li>\n");
        }
        page.push_str("</ul>\n</details>\n</nav>\n");
        Ok(())
    }
}

fn link(entry: &Entry) -> String {
    format!("<a href=\"#{}\">{}</a>", entry.id, Escaped(&entry.title))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_contents_lead_to_every_section_and_part() {
        let mut page = Document::new("T", "<h1>T</h1>\n".into());
        page.section("A & B").unwrap().push_str("<p>text</p>\n");
        page.part("A & B").unwrap();
        page.part("\"><script>").unwrap();
        page.section("C").unwrap();
        let page = page.finish("").unwrap();
        for part in [
            "<a href=\"#a---b\">A &amp; B</a>\n<ul>\n<li><a href=\"#a---b-1\">A &amp; B</a>",
            "<h3 id=\"---script-\" tabindex=\"-1\">&quot;&gt;&lt;script&gt;</h3>",
            "<h2 id=\"c\" tabindex=\"-1\">C</h2>\n</section>\n</main>",
        ] {
            assert!(page.contains(part), "{part} is missing in\n{page}");
        }
        assert_eq!(page.matches("<section").count(), 2);
        assert_eq!(page.matches("</section>").count(), 2);
    }
}
