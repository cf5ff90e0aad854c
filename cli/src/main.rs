//! The `symmem` command.

fn main() -> std::process::ExitCode {
    symmem_cli::main()
}
