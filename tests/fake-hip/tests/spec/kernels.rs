//! Code objects, and launches of their kernels. Each fault that the fake detects is planted once.

use symmem_core::backend::abi::{DeviceAddress, SignalTarget};
use symmem_fake_hip::devices::hipDeviceSynchronize;
use symmem_fake_hip::modules::*;

use crate::support::*;

const BYTES: usize = size_of::<SignalTarget>();

fn object() -> CodeObject {
    CodeObject::of("symmem_signal", BYTES)
}

#[test]
fn a_kernel_of_a_code_object_does_what_it_means() {
    alone(&[], || {
        let (function, word) = (object().kernel(), uncached_memory(4));
        let target = SignalTarget {
            word: DeviceAddress(word),
            value: 77,
            ..Default::default()
        };
        ok(launch(function, (1, 64), 0, Ahead::of(1, 64), &target));
        ok(hipDeviceSynchronize());
        assert_eq!(read(word, 4), 77u32.to_ne_bytes());
        clean();
    });
}

#[test]
fn a_launch_says_its_own_geometry() {
    alone(&[], || {
        let function = object().kernel();
        let target = SignalTarget::default();
        let with = |ahead| launch(function, (1, 64), 0, ahead, &target);
        assert_eq!(with(Ahead::of(2, 64)), 1);
        violated("give 2 blocks of 64 threads");
        let tick_ns = 40;
        assert_eq!(
            with(Ahead {
                tick_ns,
                ..Ahead::of(1, 64)
            }),
            1
        );
        violated("a tick of 40 ns, not 10");
        ok(with(Ahead::of(1, 64)));
    });
}

#[test]
fn a_launch_keeps_to_what_the_kernel_is_compiled_for() {
    alone(&[], || {
        let object = CodeObject {
            most_threads: 128,
            ..object()
        };
        let target = SignalTarget::default();
        let code = launch(object.kernel(), (1, 256), 0, Ahead::of(1, 256), &target);
        assert_eq!(code, 1);
        violated("256 threads of a kernel compiled for 128");
        let short = CodeObject::of("symmem_signal", BYTES - 8).kernel();
        ok(launch(short, (1, 64), 0, Ahead::of(1, 64), &target));
        violated("bytes of parameters, not");
    });
}

/// Loads a code object, and checks the result and the report.
fn refused(object: &CodeObject, code: i32, what: &str) {
    assert_eq!(object.load().0, code);
    if what.is_empty() {
        clean();
    } else {
        violated(what);
    }
}

#[test]
fn an_image_for_something_else_is_refused() {
    alone(&[], || {
        let host = CodeObject {
            machine: 62,
            ..object()
        };
        refused(&host, 200, "the image is for machine 62");
        let newer = CodeObject {
            abi_version: 4,
            ..object()
        };
        refused(&newer, 200, "ABI version 4");
        let other = CodeObject {
            processor: 0x3f,
            ..object()
        };
        refused(&other, 209, "");
        let mislabeled = CodeObject {
            target: "amdgcn-amd-amdhsa--gfx90a",
            ..object()
        };
        refused(&mislabeled, 200, "the metadata is for");
        // SAFETY: of an image that is not ELF, only the first four bytes are read.
        let code = unsafe { hipModuleLoadData(Some(&mut 0), b"PTX?".as_ptr().cast()) };
        assert_eq!(code, 200);
        violated("not an ELF file");
    });
}

#[test]
fn a_kernel_that_was_compiled_wrongly_is_reported() {
    alone(&[], || {
        let mut hidden = object();
        hidden.arguments.push((200, 8, "hidden_block_count_x"));
        refused(&hidden, 0, "a hidden argument");
        let narrow = CodeObject {
            wave: 32,
            ..object()
        };
        refused(&narrow, 0, "not compiled for waves of 64");
        let spilling = CodeObject {
            scratch: 16,
            ..object()
        };
        refused(&spilling, 0, "uses scratch memory");
        ok(object().load().0);
        clean();
    });
}

#[test]
fn a_damaged_code_object_is_refused() {
    alone(&[], || {
        let good = object().bytes();
        // The note lies between the header and the table of sections.
        for at in (64..good.len() - 64).step_by(7) {
            let mut image = good.clone();
            image[at] ^= 0xff;
            // SAFETY: the table of sections is whole, so every read is in the image or is refused.
            unsafe { hipModuleLoadData(Some(&mut 0), image.as_ptr().cast()) };
        }
        let said = fake_device::report::text();
        assert!(!said.contains("itself panicked"), "{said}");
    });
}
