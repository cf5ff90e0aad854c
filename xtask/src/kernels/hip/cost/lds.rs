//! Clocks of accesses to shared memory, which the interpreter of `tests/weak-memory` counts while it executes the
//! kernels: the addresses are those that the machine code computes.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use super::model::SharedClocks;
use crate::error::{Error, Result, at};
use crate::tools::{self, Scratch};

/// The test that counts, and the variable that names the file that it writes.
const TEST: &str = "accesses_of_products_to_shared_memory_take_at_most_twice_their_clocks";
const VARIABLE: &str = "SYMMEM_SHARED_CLOCKS";

/// Clocks by target and kernel.
pub type Counts = HashMap<(String, String), SharedClocks>;

/// Reads the clocks from a file, or runs the interpreter, which builds it.
pub fn counts(file: Option<&Path>) -> Result<Counts> {
    if let Some(file) = file {
        return read(file);
    }
    let scratch = Scratch::new("kernels-cost-shared")?;
    let file = scratch.path().join("clocks");
    let cargo = std::env::var_os("CARGO").map_or_else(|| PathBuf::from("cargo"), PathBuf::from);
    tools::output(
        Command::new(cargo)
            .current_dir(tools::root())
            .args(["test", "--quiet", "-p", "symmem-weak-memory"])
            .args(["--test", "protocols", "--", "--exact", TEST])
            .env(VARIABLE, &file),
    )?;
    read(&file)
}

fn read(file: &Path) -> Result<Counts> {
    parse(&at(file, std::fs::read_to_string(file))?).ok_or_else(|| Error::Source {
        path: file.to_owned(),
        what: "a line is not `target kernel offset clocks least`".into(),
    })
}

fn parse(text: &str) -> Option<Counts> {
    let mut counts = Counts::new();
    for line in text.lines() {
        let mut words = line.split(' ');
        let place = (words.next()?.to_owned(), words.next()?.to_owned());
        let (offset, clocks) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
        counts.entry(place).or_default().insert(offset, clocks);
    }
    Some(counts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_name_target_kernel_offset_and_clocks() {
        let counts = parse("gfx942 kernel 16 8 4\ngfx942 kernel 24 4 4\n").unwrap();
        let kernel = &counts[&("gfx942".to_owned(), "kernel".to_owned())];
        assert_eq!((kernel[&16], kernel[&24]), (8, 4));
        assert!(parse("gfx942 kernel\n").is_none());
    }
}
