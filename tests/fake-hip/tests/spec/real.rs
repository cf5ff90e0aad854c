//! The project's own code objects, as the runtime takes them.

use std::path::Path;

use symmem_fake_hip::modules::*;

use crate::support::*;

#[test]
fn every_code_object_of_the_project_is_taken() {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../kernels-hip/artefacts");
    for target in ["gfx90a", "gfx942", "gfx950"] {
        alone(&[("FAKE_HIP_ARCHITECTURE", target)], || {
            let here = std::env::var("FAKE_HIP_ARCHITECTURE").expect("an architecture");
            let files = std::fs::read_dir(&directory).expect("the artefacts");
            let mut loaded = 0;
            for file in files.map(|file| file.expect("a file").path()) {
                let name = file.file_name().expect("a name").to_string_lossy();
                if !name.ends_with(".co") {
                    continue;
                }
                let image = std::fs::read(&file).expect("a code object");
                let mut module = 0;
                // SAFETY: a whole code object.
                let code = unsafe { hipModuleLoadData(Some(&mut module), image.as_ptr().cast()) };
                let wanted = if name.contains(&here) { 0 } else { 209 };
                assert_eq!(code, wanted, "{name}");
                loaded += u32::from(code == 0);
            }
            assert!(loaded > 0, "there are some for {here}");
            clean();
        });
    }
}
