use std::collections::BTreeMap;
use std::io::Write;

use sha2::{Digest, Sha256};
use symmem_kernels_ptx::CompressedImage;

use super::*;
use crate::kernels::family::Family;
use crate::kernels::manifest::{self, Manifest};
use crate::tools::Scratch;

/// Returns the images that the crates embed, by their names in the manifest.
fn embedded(family: Family) -> BTreeMap<String, CompressedImage> {
    match family {
        Family::Ptx => symmem_kernels_ptx::modules()
            .iter()
            .flat_map(|module| {
                let name = module.name;
                let ptx = (format!("{name}.ptx"), module.ptx);
                // For instructions of only one architecture, as in `sm_90a`.
                let only = module.end_architecture == module.minimum_architecture + 1;
                let letter = if only { "a" } else { "" };
                let cubins = module.cubins.iter();
                let cubins = cubins.map(move |(architecture, image)| {
                    (format!("{name}.sm_{architecture}{letter}.cubin"), *image)
                });
                cubins.chain([ptx])
            })
            .collect(),
        Family::Hip => symmem_kernels_hip::modules()
            .iter()
            .flat_map(|module| {
                symmem_kernels_hip::Target::ALL.map(|target| {
                    let name = format!("{}.{}.co", module.name, target.name());
                    (name, module.object(target))
                })
            })
            .collect(),
    }
}

#[test]
fn the_crates_embed_the_bytes_of_the_manifest_and_no_others() {
    for family in Family::ALL {
        let mut found: BTreeMap<String, String> = embedded(family)
            .into_iter()
            .map(|(name, image)| {
                let image = image.decompress().unwrap();
                // The zero byte after PTX is for the driver and not in the file.
                let zeros = usize::from(name.ends_with(".ptx"));
                let digest = Sha256::digest(&image[..image.len() - zeros]);
                (
                    name,
                    digest.iter().map(|byte| format!("{byte:02x}")).collect(),
                )
            })
            .collect();
        found.extend(
            manifest::committed(family)
                .unwrap()
                .into_iter()
                .filter(|(name, _)| name.contains('/')),
        );
        assert_eq!(found, Manifest::read(family).unwrap().artefacts);
    }
}

#[test]
fn what_is_stored_is_read_back() {
    if tools::zstd().is_err() {
        assert!(std::env::var_os("CI").is_none(), "CI installs zstd");
        let _ = writeln!(
            std::io::stderr(),
            "skipped: what_is_stored_is_read_back: no zstd"
        );
        return;
    }
    let scratch = Scratch::new("image").unwrap();
    let [source, plain, compressed] =
        ["image.ptx", "copy.ptx", "image.ptx.zst"].map(|name| scratch.path().join(name));
    let text = "mov.u32 %r1, %r2;\n".repeat(1000);
    std::fs::write(&source, &text).unwrap();
    for target in [&plain, &compressed] {
        store(&source, target).unwrap();
        assert_eq!(read(target).unwrap(), text.as_bytes());
        assert_eq!(
            manifest::digest(target).unwrap(),
            manifest::digest(&source).unwrap()
        );
    }
    assert!(std::fs::metadata(&compressed).unwrap().len() < 100);
}

#[test]
fn a_damaged_file_is_named_and_what_to_do_about_it() {
    let scratch = Scratch::new("damaged-image").unwrap();
    let path = scratch.path().join("base.ptx.zst");
    let mut bytes = std::fs::read(manifest::place(Family::Ptx, "base.ptx")).unwrap();
    bytes.truncate(bytes.len() / 2);
    std::fs::write(&path, bytes).unwrap();
    let told = read(&path).unwrap_err().to_string();
    assert!(
        told.contains("base.ptx.zst: corrupt kernel image: "),
        "{told}"
    );
    assert!(
        told.ends_with("; run `cargo xtask kernels build`"),
        "{told}"
    );
}

#[test]
fn no_changed_byte_of_a_committed_image_goes_unnoticed() {
    for (family, name) in [
        (Family::Ptx, "latency.ptx"),
        (Family::Ptx, "latency.sm_90.cubin"),
        (Family::Hip, "latency.gfx942.co"),
    ] {
        let frame = std::fs::read(manifest::place(family, name)).unwrap();
        let image = decompress(&frame).unwrap();
        for index in 0..frame.len() {
            let mut changed = frame.clone();
            changed[index] ^= 0xff;
            if let Ok(found) = decompress(&changed) {
                assert!(*found == *image, "{name}, byte {index}");
            }
        }
    }
}
