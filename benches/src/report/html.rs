//! Pieces of HTML that every page is made of.

use std::fmt::{self, Display, Formatter, Write};

mod document;
mod table;

pub(super) use document::Document;
pub(super) use table::table;

/// Text inside an element or a quoted attribute.
///
/// Marks that change the direction of writing are replaced: a name with one could show the text around it in
/// another order.
pub(super) struct Escaped<'a>(pub &'a str);

impl Display for Escaped<'_> {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => formatter.write_str("&amp;")?,
                '<' => formatter.write_str("&lt;")?,
                '>' => formatter.write_str("&gt;")?,
                '"' => formatter.write_str("&quot;")?,
                '\'' => formatter.write_str("&#39;")?,
                // HTML allows no control character but white space, not even as a reference.
                letter if letter.is_control() && !letter.is_whitespace() => {
                    formatter.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                '\u{61c}'
                | '\u{200e}'
                | '\u{200f}'
                | '\u{202a}'..='\u{202e}'
                | '\u{2066}'..='\u{2069}' => {
                    formatter.write_char(char::REPLACEMENT_CHARACTER)?;
                }
                letter => formatter.write_char(letter)?,
            }
        }
        Ok(())
    }
}
