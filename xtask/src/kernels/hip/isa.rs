//! Parses llvm-objdump's output to functions with instructions.

use std::collections::HashMap;

/// A function of the code object.
#[derive(Debug, Default)]
pub struct Function {
    pub name: String,
    pub instructions: Vec<Instruction>,
}

/// An instruction.
#[derive(Debug)]
pub struct Instruction {
    pub address: u64,
    pub mnemonic: String,
    pub operands: String,
    /// The target of a branch.
    pub target: Option<u64>,
}

impl Instruction {
    /// Returns whether it has a modifier such as `sc0`.
    pub fn has(&self, modifier: &str) -> bool {
        self.operands.split([' ', ',']).any(|each| each == modifier)
    }

    /// Returns whether it waits until no memory access is outstanding.
    pub fn drains(&self) -> bool {
        self.mnemonic == "s_waitcnt" && self.operands.contains("vmcnt(0)")
    }

    /// Returns the kind of its access to global memory, if it is one.
    pub fn access(&self) -> Option<Access> {
        let rest = ["global_", "flat_"]
            .iter()
            .find_map(|prefix| self.mnemonic.strip_prefix(prefix))?;
        if rest.starts_with("load") {
            Some(Access::Load)
        } else if rest.starts_with("store") {
            Some(Access::Store)
        } else if rest.starts_with("atomic") {
            Some(Access::Atomic)
        } else {
            None
        }
    }
}

/// The kinds of accesses to global memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Access {
    Load,
    Store,
    Atomic,
}

impl Function {
    /// Returns for each instruction those that may follow it.
    pub fn successors(&self) -> Vec<Vec<usize>> {
        let places: HashMap<u64, usize> = self
            .instructions
            .iter()
            .enumerate()
            .map(|(index, instruction)| (instruction.address, index))
            .collect();
        let follow = |(index, instruction): (usize, &Instruction)| {
            let mut next = Vec::new();
            let branches =
                instruction.mnemonic.starts_with("s_cbranch") || instruction.mnemonic == "s_branch";
            if branches {
                next.extend(instruction.target.and_then(|target| places.get(&target)));
            }
            let ends = matches!(instruction.mnemonic.as_str(), "s_branch" | "s_endpgm");
            if !ends && index + 1 < self.instructions.len() {
                next.push(index + 1);
            }
            next
        };
        self.instructions.iter().enumerate().map(follow).collect()
    }
}

/// Returns the functions in the output of `llvm-objdump --disassemble`.
pub fn parse(text: &str) -> Vec<Function> {
    let mut functions: Vec<Function> = Vec::new();
    for line in text.lines() {
        if let Some((_, rest)) = line.split_once(" <")
            && let Some(name) = rest.strip_suffix(">:")
        {
            functions.push(Function {
                name: name.to_owned(),
                instructions: Vec::new(),
            });
            continue;
        }
        let Some(function) = functions.last_mut() else {
            continue;
        };
        let Some((code, comment)) = line.split_once("//") else {
            continue;
        };
        let Some((address, encoding)) = comment.split_once(':') else {
            continue;
        };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else {
            continue;
        };
        let code = code.trim();
        let (mnemonic, operands) = code.split_once(char::is_whitespace).unwrap_or((code, ""));
        let start = function
            .instructions
            .first()
            .map_or(address, |first| first.address);
        function.instructions.push(Instruction {
            address,
            mnemonic: mnemonic.to_owned(),
            operands: operands.trim().to_owned(),
            target: branch_target(encoding, &function.name, start),
        });
    }
    functions
}

/// Returns the address in `... <name+0x1c>`, computed from the function's start.
fn branch_target(encoding: &str, name: &str, start: u64) -> Option<u64> {
    let (_, rest) = encoding.split_once('<')?;
    let place = rest.trim_end().strip_suffix('>')?.strip_prefix(name)?;
    if place.is_empty() {
        return Some(start);
    }
    let offset = u64::from_str_radix(place.strip_prefix("+0x")?, 16).ok()?;
    Some(start + offset)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finds_functions_modifiers_and_branches() {
        let text = "
0000000000001800 <first>:
\ts_load_dword s33, s[0:1], 0x0                              // 000000001800: C0020840 00000000
\tglobal_load_dword v8, v5, s[8:9] sc0 sc1                   // 000000001808: DE518000 00080005
\ts_waitcnt vmcnt(0) lgkmcnt(0)                              // 000000001810: BF8C0070
\ts_cbranch_scc1 65533                                       // 000000001814: BF85FFFD <first+0x8>
\ts_endpgm                                                   // 000000001818: BF810000

0000000000001900 <second>:
\ts_branch 65535                                             // 000000001900: BF82FFFF <second>
";
        let functions = parse(text);
        let [first, second] = functions.as_slice() else {
            panic!("two functions: {functions:?}")
        };
        assert_eq!(
            (first.name.as_str(), second.name.as_str()),
            ("first", "second")
        );
        let load = &first.instructions[1];
        assert_eq!(load.access(), Some(Access::Load));
        assert!(load.has("sc0") && load.has("sc1") && !load.has("nt"));
        assert!(first.instructions[2].drains());
        assert_eq!(
            first.successors(),
            [vec![1], vec![2], vec![3], vec![1, 4], vec![]]
        );
        assert_eq!(second.successors(), [vec![0]]);
    }
}
