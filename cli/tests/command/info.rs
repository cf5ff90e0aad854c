//! `symmem info`: the short form over the fakes, and `--details`.

use super::*;
use crate::support::hip::{Release, fake_hip};
use rstest::rstest;

/// Asserts that the text is short, and that it has these parts.
#[track_caller]
fn is_short(output: &str, parts: &[&str]) {
    assert!(output.lines().count() <= 25, "{output}");
    for line in output.lines() {
        assert!(line.chars().count() <= 100, "{line}");
    }
    for part in parts {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
}

#[test]
fn info_says_what_starts_and_why_the_rest_does_not() {
    let directory = directory("info");
    let mut command = symmem(&directory, &["info", "--json", "info.json"]);
    command.env("SYMMEM_LIBRARY_PATH", &directory);
    let output = text(&succeed(command).stdout);
    let parts = [
        "`auto` selects host, because cuda",
        "cannot start\n",
        "cuda: cannot start: ",
        "host: 1 × ",
        "between nodes: ",
        "symmem info --details",
    ];
    is_short(&output, &parts);
    let json = std::fs::read_to_string(directory.join("info.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    assert_eq!(value["schema"], "symmem-info/1");
    // The host backend comes last; a backend that cannot start tells too.
    for backend in value["backends"].as_array().unwrap() {
        for world in backend["start_memory"].as_array().unwrap() {
            let total = world["device_bytes"].as_u64().unwrap();
            assert!((1..=64_000_000).contains(&total), "{world}");
            let parts = world["parts"].as_array().unwrap().iter();
            let parts = parts.filter(|part| part["on_device"] == true);
            let sum: u64 = parts.map(|part| part["bytes"].as_u64().unwrap()).sum();
            assert_eq!(sum, total, "{world}");
        }
    }
}

/// Whoever wants several nodes learns what is missing, and what to install.
#[test]
fn info_says_what_to_do_without_ucx() {
    let directory = directory("info-without-ucx");
    let arguments = ["info", "--backend", "host", "--json", "info.json"];
    let mut command = symmem(&directory, &arguments);
    command.env("SYMMEM_UCX_LIBRARY", "/nowhere/libucp.so.0");
    let output = text(&succeed(command).stdout);
    let parts = [
        "between nodes: no worlds of several nodes: ",
        "/nowhere/libucp.so.0",
        "SYMMEM_UCX_LIBRARY",
    ];
    is_short(&output, &parts);
    let json = std::fs::read_to_string(directory.join("info.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let error = value["between_nodes"]["error"].as_str().unwrap();
    assert!(error.contains("/nowhere/libucp.so.0"), "{error}");
}

#[rstest]
#[case(2, "links: peer access between both devices")]
#[case(8, "links: peer access between all 8 devices")]
fn equal_devices_and_links_are_one_line_each(#[case] devices: u32, #[case] links: &str) {
    let directory = directory(&format!("info-cuda-{devices}"));
    let libraries = support::fake_driver_and_libraries();
    let mut command = on_fake_driver(&directory, devices, &["info"]);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries);
    for name in ["SYMMEM_MULTICAST", "NCCL_NVLS_ENABLE"] {
        command.env_remove(name);
    }
    let output = text(&succeed(command).stdout);
    let counted = format!("cuda: {devices} × Fake NVIDIA H200, ");
    let parts = [
        "`auto` selects cuda, the first backend, because it can start\n",
        &*counted,
        links,
        "versions: driver 12.8, NCCL 2.28.9, cuBLASLt 12.8.5",
        "forbidden: NCCL: ",
        "multicast: ",
        "device memory of a start, in MB a rank: 5.3 for world size 1, ",
        "host: 1 × ",
    ];
    is_short(&output, &parts);

    let mut command = on_fake_driver(&directory, devices, &["info"]);
    command.env("FAKE_DEVICE_NO_PEER", "1");
    let apart = text(&succeed(command).stdout);
    is_short(
        &apart,
        &["links: no peer access between ", "missing: libcublasLt"],
    );

    let libraries = fake_hip(Release::Seven);
    let mut command = symmem(&directory, &["info", "--backend", "hip"]);
    command
        .env("SYMMEM_LIBRARY_PATH", libraries)
        .env("LD_LIBRARY_PATH", libraries)
        .env("FAKE_DEVICE_COUNT", devices.to_string());
    let output = text(&succeed(command).stdout);
    let counted = format!("hip: {devices} × Fake AMD Instinct MI300X, ");
    let over = links.replace("access", "access over xGMI");
    is_short(
        &output,
        &["`hip` selects hip\n", &counted, &over, "RCCL 2.28.9"],
    );
}

#[test]
fn details_name_every_device_link_and_file() {
    let directory = directory("info-details");
    let arguments = ["info", "--details", "--backend", "cuda"];
    let output = text(&succeed(on_fake_driver(&directory, 2, &arguments)).stdout);
    for part in [
        "`cuda` selects cuda\n",
        "device 1: Fake NVIDIA H200",
        "links from device (row) to device (column):",
        "peer",
        "libcuda.so.1",
        "driver_version",
        "device_1_multicast",
        "memory of a start, for each rank:",
        "world size 8",
        "device: inbox for pieces",
        "pinned host: staging of host copies",
    ] {
        assert!(output.contains(part), "{part} is missing in\n{output}");
    }
    let mut apart = on_fake_driver(&directory, 2, &arguments);
    apart.env("FAKE_DEVICE_NO_PEER", "1");
    assert!(text(&succeed(apart).stdout).contains("no"));
}
