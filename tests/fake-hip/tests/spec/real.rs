//! The project's own code objects, loaded as by the real runtime.

use symmem_fake_hip::modules::*;
use symmem_kernels_hip::Target;

use crate::support::*;

#[test]
fn every_code_object_of_the_project_is_taken() {
    for target in Target::ALL {
        alone(&[("FAKE_HIP_ARCHITECTURE", target.name())], || {
            let here = std::env::var("FAKE_HIP_ARCHITECTURE").expect("an architecture");
            for own in symmem_kernels_hip::modules() {
                for target in Target::ALL {
                    let image = own.object(target).decompress().expect("a whole image");
                    let mut module = 0;
                    // SAFETY: the image is a whole code object.
                    let code =
                        unsafe { hipModuleLoadData(Some(&mut module), image.as_ptr().cast()) };
                    let wanted = if target.name() == here { 0 } else { 209 };
                    assert_eq!(code, wanted, "{} {target:?}", own.name);
                }
            }
            clean();
        });
    }
}
