//! Maintainers' commands: `cargo xtask <command>`.

mod adversary;
#[cfg(test)]
#[allow(dead_code, reason = "tests of other crates sample in other ways too")]
#[path = "../../tests/support/amount.rs"]
mod amount;
mod api;
mod book;
mod capi;
mod conformance;
mod error;
#[path = "../../tests/support/fake_packages.rs"]
mod fake_packages;
mod kernels;
mod readme;
mod structure;
mod test;
mod tools;
mod twin;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(name = "cargo xtask", about = "Maintainers' commands")]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run generated safe programs on the host, under sanitizers, and over the fake drivers.
    Adversary(adversary::Options),
    /// Compare the public API with the snapshots, or rewrite them.
    Api(api::Options),
    /// Check the README and the book: size, links, code blocks, chapters, the table of variables.
    Book(book::Options),
    /// Compare the C library's header and exported names with the committed ones, or install it.
    Capi(capi::Options),
    /// Run the conformance suite, its sample or every case, and print the counts.
    Conformance(conformance::Options),
    /// Build, check or lint the kernel artefacts.
    Kernels {
        #[command(subcommand)]
        command: kernels::Command,
    },
    /// Write the results of a recorded benchmark into the book, and a summary of collectives into the README.
    Readme(readme::Options),
    /// Check dependencies of crates, folders and files, and how much text the GPU backends share.
    Structure(structure::Options),
    /// Run the tests of the workspace: the sample, the long lists, or every case.
    Test(test::Options),
    /// Test the device code on the host, under sanitizers.
    Twin {
        /// A sixth of the seeds, drawn by this number, without optimization
        #[arg(long)]
        draw: Option<u32>,
    },
}

fn main() -> ExitCode {
    let result = match Arguments::parse().command {
        Command::Adversary(options) => adversary::run(&options),
        Command::Api(options) => api::run(&options),
        Command::Book(options) => book::run(&options),
        Command::Capi(options) => capi::run(&options),
        Command::Conformance(options) => conformance::run(options),
        Command::Kernels { command } => kernels::run(command),
        Command::Readme(options) => readme::run(&options),
        Command::Structure(options) => structure::run(&options),
        Command::Test(options) => test::run(&options),
        Command::Twin { draw } => twin::run(draw),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}
