//! Errors of the maintainers' commands.

use std::path::{Path, PathBuf};

/// An error of a command, with what to do.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{}: {source}", path.display())]
    File {
        path: PathBuf,
        source: std::io::Error,
    },
    #[error("no {tool} found: {advice}")]
    ToolMissing {
        tool: &'static str,
        advice: &'static str,
    },
    #[error("{command} failed:\n{output}")]
    ToolFailed { command: String, output: String },
    #[error("{}: {source}", path.display())]
    Manifest {
        path: PathBuf,
        source: serde_json::Error,
    },
    #[error("{}: {what}", path.display())]
    CodeObject { path: PathBuf, what: String },
    #[error("{}: {source}; run `cargo xtask kernels build`", path.display())]
    Image {
        path: PathBuf,
        source: symmem_kernels_image::CorruptImage,
    },
    #[error("the check of the README and the book found:\n{}", .0.join("\n"))]
    Book(Vec<String>),
    #[error("the lint found:\n{}", .0.join("\n"))]
    Lint(Vec<String>),
    #[error("{}: {what}", path.display())]
    Source { path: PathBuf, what: String },
    #[error("the structure check found:\n{}", .0.join("\n"))]
    Structure(Vec<String>),
    #[error("no toolchain {0}; run `rustup toolchain install {0} --profile minimal`")]
    ToolchainMissing(String),
    #[error(
        "{}: public-api cannot read the JSON of rustdoc from {toolchain}: {source}; pin another nightly in .ci/steps, or another public-api in xtask/Cargo.toml",
        path.display()
    )]
    ApiUnread {
        toolchain: String,
        path: PathBuf,
        source: public_api::Error,
    },
    #[error(
        "the public API differs from the snapshots:\n{}\nif the change is intended, run `cargo xtask api --write` and commit the files that it writes",
        .0.join("\n")
    )]
    Api(Vec<String>),
    #[error(
        "the C library differs from what is committed:\n{}\nif the change is intended, run `cargo xtask capi --write` and commit the files that it writes",
        .0.join("\n")
    )]
    CLibrary(Vec<String>),
    #[error("{}: {source}", path.display())]
    List {
        path: PathBuf,
        source: toml::de::Error,
    },
    #[error("the run of mutants found:\n{}", .0.join("\n"))]
    Mutants(Vec<String>),
    #[error("artefacts do not match their sources; run `cargo xtask kernels build`:\n{}", .0.join("\n"))]
    Stale(Vec<String>),
    #[error("generated programs failed over {}; see above", .0.join(", "))]
    Adversary(Vec<String>),
}

pub type Result<T> = std::result::Result<T, Error>;

/// Adds the file's path to an input or output error.
pub fn at<T>(path: &Path, result: std::io::Result<T>) -> Result<T> {
    result.map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })
}
