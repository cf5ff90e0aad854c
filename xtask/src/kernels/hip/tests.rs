//! Checks that the lint catches planted faults, and that the committed code objects match the host's structs.

use std::io::Write;
use std::path::PathBuf;

use super::compile::{Compiler, TARGETS};
use super::lint::least_publications;
use super::metadata::Owner;
use super::{lint, object};
use crate::kernels::check::differences;
use crate::kernels::family::Family;
use crate::kernels::manifest::{self, Manifest};
use crate::tools::{self, Scratch};

/// Returns the tools, or `None` if they are not installed; the test is then skipped. CI has them.
fn installed() -> Option<(Compiler, PathBuf)> {
    match (Compiler::find(), tools::objdump()) {
        (Ok(compiler), Ok(objdump)) => Some((compiler, objdump)),
        _ if std::env::var_os("CI").is_some() => panic!("CI installs clang-22 and llvm-22"),
        _ => {
            skip("no clang-22 or no llvm-objdump");
            None
        }
    }
}

/// Prints that a test is skipped; directly, since the harness hides the output of passing tests.
fn skip(reason: &str) {
    let name = std::thread::current().name().unwrap_or_default().to_owned();
    let _ = writeln!(std::io::stderr(), "skipped: {name}: {reason}");
}

const HEADERS: &str = "#include \"symmem/copy.h\"\n#include \"symmem/signal.h\"\n#include \"symmem/wait.h\"\nusing namespace symmem;\n";

/// Returns the lint's violations in a source, for each target.
fn complaints(name: &str, source: &str) -> Option<Vec<(&'static str, Vec<String>)>> {
    let (compiler, objdump) = installed()?;
    let scratch = Scratch::new(name).unwrap();
    let path = scratch.path().join("planted.h");
    std::fs::write(&path, format!("{HEADERS}{source}")).unwrap();
    let of = |target| {
        let object = scratch.path().join(format!("planted.{target}.co"));
        let object = compiler.own(&path, target, object).unwrap();
        (
            target,
            lint(&objdump, &object, target, Owner::Symmem).unwrap(),
        )
    };
    Some(TARGETS.map(of).into())
}

/// Checks that the lint catches the fault on every target, and finds nothing without it.
#[track_caller]
fn catches(name: &str, source: impl Fn(bool) -> String, word: &str) {
    for (target, found) in complaints(name, &source(false)).into_iter().flatten() {
        assert_eq!(found, [""; 0], "{target}");
    }
    for (target, found) in complaints(name, &source(true)).into_iter().flatten() {
        assert!(
            found.iter().any(|each| each.contains(word)),
            "{target}: {word:?} in {found:?}"
        );
    }
}

#[test]
fn sources_make_the_committed_bytes_and_others_do_not() {
    if crate::amount::too_long() {
        return;
    }
    let Some((compiler, _)) = installed() else {
        return;
    };
    let mut committed = Manifest::read(Family::Hip).unwrap();
    let version = tools::version(&compiler.clang).unwrap();
    if committed.compilers != [version.as_str()] {
        skip(&format!("the artefacts are not from {version}"));
        return;
    }
    committed
        .artefacts
        .retain(|name, _| name.starts_with("signals."));
    let text = std::fs::read_to_string(tools::root().join("device/entries/signals.h")).unwrap();
    // Another condition selects the waiting thread.
    let (right, wrong) = ("block_index() == 0 && arch", "block_count() == 1 && arch");
    assert!(text.contains(right));
    let stale = |name: &str, text: &str| {
        let scratch = Scratch::new(name).unwrap();
        let source = scratch.path().join("signals.h");
        std::fs::write(&source, text).unwrap();
        for target in TARGETS {
            let object = scratch.path().join(format!("signals.{target}.co"));
            compiler.own(&source, target, object).unwrap();
        }
        let made = manifest::digests(scratch.path(), &["co"], "").unwrap();
        differences("rebuilt artefact", &committed.artefacts, &made)
    };
    assert_eq!(stale("same-bytes", &text), [""; 0]);
    let expected = TARGETS.map(|target| format!("rebuilt artefact signals.{target}.co differs"));
    assert_eq!(stale("other-bytes", &text.replace(right, wrong)), expected);
}

#[test]
fn a_signal_without_each_waves_release_is_caught() {
    // A barrier that does not wait for stores, as __syncthreads on these targets.
    let source = |planted: bool| {
        let barrier = if planted {
            "__builtin_amdgcn_s_barrier();"
        } else {
            "arch::release_wave(); arch::block_barrier();"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) put) {{
               arch::store(pointer<uint64>(put.destination) + arch::thread_index(), arch::load(pointer<const uint64>(put.source) + arch::thread_index()));
               {barrier}
               if (arch::thread_index() == 0) arch::publish_flag(pointer<uint32>(put.signal.word), 1u);
             }}"
        )
    };
    catches("planted-r1", source, "R1");
}

#[test]
fn a_release_store_alone_is_caught() {
    // A store with release order after a barrier and a write-back, for which the compiler drops the wait.
    let source = |planted: bool| {
        let publish = if planted {
            "__hip_atomic_store((__attribute__((address_space(1))) uint32*)put.signal.word, 1u, __ATOMIC_RELEASE, __HIP_MEMORY_SCOPE_SYSTEM);"
        } else {
            "arch::publish_flag(pointer<uint32>(put.signal.word), 1u);"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) put) {{
               arch::store(pointer<uint64>(put.destination) + arch::thread_index(), arch::load(pointer<const uint64>(put.source) + arch::thread_index()));
               arch::release_system();
               arch::block_barrier();
               if (arch::thread_index() == 0) {{ {publish} }}
             }}"
        )
    };
    catches("planted-r2", source, "R2");
}

#[test]
fn a_wait_without_an_acquire_is_caught() {
    let source = |planted: bool| {
        let acquire = if planted {
            ""
        } else {
            "arch::acquire_flag(word);"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) get) {{
               const uint32* word = pointer<const uint32>(get.signal.word);
               if (arch::thread_index() == 0) {{
                 while (arch::load_flag(word) != 1) arch::pause();
                 {acquire}
               }}
               arch::block_barrier();
               arch::store(pointer<uint64>(get.destination) + arch::thread_index(), arch::load(pointer<const uint64>(get.source) + arch::thread_index()));
             }}"
        )
    };
    catches("planted-acquire", source, "no invalidation");
}

#[test]
fn a_spin_on_an_ordinary_load_is_caught() {
    let source = |planted: bool| {
        let load = if planted {
            "arch::load(word)"
        } else {
            "arch::load_flag(word)"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) get) {{
               const uint32* word = pointer<const uint32>(get.signal.word);
               if (arch::thread_index() == 0) {{
                 while ({load} != 1) asm volatile(\"s_sleep 1\" ::: \"memory\");
                 arch::acquire_flag(word);
               }}
               arch::block_barrier();
               arch::store(pointer<uint64>(get.destination) + arch::thread_index(), arch::load(pointer<const uint64>(get.source) + arch::thread_index()));
             }}"
        )
    };
    catches("planted-spin", source, "below system scope");
}

#[test]
fn a_signal_without_the_blocks_barrier_is_caught() {
    let source = |planted: bool| {
        let barrier = if planted {
            ""
        } else {
            "arch::block_barrier();"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) put) {{
               arch::store(pointer<arch::Vector16>(put.destination) + arch::thread_index(), arch::load(pointer<const arch::Vector16>(put.source) + arch::thread_index()));
               arch::release_wave();
               {barrier}
               if (arch::thread_index() == 0) arch::publish_flag(pointer<uint32>(put.signal.word), 1u);
             }}"
        )
    };
    catches("planted-barrier", source, "without a block barrier");
}

#[test]
fn an_array_that_is_not_in_registers_is_caught() {
    let source = |planted: bool| {
        let index = if planted { "put.bytes" } else { "0" };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) put) {{
               uint64 array[64];
               for (int i = 0; i < 64; ++i) array[i] = arch::load(pointer<const uint64>(put.source) + i * put.stages);
               arch::store(pointer<uint64>(put.destination), array[{index}]);
             }}"
        )
    };
    catches("planted-scratch", source, "scratch");
}

#[test]
fn a_kernel_with_other_arguments_is_caught() {
    let source = |planted: bool| {
        let arguments = if planted {
            "uint64 destination"
        } else {
            "SYMMEM_ARGUMENTS(TransferArguments) put"
        };
        let destination = if planted {
            "destination"
        } else {
            "put.destination"
        };
        format!(
            "SYMMEM_KERNEL(256) planted({arguments}) {{
               arch::store(pointer<uint64>({destination}) + arch::thread_index(), 1ull);
             }}"
        )
    };
    catches("planted-arguments", source, "1 arguments");
}

#[test]
fn hidden_arguments_are_caught() {
    let source = |planted: bool| {
        let width = if planted {
            "__builtin_amdgcn_workgroup_size_x()"
        } else {
            "arch::thread_count()"
        };
        format!(
            "SYMMEM_KERNEL(256) planted(SYMMEM_ARGUMENTS(TransferArguments) put) {{
               arch::store(pointer<uint64>(put.destination) + arch::thread_index(), static_cast<uint64>({width}));
             }}"
        )
    };
    catches("planted-hidden", source, "hidden");
}

#[test]
fn matrix_instructions_have_the_full_rate_of_each_target() {
    let Some((compiler, objdump)) = installed() else {
        return;
    };
    let scratch = Scratch::new("matrix").unwrap();
    let path = scratch.path().join("matrix.h");
    let source = "struct Place {
        static SYMMEM_DEVICE uint32 at(uint32 line, uint32 unit) { return line * 32 + unit * 8; }
    };
    SYMMEM_KERNEL(64) multiply(SYMMEM_ARGUMENTS(TransferArguments) matrices) {
        using namespace arch;
        uint16* shared = reinterpret_cast<uint16*>(dynamic_shared());
        const Vector16 both = load_reused(pointer<const Vector16>(matrices.source) + thread_index());
        store_shared(shared + 8 * thread_index(), both);
        shared_barrier();
        MatrixPart part = {};
        const MatrixFragment fragment = load_fragment<ElementType::f16, Place>(shared);
        matrix_multiply_add<ElementType::bf16>(part, fragment, fragment, 0);
        matrix_multiply_add<ElementType::f16>(part, fragment, fragment, 0);
#if SYMMEM_HAS_MATRIX_F8
        matrix_multiply_add<ElementType::f8_e4m3>(part, fragment, fragment, 0);
#endif
        store(pointer<Vector16>(matrices.destination) + thread_index(), __builtin_bit_cast(Vector16, part));
    }";
    std::fs::write(&path, format!("{HEADERS}{source}")).unwrap();
    for target in TARGETS {
        let object = scratch.path().join(format!("matrix.{target}.co"));
        let object = compiler.own(&path, target, object).unwrap();
        assert_eq!(
            lint(&objdump, &object, target, Owner::Symmem).unwrap(),
            [""; 0],
            "{target}"
        );
        let mut command = std::process::Command::new(&objdump);
        let text = tools::output(
            command
                .arg("-d")
                .arg(format!("--mcpu={target}"))
                .arg(&object),
        )
        .unwrap();
        let mut kinds = vec!["bf16", "f16"];
        kinds.extend((target != "gfx90a").then_some("f8_e4m3"));
        for kind in kinds {
            let instruction = lint::matrix_instruction(target, &format!("_{kind}_"));
            let named = if kind == "f8_e4m3" { "fp8_fp8" } else { kind };
            let found = text
                .lines()
                .any(|line| line.contains(instruction) && line.contains(named));
            assert!(found, "{target}: {kind}");
        }
    }
}

#[test]
fn the_crates_entries_are_what_the_code_objects_have() {
    for module in symmem_kernels_hip::modules() {
        for target in symmem_kernels_hip::Target::ALL {
            let object = object::parse(&module.object(target).decompress().unwrap()).unwrap();
            let mut found: Vec<_> = object
                .kernels
                .iter()
                .map(|kernel| (kernel.name.as_str(), kernel.kernarg_bytes, kernel.threads))
                .collect();
            let mut expected: Vec<_> = module
                .entries_of(target)
                .map(|entry| {
                    (
                        entry.name,
                        entry.kernarg_bytes().into(),
                        entry.threads.into(),
                    )
                })
                .collect();
            found.sort_unstable();
            expected.sort_unstable();
            assert_eq!(found, expected, "{} {target:?}", module.name);
        }
    }
}

#[test]
fn of_every_kernel_the_lint_knows_how_often_it_publishes() {
    for entry in symmem_kernels_hip::modules()
        .iter()
        .flat_map(|module| module.entries)
    {
        let least = least_publications(entry.name);
        assert!(least.is_some(), "{} is not in the lint's list", entry.name);
    }
}

#[test]
fn the_crates_entries_take_the_structs_of_the_host() {
    use symmem_core::backend::abi;
    let bytes = |name: &str| match name {
        "symmem_copy_vector" | "symmem_copy_unrolled" => size_of::<abi::TransferArguments>(),
        "symmem_latency_packet" | "symmem_latency_signal" => size_of::<abi::LatencyArguments>(),
        "symmem_signal" => size_of::<abi::SignalTarget>(),
        "symmem_wait" => size_of::<abi::SignalWait>(),
        "symmem_step" => size_of::<abi::StepArguments>(),
        "symmem_word_update" => size_of::<abi::WordOperation>(),
        "symmem_word_wait" => size_of::<abi::WordWait>(),
        "symmem_barrier" => size_of::<abi::Barrier>(),
        "symmem_move" | "symmem_swap" => size_of::<abi::MoveArguments>(),
        "symmem_move_pieces" => size_of::<abi::PieceArguments>(),
        "symmem_exchange" => size_of::<abi::ExchangeArguments>(),
        _ if name.starts_with("symmem_move_packets") => size_of::<abi::PacketArguments>(),
        _ if name.starts_with("symmem_move_lamport") => size_of::<abi::MoveLamportArguments>(),
        _ if name.starts_with("symmem_reduce_lamport_") => size_of::<abi::ReduceLamportArguments>(),
        _ if name.starts_with("symmem_reduce_norm_") => size_of::<abi::ReduceNormArguments>(),
        _ if name.starts_with("symmem_reduce_packets_") => size_of::<abi::ReducePacketArguments>(),
        _ if name.starts_with("symmem_reduce_push_") => size_of::<abi::ReducePushArguments>(),
        _ if name.starts_with("symmem_gathered_gemm_") => size_of::<abi::GatheredGemmArguments>(),
        _ if name.starts_with("symmem_reduced_gemm_") => size_of::<abi::ReducedGemmArguments>(),
        _ => size_of::<abi::ReduceArguments>(),
    };
    for module in symmem_kernels_hip::modules() {
        for entry in module.entries {
            assert_eq!(
                entry.argument_bytes as usize,
                bytes(entry.name),
                "{}",
                entry.name
            );
        }
    }
}
