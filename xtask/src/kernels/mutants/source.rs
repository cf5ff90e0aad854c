//! A source of device code, searched for calls.

use std::ops::Range;

/// The text of a source, and the same text with spaces for its comments.
pub struct Source {
    pub text: String,
    code: String,
}

/// A call: a name, maybe template arguments, and parentheses.
pub struct Call {
    /// The name, with what it is reached by, such as `waiter_.`.
    pub name: Range<usize>,
    /// Of the name's last part.
    pub last: Range<usize>,
    /// What is between the parentheses.
    pub arguments: Range<usize>,
}

impl Call {
    /// From the name to the closing parenthesis.
    pub fn whole(&self) -> Range<usize> {
        self.name.start..self.arguments.end + 1
    }
}

fn is_name(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || byte == b'_'
}

impl Source {
    pub fn new(text: String) -> Self {
        let mut code = text.clone().into_bytes();
        let mut comment = false;
        for index in 0..code.len() {
            comment |= code[index..].starts_with(b"//");
            comment &= code[index] != b'\n';
            // A comment may have characters of several bytes; each becomes a space.
            if comment {
                code[index] = b' ';
            }
        }
        let code = String::from_utf8_lossy(&code).into_owned();
        Self { text, code }
    }

    pub fn code(&self) -> &str {
        &self.code
    }

    /// Returns the places of a word, which is no part of another one.
    pub fn words<'a>(&'a self, word: &'a str) -> impl Iterator<Item = Range<usize>> + 'a {
        let bytes = self.code.as_bytes();
        self.code.match_indices(word).filter_map(move |(at, _)| {
            let end = at + word.len();
            let alone = (at == 0 || !is_name(bytes[at - 1]))
                && bytes.get(end).is_none_or(|next| !is_name(*next));
            alone.then_some(at..end)
        })
    }

    /// Returns the calls of a function, without its definitions.
    pub fn calls<'a>(&'a self, name: &'a str) -> impl Iterator<Item = Call> + 'a {
        self.words(name).filter_map(|last| {
            if self.defines(last.start) {
                return None;
            }
            let open = self.behind_template(last.end)?;
            let close = self.closing(open)?;
            Some(Call {
                name: self.beginning(last.start)..last.end,
                last,
                arguments: open + 1..close,
            })
        })
    }

    /// Returns whether a function is defined at a place: its line begins one and has no body before.
    fn defines(&self, at: usize) -> bool {
        let before = &self.code[self.line(at).start..at];
        before.contains("SYMMEM_DEVICE") && !before.contains('{')
    }

    /// Returns where the parentheses behind a name open, behind template arguments if there are any.
    fn behind_template(&self, end: usize) -> Option<usize> {
        let bytes = self.code.as_bytes();
        let mut at = end;
        if bytes.get(at) == Some(&b'<') {
            at += self.code[at..].find(['>', ';', '\n'])?;
            if bytes[at] != b'>' {
                return None;
            }
            at += 1;
        }
        (bytes.get(at) == Some(&b'(')).then_some(at)
    }

    /// Returns the parenthesis that closes one.
    pub fn closing(&self, open: usize) -> Option<usize> {
        let mut depth = 0;
        for (index, byte) in self.code.bytes().enumerate().skip(open) {
            match byte {
                b'(' => depth += 1,
                b')' => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return Some(index);
            }
        }
        None
    }

    /// Returns where an expression begins that ends in a name at `at`: before `arch::`, `waiter().` and the like.
    fn beginning(&self, mut at: usize) -> usize {
        let bytes = self.code.as_bytes();
        loop {
            let before = &self.code[..at];
            if let Some(rest) = before.strip_suffix("template ") {
                at = rest.len();
            } else if before.ends_with("::") || before.ends_with('.') {
                at -= if before.ends_with('.') { 1 } else { 2 };
                if at > 0 && bytes[at - 1] == b')' {
                    // Of a call without arguments.
                    at = before[..at].rfind('(').unwrap_or(at);
                }
                while at > 0 && is_name(bytes[at - 1]) {
                    at -= 1;
                }
            } else {
                return at;
            }
        }
    }

    /// Returns whether a range is a whole statement: its value is not used.
    pub fn is_statement(&self, range: &Range<usize>) -> bool {
        let before = self.code[..range.start].trim_end();
        let begins = before.ends_with([';', '{', '}', ')']) || before.ends_with("else");
        begins && self.code[range.end..].starts_with(';')
    }

    /// Returns the line at a place, without its end.
    pub fn line(&self, at: usize) -> Range<usize> {
        let start = self.code[..at].rfind('\n').map_or(0, |end| end + 1);
        let end = self.code[at..]
            .find('\n')
            .map_or(self.code.len(), |end| at + end);
        start..end
    }

    /// Returns the function that a place is in: the last one that begins before it.
    pub fn function(&self, at: usize) -> &str {
        let functions = self.functions(at);
        functions.last().map_or("", |(name, _)| name)
    }

    /// Returns the names that each function has in it, and those of what is outside of functions for the name "".
    pub fn uses(&self) -> Vec<(&str, Vec<&str>)> {
        let mut begins = self.functions(self.code.len());
        begins.insert(0, ("", 0));
        let ends = begins[1..].iter().map(|(_, begin)| *begin);
        let ends: Vec<usize> = ends.chain([self.code.len()]).collect();
        let parts = begins.iter().zip(ends);
        parts
            .map(|((name, begin), end)| {
                let text = &self.code[*begin..end];
                let words = text.split(|each: char| !each.is_ascii_alphanumeric() && each != '_');
                (*name, words.filter(|word| !word.is_empty()).collect())
            })
            .collect()
    }

    /// Returns the functions that begin before a place, and where.
    fn functions(&self, at: usize) -> Vec<(&str, usize)> {
        let mut all = Vec::new();
        for (begin, _) in self.code[..at].match_indices("SYMMEM_") {
            let rest = &self.code[begin..self.line(begin).end];
            let open = match () {
                () if rest.starts_with("SYMMEM_DEVICE ") => rest.find('('),
                () if rest.starts_with("SYMMEM_KERNEL(") => rest
                    .find(')')
                    .and_then(|close| Some(close + 1 + rest[close + 1..].find('(')?)),
                () => None,
            };
            let Some(open) = open else { continue };
            let start = rest[..open]
                .rfind(|each: char| !each.is_ascii_alphanumeric() && each != '_')
                .map_or(0, |before| before + 1);
            all.push((&rest[start..open], begin));
        }
        all
    }

    /// Splits arguments at the commas that are not within parentheses.
    pub fn arguments(&self, range: &Range<usize>) -> Vec<Range<usize>> {
        let mut all = Vec::new();
        let (mut start, mut depth) = (range.start, 0);
        for (offset, byte) in self.code[range.clone()].bytes().enumerate() {
            match byte {
                b'(' | b'{' | b'[' => depth += 1,
                b')' | b'}' | b']' => depth -= 1,
                b',' if depth == 0 => {
                    all.push(start..range.start + offset);
                    start = range.start + offset + 1;
                }
                _ => {}
            }
        }
        all.push(start..range.end);
        all
    }
}
