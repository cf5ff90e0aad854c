//! The structure of the repository: the two GPU backends may have little text in common.

mod overlap;

use crate::error::{Error, Result};
use crate::tools;

/// Makes the check and prints what it found.
pub fn run() -> Result<()> {
    let overlap = overlap::measure(&tools::root())?;
    println!("{overlap}");
    match overlap.complaint() {
        None => Ok(()),
        Some(complaint) => Err(Error::Structure(vec![complaint])),
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_keeps_its_structure() {
        super::run().unwrap();
    }
}
