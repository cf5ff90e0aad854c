//! Parses PTX to functions with labels and statements, as far as the lint needs.

/// An entry point or device function.
#[derive(Debug, Default)]
pub struct Function {
    pub name: String,
    pub items: Vec<Item>,
    /// For each item, the pair of braces around it; 0 for the function's own.
    scopes: Vec<u32>,
}

/// A line of a function's body.
#[derive(Debug)]
pub enum Item {
    Label(String),
    Statement(Statement),
}

/// An instruction.
#[derive(Debug)]
pub struct Statement {
    /// Line in the file, from 1.
    pub line: usize,
    /// Whether it has a predicate, so that it may not execute.
    pub predicated: bool,
    /// The mnemonic with suffixes, such as `st.relaxed.sys.global.b32`.
    pub mnemonic: String,
    pub operands: String,
    /// The word in a `/* comment */` on the same line, by which the sources mark exceptions.
    pub tag: Option<String>,
}

impl Function {
    /// Returns the facts after an item, and the items that may follow it. `transfer` computes the facts after a statement.
    pub fn step(
        &self,
        index: usize,
        facts: u8,
        transfer: impl Fn(&Statement, u8) -> u8,
    ) -> (u8, Vec<usize>) {
        let Item::Statement(statement) = &self.items[index] else {
            return (facts, vec![index + 1]);
        };
        let is_label =
            |item: &Item, name: &str| matches!(item, Item::Label(label) if label == name);
        let mut next: Vec<usize> = match statement.operation() {
            // Inline assembly has labels between braces, often with equal names. A branch means the label in the same
            // braces, otherwise one outside of all.
            "bra" => {
                let within = |scope: u32| {
                    let mut items = self.items.iter().zip(&self.scopes);
                    items.position(|(item, known)| {
                        *known == scope && is_label(item, &statement.operands)
                    })
                };
                let label = within(self.scopes[index]).or_else(|| within(0));
                label.into_iter().collect()
            }
            // An indirect branch may go to any label.
            "brx" => (0..self.items.len())
                .filter(|index| matches!(self.items[*index], Item::Label(_)))
                .collect(),
            _ => Vec::new(),
        };
        let leaves = matches!(
            statement.operation(),
            "bra" | "brx" | "ret" | "exit" | "trap"
        );
        if !leaves || statement.predicated {
            next.push(index + 1);
        }
        (transfer(statement, facts), next)
    }
}

impl Statement {
    /// Returns the mnemonic without suffixes.
    pub fn operation(&self) -> &str {
        self.mnemonic.split('.').next().unwrap_or_default()
    }

    /// Returns whether it has this suffix.
    pub fn has(&self, suffix: &str) -> bool {
        self.mnemonic.split('.').skip(1).any(|each| each == suffix)
    }

    /// Returns whether it accesses shared memory, of the block or the cluster.
    pub fn is_shared(&self) -> bool {
        self.mnemonic
            .split('.')
            .any(|each| each == "shared" || each.starts_with("shared::"))
    }
}

/// Returns the functions of a PTX file, without declarations and directives.
pub fn parse(text: &str) -> Vec<Function> {
    let mut functions = Vec::new();
    let mut name = None;
    let mut depth = 0usize;
    let mut function = Function::default();
    let mut braces = 0;
    for (index, raw) in text.lines().enumerate() {
        let line = raw.split("//").next().unwrap_or_default();
        if depth == 0 {
            name = name.or_else(|| function_name(line));
        }
        let tag = line
            .split_once("/*")
            .and_then(|(_, rest)| rest.split_once("*/"))
            .map(|(tag, _)| tag.trim().to_owned());
        let mut within = depth > 1;
        for piece in line.split_inclusive([';', '{', '}']) {
            // Operands in braces, as in {%r1, %r2}, stay within one statement.
            let piece = piece.trim();
            match piece {
                "{" if name.is_some() || depth > 0 => {
                    if depth == 0 {
                        function = Function {
                            name: name.take().unwrap_or_default(),
                            ..Function::default()
                        };
                    }
                    depth += 1;
                    // Braces that end on the same line have no label for a later line.
                    braces += u32::from(depth == 2);
                    within |= depth > 1;
                }
                "}" if depth > 0 => {
                    depth -= 1;
                    if depth == 0 {
                        functions.push(std::mem::take(&mut function));
                    }
                }
                _ => {}
            }
        }
        if depth > 0 {
            let code = line.split("/*").next().unwrap_or_default();
            for text in code.split(';') {
                let text = text.trim().trim_start_matches('{').trim();
                if let Some(item) = item(text, index + 1, tag.clone()) {
                    function.items.push(item);
                    function.scopes.push(if within { braces } else { 0 });
                }
            }
        }
    }
    functions
}

/// Returns the name of the function that a line declares, if any.
fn function_name(line: &str) -> Option<String> {
    let (_, rest) = [".entry", ".func"]
        .iter()
        .find_map(|word| line.split_once(word))?;
    // A device function's name follows its result in parentheses.
    let rest = rest.trim_start();
    let rest = if rest.starts_with('(') {
        rest.split_once(')')?.1.trim_start()
    } else {
        rest
    };
    let end = rest
        .find(|c: char| c == '(' || c.is_whitespace())
        .unwrap_or(rest.len());
    Some(rest[..end].to_owned())
}

fn item(text: &str, line: usize, tag: Option<String>) -> Option<Item> {
    if let Some(label) = text.strip_suffix(':') {
        return Some(Item::Label(label.trim().to_owned()));
    }
    let predicated = text.starts_with('@');
    let text = if predicated {
        text.split_once(char::is_whitespace)?.1.trim_start()
    } else {
        text
    };
    if !text.starts_with(|c: char| c.is_ascii_lowercase()) {
        return None; // a directive, a brace or nothing
    }
    let (mnemonic, operands) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    Some(Item::Statement(Statement {
        line,
        predicated,
        mnemonic: mnemonic.to_owned(),
        operands: operands.trim().to_owned(),
        tag,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_functions_labels_predicates_and_tags() {
        let text = "
.visible .entry first(
\t.param .align 8 .b8 first_param_0[64]
)
.maxntid 1024
{
\t.reg .b32 %r<2>;
$L__BB0_1: // a loop
\t@%p1 bra $L__BB0_1;
\tatom.relaxed.gpu.global.add.u32 %r1, [%rd1], 1; /* arrivals */
\tld.global.v4.b32 {%r1, %r2, %r3, %r4}, [%rd1];
\t{ .reg .u64 a; cvta.to.shared.u64 a, %rd1; cvt.u32.u64 %r1, a; }
\tret;
}
.visible .entry second()
{
\tret;
}
";
        let functions = parse(text);
        let names: Vec<_> = functions
            .iter()
            .map(|function| function.name.as_str())
            .collect();
        assert_eq!(names, ["first", "second"]);
        let first: Vec<_> = functions[0]
            .items
            .iter()
            .map(|item| match item {
                Item::Label(label) => format!("{label}:"),
                Item::Statement(s) => {
                    format!("{}{}", if s.predicated { "@ " } else { "" }, s.mnemonic)
                }
            })
            .collect();
        assert_eq!(
            first,
            [
                "$L__BB0_1:",
                "@ bra",
                "atom.relaxed.gpu.global.add.u32",
                "ld.global.v4.b32",
                "cvta.to.shared.u64",
                "cvt.u32.u64",
                "ret"
            ]
        );
        let Item::Statement(atomic) = &functions[0].items[2] else {
            panic!("a statement")
        };
        assert_eq!(atomic.tag.as_deref(), Some("arrivals"));
        assert!(atomic.has("gpu") && !atomic.has("sys") && atomic.line == 10);
    }

    #[test]
    fn a_branch_goes_to_the_label_within_its_braces() {
        let text = ".visible .entry kernel()
{
\t{ .reg .pred p;
\tAGAIN:
\t@!p bra AGAIN; }
\t{ .reg .pred p;
\tAGAIN:
\t@!p bra AGAIN; }
\t{ .reg .pred p;
\t@p bra DONE;
\tDONE:
\t}
\t{ .reg .pred p;
\t@p bra DONE;
\tmov.u32 %r1, 0;
\tDONE:
\t}
\tbra $END;
$END:
\tret;
}
";
        let function = &parse(text)[0];
        let next = |index| function.step(index, 0, |_, facts| facts).1;
        assert_eq!(next(1), [0, 2]);
        assert_eq!(next(3), [2, 4]);
        assert_eq!(next(4), [5, 5]);
        assert_eq!(next(6), [8, 7], "not to the block in front");
        assert_eq!(next(9), [10]);
    }
}
