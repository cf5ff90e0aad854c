//! The public API of `symmem` and `symmem-core` is the one in the snapshots, `xtask/api/*.txt`.

#[allow(dead_code, reason = "tests of other crates sample in other ways too")]
#[path = "../../tests/support/amount.rs"]
mod amount;

use std::io::Write;
use std::process::Command;

#[test]
fn the_public_api_is_the_one_in_the_snapshots() {
    if amount::too_long() {
        return;
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_xtask"));
    let output = command.arg("api").output().unwrap();
    let text = String::from_utf8_lossy(&output.stderr);
    if let Some(reason) = text.strip_prefix("error: no toolchain ") {
        // Written directly, since the harness hides the output of passing tests. In CI, a separate step fails.
        let _ = write!(
            std::io::stderr(),
            "skipped: the_public_api_is_the_one_in_the_snapshots: no toolchain {reason}"
        );
        return;
    }
    assert!(output.status.success(), "{text}");
}
