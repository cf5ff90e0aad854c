//! What is true on every vendor stands once: no word of a vendor where code is portable, and hardly a line of
//! one backend in the other.

mod overlap;
mod vendors;

use std::path::{Path, PathBuf};

use crate::error::{Error, Result, at};
use crate::tools;

/// Makes both checks and prints what they found.
pub fn run() -> Result<()> {
    let portable = vendors::read()?;
    let named = vendors::check(&portable);
    println!(
        "{} portable files, {} words of vendors that do not belong there",
        portable.len(),
        named.len()
    );
    let overlap = overlap::measure()?;
    println!("{overlap}");
    let found: Vec<String> = named.into_iter().chain(overlap.complaint()).collect();
    if found.is_empty() {
        Ok(())
    } else {
        Err(Error::Structure(found))
    }
}

/// A file's path from the root of the repository, and its text.
struct Source {
    path: String,
    text: String,
}

/// The files in `folder` and below whose names end in one of `extensions`, in order of their paths.
fn sources(folder: &str, extensions: &[&str]) -> Result<Vec<Source>> {
    let root = tools::root();
    let mut files = Vec::new();
    collect(&root.join(folder), &mut files)?;
    files.retain(|file| {
        let extension = file.extension().and_then(|extension| extension.to_str());
        extension.is_some_and(|extension| extensions.contains(&extension))
    });
    files.sort();
    files
        .into_iter()
        .map(|file| {
            let text = at(&file, std::fs::read_to_string(&file))?;
            let path = file.strip_prefix(&root).unwrap_or(&file).to_string_lossy();
            Ok(Source {
                path: path.into_owned(),
                text,
            })
        })
        .collect()
}

fn collect(folder: &Path, files: &mut Vec<PathBuf>) -> Result<()> {
    for entry in at(folder, std::fs::read_dir(folder))? {
        let path = at(folder, entry)?.path();
        if path.is_dir() {
            collect(&path, files)?;
        } else {
            files.push(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_repository_keeps_its_structure() {
        super::run().unwrap();
    }
}
