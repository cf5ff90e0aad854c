//! Rung 1: checks the code object's metadata, on which launch and kernel must agree.

use super::object::{CodeObject, Kernel};

/// Bytes of `Launch` (`arch_hip.h`), the first argument of symmem's own kernels.
const LAUNCH_BYTES: u64 = 16;
/// Largest shared memory of a block in bytes, on all targets (LLVM's "User Guide for AMDGPU Backend", LDS).
const SHARED_BYTES: u64 = 64 << 10;

/// The owner of a code object's kernels.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Owner {
    /// symmem, whose kernels get the geometry from their first argument.
    Symmem,
    /// A user, whose kernels get hidden arguments from the runtime.
    User,
}

/// Returns the violations, one line each.
pub fn lint(name: &str, target: &str, owner: Owner, object: &CodeObject) -> Vec<String> {
    let mut found = Vec::new();
    if !object.target.ends_with(&format!("--{target}")) {
        found.push(format!(
            "{name}: made for {}, not for {target}",
            object.target
        ));
    }
    if object.relocations != 0 {
        found.push(format!(
            "{name}: {} relocations; there must be none",
            object.relocations
        ));
    }
    for kernel in &object.kernels {
        let complaints = kernel_complaints(kernel, owner);
        found.extend(
            complaints
                .into_iter()
                .map(|what| format!("{name}: {}: {what}", kernel.name)),
        );
    }
    found
}

fn kernel_complaints(kernel: &Kernel, owner: Owner) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |wrong: bool, what: String| {
        if wrong {
            found.push(what);
        }
    };
    let scratch = kernel.scratch_bytes;
    complain(scratch != 0, format!("{scratch} bytes of scratch memory"));
    complain(kernel.dynamic_stack, "a stack of unknown size".into());
    complain(
        kernel.vector_spills != 0,
        format!("{} vector registers spilled", kernel.vector_spills),
    );
    // Includes spills to lanes of a vector register, which use no memory.
    complain(
        kernel.scalar_spills != 0,
        format!("{} scalar registers spilled", kernel.scalar_spills),
    );
    complain(
        kernel.wave != 64,
        format!("waves of {} lanes, not of 64", kernel.wave),
    );
    complain(
        kernel.threads > 1024,
        format!("blocks of {} threads, more than 1024", kernel.threads),
    );
    let shared = kernel.shared_bytes;
    complain(
        shared > SHARED_BYTES,
        format!("{shared} bytes of shared memory, more than a block can have"),
    );
    if owner == Owner::User {
        return found;
    }
    for argument in &kernel.arguments {
        complain(
            argument.kind.starts_with("hidden"),
            format!("a hidden argument: {}", argument.kind),
        );
    }
    let [launch, arguments] = kernel.arguments.as_slice() else {
        complain(
            true,
            format!(
                "{} arguments, not a Launch and one struct",
                kernel.arguments.len()
            ),
        );
        return found;
    };
    complain(
        (launch.offset, launch.bytes, launch.kind.as_str()) != (0, LAUNCH_BYTES, "by_value"),
        format!(
            "a first argument of {} bytes at {}, which is not a Launch",
            launch.bytes, launch.offset
        ),
    );
    complain(
        arguments.offset != LAUNCH_BYTES,
        format!("its struct at {}, not after the Launch", arguments.offset),
    );
    let expected = LAUNCH_BYTES + arguments.bytes;
    complain(
        kernel.kernarg_bytes != expected,
        format!(
            "{} bytes of arguments, not {expected}",
            kernel.kernarg_bytes
        ),
    );
    found
}

#[cfg(test)]
mod tests {
    use super::super::object::Argument;
    use super::*;

    fn argument(offset: u64, bytes: u64, kind: &str) -> Argument {
        Argument {
            offset,
            bytes,
            kind: kind.to_owned(),
        }
    }

    fn good() -> Kernel {
        Kernel {
            name: "kernel".into(),
            arguments: vec![argument(0, 16, "by_value"), argument(16, 64, "by_value")],
            kernarg_bytes: 80,
            wave: 64,
            threads: 1024,
            ..Kernel::default()
        }
    }

    fn complaints(change: impl FnOnce(&mut CodeObject)) -> Vec<String> {
        let mut object = CodeObject {
            target: "amdgcn-amd-amdhsa--gfx942".into(),
            kernels: vec![good()],
            ..CodeObject::default()
        };
        change(&mut object);
        lint("module", "gfx942", Owner::Symmem, &object)
    }

    #[track_caller]
    fn catches(word: &str, change: impl FnOnce(&mut CodeObject)) {
        let found = complaints(change);
        assert!(
            found.len() == 1 && found[0].contains(word),
            "expected one complaint of {word:?}: {found:?}"
        );
    }

    #[test]
    fn a_kernel_as_it_should_be_passes() {
        assert_eq!(complaints(|_| {}), [""; 0]);
    }

    #[test]
    fn catches_scratch_memory_and_spills() {
        catches("scratch", |object| object.kernels[0].scratch_bytes = 4);
        catches("stack", |object| object.kernels[0].dynamic_stack = true);
        catches("vector registers", |object| {
            object.kernels[0].vector_spills = 1
        });
        catches("scalar registers", |object| {
            object.kernels[0].scalar_spills = 1
        });
    }

    #[test]
    fn catches_arguments_that_are_not_where_the_launch_puts_them() {
        catches("hidden", |object| {
            object.kernels[0].arguments[1].kind = "hidden_block_count_x".into()
        });
        catches("not a Launch", |object| {
            object.kernels[0].arguments[0].bytes = 8
        });
        catches("not after", |object| {
            object.kernels[0].arguments[1].offset = 24
        });
        catches("bytes of arguments", |object| {
            object.kernels[0].kernarg_bytes = 336
        });
        catches("1 arguments", |object| {
            object.kernels[0].arguments.truncate(1)
        });
    }

    #[test]
    fn catches_another_target_other_waves_too_much_shared_memory_and_relocations() {
        catches("made for", |object| {
            object.target = "amdgcn-amd-amdhsa--gfx90a".into()
        });
        catches("waves of 32", |object| object.kernels[0].wave = 32);
        catches("threads", |object| object.kernels[0].threads = 2048);
        catches("shared memory", |object| {
            object.kernels[0].shared_bytes = 1 << 17
        });
        catches("relocations", |object| object.relocations = 1);
    }
}
