//! Files of GEMM shapes.

use crate::ag_gemm::shapes;

/// Checks `bytes` as a file of shapes.
pub fn check(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else {
        return;
    };
    match shapes::parse(text) {
        Ok(problems) => {
            for problem in &problems {
                let shape = problem.gemm_shape();
                let elements = shape.gathered_elements();
                assert!((1..=1 << 39).contains(&elements), "{problem:?}");
                for world in [1, 2, 7, 72] {
                    assert!(shape.shard_elements(world) <= elements);
                }
                let name = problem.file_name();
                assert!(!name.contains(['/', ' ']), "{name}");
            }
            let written = serde_json::to_string(&problems).expect("shapes are always JSON");
            assert_eq!(shapes::parse(&written), Ok(problems));
        }
        Err(reason) => {
            let faults = ["line ", "no shapes", "no elements", "at most "];
            assert!(
                faults.iter().any(|fault| reason.contains(fault)),
                "{reason}"
            );
        }
    }
}
