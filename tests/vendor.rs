//! NCCL and RCCL behind the methods of a stream. Ranks are threads of a child process, over the fake driver with the
//! fake NCCL and over the fake HIP runtime with the fake RCCL.

#[allow(dead_code, reason = "this test uses the fakes only")]
mod support;

use rstest::rstest;
use std::path::Path;
use std::time::{Duration, Instant};
use support::vendors::{Vendor, ranks, role};
use symmem::backend::Device;
use symmem::tuning::{Row, Table};
use symmem::{
    Algorithm, CollectiveCall, CollectiveOperation, CollectiveOptions, Communicator, DeviceAddress,
    ElementType, Error, Provider, ReduceOp, Result,
};

fn by(provider: Provider) -> CollectiveOptions<'static> {
    CollectiveOptions::new().provider(provider)
}

/// Elements of a part, whole vectors as symmetric windows require.
const COUNT: usize = 1000;

fn value(rank: usize, index: usize) -> f32 {
    (rank * 1000 + index % 100) as f32
}

#[rstest]
fn the_vendors_library_gives_what_ours_gives(#[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor) {
    let virtual_memory = ("SYMMEM_SHARE", "vmm_file_descriptor");
    let plain_memory = [("SYMMEM_SHARE", "legacy_ipc"), ("VENDOR_PLAIN_MEMORY", "1")];
    role(vendor, "every_call", vendor.libraries(), &[virtual_memory]);
    role(vendor, "every_call", vendor.libraries(), &plain_memory);
}

/// The test covers symmem's look-ups only; a real NCCL has the driver look up all its functions.
#[rstest]
#[case::unasked("")]
#[case::asked_and_forbidden_to_nccl("1")]
#[case::emulated("emulate")]
fn nccl_is_started_without_looking_any_function_of_multicast_up(#[case] asked: &str) {
    let record = format!("vendor-look-ups-{}-{asked}", std::process::id());
    let record = Path::new(env!("CARGO_TARGET_TMPDIR")).join(record);
    let preload = support::look_ups();
    let environment = [
        ("LD_PRELOAD", preload.to_str().unwrap()),
        ("SYMMEM_TEST_LOOK_UPS", record.to_str().unwrap()),
        ("FAKE_CUDA_MULTICAST_HARDWARE", "1"),
        ("SYMMEM_MULTICAST", asked),
    ];
    let wrong = role(
        Vendor::Cuda,
        "every_call",
        Vendor::Cuda.libraries(),
        &environment,
    );
    assert_eq!(wrong, [""; 0]);
    let names = support::looked_up(&record);
    std::fs::remove_file(&record).unwrap();
    for name in ["cuInit", "ncclCommInitRankConfig"] {
        assert!(names.iter().any(|found| found == name), "{name}: {names:?}");
    }
    let mut of_multicast = names.iter().filter(|name| name.contains("Multicast"));
    assert_eq!(of_multicast.next(), None);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn every_call() {
    for world in [1, 2, 3] {
        for result in ranks(world, |communicator| {
            assert!(matches!(communicator.backend_name(), "cuda" | "hip"));
            let description = communicator.open_nccl(false)?;
            assert!(description.version > 0);
            for windows in [false, true] {
                communicator.open_nccl(windows)?;
                let provider = match windows {
                    false => Provider::Nccl,
                    true => Provider::NcclWindows,
                };
                calls(&communicator, provider)?;
            }
            let leaks = communicator.finalize()?;
            assert!(leaks.is_empty(), "{leaks:?}");
            Result::Ok(())
        }) {
            result.unwrap();
        }
    }
}

fn calls(communicator: &Communicator, provider: Provider) -> Result<()> {
    let (rank, world) = (communicator.rank(), communicator.world_size());
    let mut stream = communicator.stream()?;
    let sources = communicator.allocate::<f32>(&[COUNT * world])?;
    let results = [
        communicator.allocate::<f32>(&[COUNT * world])?,
        communicator.allocate::<f32>(&[COUNT * world])?,
    ];
    if provider == Provider::NcclWindows {
        let registered = sources.register_with_nccl();
        if std::env::var_os("VENDOR_PLAIN_MEMORY").is_some() {
            // Symmetric windows need VMM memory.
            let error = registered.unwrap_err();
            assert!(matches!(error, Error::Unsupported { .. }), "{error}");
            return communicator.host_barrier();
        }
        registered?;
        results[1].register_with_nccl()?;
        let again = results[1].register_with_nccl().unwrap_err();
        assert!(again.to_string().contains("already"), "{again}");
    }
    let given: Vec<f32> = (0..COUNT * world).map(|index| value(rank, index)).collect();
    sources.write(&stream, 0, &given)?;
    let (root, sum) = (world - 1, ReduceOp::Sum);
    let (right, left) = ((rank + 1) % world, (rank + world - 1) % world);
    let uneven: Vec<usize> = (0..world).map(|peer| 40 * peer + 3).collect();
    let total: usize = uneven.iter().sum();
    let at = vec![0; world];
    let here: Vec<usize> = (0..world).map(|peer| 100 * peer).collect();
    for call in 0..9 {
        // First symmem's own kernels, then NCCL or RCCL.
        for (result, provider) in results.iter().zip([Provider::Symmem, provider]) {
            let options = by(provider);
            result.write(&stream, 0, &vec![-1.0; COUNT * world])?;
            stream.barrier()?;
            let (all, part) = (result.all(), result.slice(..COUNT)?);
            let (from, one) = (sources.all(), sources.slice(..COUNT)?);
            match call {
                0 => stream.with(&options).all_reduce(all, from, sum)?,
                1 => stream.with(&options).reduce(root, all, from, sum)?,
                2 => stream.with(&options).reduce_scatter(part, from, sum)?,
                3 => stream.with(&options).all_gather(all, one)?,
                4 => stream.with(&options).broadcast(root, part, one)?,
                5 => stream.with(&options).all_to_all(all, from)?,
                6 => stream.with(&options).gather(root, all, one)?,
                7 => {
                    stream.with(&options).scatter(root, part, from)?;
                    // Symmetric windows need ranges that start at whole vectors.
                    let start = (COUNT * (world - 1)).next_multiple_of(4);
                    let (counts, target) = (&uneven, result.slice(start..start + total)?);
                    stream.with(&options).all_gather_v(target, from, counts)?;
                }
                _ => {
                    let mut exchange = stream.with(&options).exchange();
                    exchange.send(right, one)?;
                    exchange.recv(left, part)?;
                    exchange.enqueue()?;
                    let counts = vec![50; world];
                    let start = COUNT * (world - 1);
                    let target = result.slice(start..start + 100 * world)?;
                    stream
                        .with(&options)
                        .all_to_all_v(target, &counts, &here, one, &counts, &at)?;
                }
            }
            stream.synchronize()?;
        }
        let mut seen = [vec![0.0; COUNT * world], vec![0.0; COUNT * world]];
        for (result, seen) in results.iter().zip(&mut seen) {
            result.read(&stream, 0, seen)?;
        }
        assert_eq!(seen[0], seen[1], "call {call} of {provider:?}");
    }
    if world > 1 && provider == Provider::NcclWindows {
        let (to, from) = (results[1].slice(1..9)?, sources.slice(1..9)?);
        let refused = stream.with(&by(provider)).all_reduce(to, from, sum);
        assert!(
            matches!(&refused, Err(Error::Unsupported { .. })),
            "{refused:?}"
        );
    }
    if world > 1 {
        let graph = stream.capture(|queue| {
            queue
                .with(&by(provider))
                .all_reduce(results[0].all(), sources.all(), sum)
        })?;
        for _ in 0..3 {
            stream.launch_graph(&graph)?;
        }
        stream.synchronize()?;
    }
    communicator.host_barrier()
}

#[rstest]
fn a_library_that_is_missing_is_named_and_nothing_else_is(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    if is_installed(vendor.library()) {
        support::skipped(&format!("{} is installed here", vendor.library()));
        return;
    }
    role(vendor, "missing", &vendor.runtime(), &[]);
}

/// Whether the loader would find a real library if the fake is missing.
fn is_installed(library: &str) -> bool {
    // SAFETY: no function of the library is called.
    unsafe { libloading::Library::new(library) }.is_ok()
        || std::env::var_os("VIRTUAL_ENV").is_some()
}

#[test]
#[ignore = "run in a child process by the test above"]
fn missing() {
    for result in ranks(2, |communicator| {
        let error = communicator.open_nccl(false).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(Vendor::of_role().library()), "{text}");
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<f32>(&[100])?;
        let (all, sum) = (buffer.all(), ReduceOp::Sum);
        stream
            .with(&by(Provider::Nccl))
            .all_reduce(all, all, sum)
            .unwrap_err();
        buffer.register_with_nccl().unwrap_err();
        stream.all_reduce(all, all, sum)?;
        stream.synchronize()?;
        drop(buffer);
        communicator.finalize().map(drop)
    }) {
        result.unwrap();
    }
}

#[rstest]
fn a_call_that_a_peer_never_makes_is_ended_when_the_communicator_is_aborted(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    role(vendor, "aborted", vendor.libraries(), &[]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn aborted() {
    let results = ranks(2, |communicator| {
        communicator.open_nccl(false)?;
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<f32>(&[100])?;
        let call = || {
            let (all, sum) = (buffer.all(), ReduceOp::Sum);
            stream.with(&by(Provider::Nccl)).all_reduce(all, all, sum)
        };
        // The first call connects the ranks; only one rank makes the second.
        call()?;
        stream.synchronize()?;
        if communicator.rank() == 1 {
            std::thread::sleep(Duration::from_millis(300));
            communicator.abort();
            return Ok(Duration::ZERO);
        }
        call()?;
        let start = Instant::now();
        let error = stream.synchronize().unwrap_err();
        assert!(
            matches!(error, Error::PeerFailed { peer: 1, .. }),
            "{error}"
        );
        Result::Ok(start.elapsed())
    });
    let waited = results[0].as_ref().unwrap();
    assert!(*waited < Duration::from_secs(10), "{waited:?}");
}

#[rstest]
fn a_library_that_never_joins_is_given_up_at_the_setup_deadline(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    let hang = [("FAKE_NCCL_HANG", "ncclCommInitRankConfig")];
    role(vendor, "never_joined", vendor.libraries(), &hang);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn never_joined() {
    for result in ranks(2, |communicator| {
        let error = communicator.open_nccl(false).unwrap_err();
        assert!(
            matches!(error, Error::HostTimeout { .. } | Error::PeerFailed { .. }),
            "{error}"
        );
        // The ranks are still in step.
        communicator.host_barrier()
    }) {
        result.unwrap();
    }
}

#[rstest]
fn memory_that_is_not_this_devices_is_refused_before_anything_is_enqueued(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    role(vendor, "elsewhere", vendor.runtime().as_path(), &[]);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn elsewhere() {
    for result in ranks(2, |communicator| {
        let peer = 1 - communicator.rank();
        let buffer = communicator.allocate::<f32>(&[1 << 20])?;
        // SAFETY: the memory is freed below, and nothing uses it.
        let host = unsafe { communicator.backend().host_allocate(4096) }.expect("host memory");
        let refused = |address: u64, length| {
            // SAFETY: nothing is enqueued with the slice.
            let slice = unsafe { communicator.device_slice::<f32>(DeviceAddress(address), length) };
            match slice {
                Err(error @ Error::InvalidArgument { .. }) => error.to_string(),
                other => panic!("{:#x}: {:?}", address, other.map(|slice| slice.len())),
            }
        };
        let own = buffer.local().address().0;
        // SAFETY: as above.
        assert!(unsafe { communicator.device_slice::<f32>(DeviceAddress(own), 1 << 20) }.is_ok());
        for address in [host.host, host.device.0, (&raw const peer).addr() as u64] {
            let told = refused(address, 4);
            assert!(
                told.contains("begin where the driver knows no memory"),
                "{told}"
            );
        }
        let told = refused(buffer.peer(peer)?.address().0, 4);
        let ordinal = communicator.peers()[peer].device;
        assert!(
            told.contains(&format!("begin in memory of device {ordinal}")),
            "{told}"
        );
        let told = refused(own, 1 << 40);
        assert!(told.contains("end "), "{told}");
        // SAFETY: allocated above, and no device uses it.
        unsafe { communicator.backend().host_free(host) }.expect("its own memory");
        // The communicator lives on.
        communicator.host_barrier()?;
        drop(buffer);
        communicator.finalize().map(drop)
    }) {
        result.unwrap();
    }
}

#[rstest]
fn a_row_that_names_the_vendor_holds_once_its_library_is_open(
    #[values(Vendor::Cuda, Vendor::Hip)] vendor: Vendor,
) {
    // As `symmem tune` writes it: the fastest algorithm first, then the fallback without NCCL or RCCL.
    let row = |algorithm, blocks| Row {
        operation: "all_reduce".into(),
        world: 2,
        bytes: u64::MAX,
        algorithm,
        blocks,
        threads: 32 * blocks,
        concurrent: 0,
    };
    let table = Table {
        rows: vec![row("vendor".into(), 0), row("two_shot".into(), 2)],
        ..Table::default()
    };
    let file = Path::new(env!("CARGO_TARGET_TMPDIR"))
        .join(format!("vendor-rows-{}.json", vendor.backend()));
    std::fs::write(&file, table.to_json().unwrap()).unwrap();
    let tuning = [("SYMMEM_TUNING", file.to_str().unwrap())];
    role(vendor, "by_row", vendor.libraries(), &tuning);
}

#[test]
#[ignore = "run in a child process by the test above"]
fn by_row() {
    for result in ranks(2, |communicator| {
        let explain = |communicator: &Communicator| {
            let bytes = 1 << 40;
            let operation = CollectiveOperation::AllReduce;
            let explanation = communicator.explain(operation, bytes, ElementType::F32);
            explanation.map(|one| one.choice().expect("one node").algorithm())
        };
        assert_eq!(explain(&communicator)?, Algorithm::TwoShot);
        communicator.open_nccl(false)?;
        assert_eq!(explain(&communicator)?, Algorithm::Nccl);
        // NCCL's sum of integers may wrap before it is divided, ours does not: results must not depend on the size.
        let averages = |element| {
            let call = CollectiveCall::new(CollectiveOperation::AllReduce, 1 << 40, element);
            let call = CollectiveCall {
                reduce: ReduceOp::Average,
                ..call
            };
            let explanation = communicator.explain_call(&call, &CollectiveOptions::new());
            explanation.map(|one| one.choice().expect("one node").algorithm())
        };
        assert_eq!(averages(ElementType::I8)?, Algorithm::TwoShot);
        assert_eq!(averages(ElementType::F32)?, Algorithm::Nccl);
        let options = CollectiveOptions::new().algorithm(Algorithm::Nccl);
        let stream = communicator.stream()?;
        let buffer = communicator.allocate::<f32>(&[100])?;
        let (all, sum) = (buffer.all(), ReduceOp::Sum);
        stream.with(&options).all_reduce(all, all, sum)?;
        stream.synchronize()?;
        let group = communicator.split(Some(communicator.rank() as u32), 0)?;
        let alone = options.group(group.as_ref());
        // A group of one rank only copies, whichever algorithm is named.
        stream.with(&alone).all_reduce(all, all, sum)?;
        drop((buffer, group));
        communicator.finalize().map(drop)
    }) {
        result.unwrap();
    }
}
