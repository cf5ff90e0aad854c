#!/usr/bin/env python3
"""Measures worlds over two hosts on one quiet machine: benches/two_hosts.py [DIRECTORY]

The hosts are namespaces of symmem-two-hosts, joined by a veth pair without a rate. Writes to DIRECTORY
(two-hosts-results):

    p2p.json                  symmem bench p2p --pairs nodes, a rank on each host, beside ucx_perftest
    OPERATION-{1,2,3}.json    symmem bench collectives, two ranks on each host, beside Open MPI over UCX, 8 B to 64 MiB
    summary.txt               what the runs show beside what is asked of them; also printed

Takes 12 to 18 minutes on 2 cores, after the build. A result that is there already is not measured again. Needs root or a user namespace (unshare -Urn), iproute2, Open MPI 4.1
with UCX and its compiler, and ucx-utils. --quick makes one run with few sizes, to try it; --summary DIRECTORY only
prints the summary of runs that were made.
"""

import argparse
import itertools
import json
import math
import os
import pathlib
import secrets
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
SYMMEM = ROOT / "target/release/symmem"
TWO_HOSTS = ROOT / "target/release/two-hosts"
OPERATIONS = ["all_reduce", "all_gather", "reduce_scatter", "all_to_all"]
RUNS = 3
# Time limit of each run.
LIMIT = 400
# The variable that tells the part of this program that two-hosts starts where the results go.
INSIDE = "TWO_HOSTS_RESULTS"
# Open MPI over UCX: shared memory on a host, TCP between them. Ranks must yield the processors, since each host counts
# all of the machine as its own; without the two opal variables it uses UCX over InfiniBand only.
MPIRUN = (
    "mpirun --bind-to none --oversubscribe --mca plm_rsh_agent {agent} --mca oob_tcp_if_include eth0"
    " --mca mpi_yield_when_idle 1 --mca pml ucx --mca opal_common_ucx_tls any --mca opal_common_ucx_devices any"
    " -x UCX_TLS=tcp,self,sm -x UCX_NET_DEVICES=eth0 --host host0:{ranks},host1:{ranks}"
)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", nargs="?", default="two-hosts-results", type=pathlib.Path)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--summary", action="store_true")
    asked = parser.parse_args()
    if INSIDE in os.environ:
        measure(pathlib.Path(os.environ[INSIDE]), asked.quick)
        return
    directory = asked.directory.resolve()
    if not asked.summary:
        directory.mkdir(parents=True, exist_ok=True)
        build = ["cargo", "build", "--release", "-p", "symmem-cli", "-p", "symmem-two-hosts"]
        if not (SYMMEM.exists() and TWO_HOSTS.exists()):
            subprocess.run(build, cwd=ROOT, check=True)
        start = time.monotonic()
        again = [sys.executable, __file__] + ["--quick"] * asked.quick
        subprocess.run([TWO_HOSTS, "--", *again], env={**os.environ, INSIDE: str(directory)}, check=True)
        print(f"measured in {time.monotonic() - start:.0f} s", flush=True)
    text = "\n".join(summary(directory))
    print(text)
    (directory / "summary.txt").write_text(text + "\n")


def measure(directory, quick):
    """Makes all runs; this process is in front of the hosts."""
    both(1, directory / "p2p.json", ["p2p", "--pairs", "nodes"] + ["--quick"] * quick)
    for run, operation in itertools.product(range(1 if quick else RUNS), OPERATIONS):
        words = ["collectives", "--op", operation, "--baseline", "mpi"]
        words += ["--mpirun", MPIRUN.format(agent=os.environ["TWO_HOSTS_AGENT"], ranks=2)]
        words += ["--min-bytes", "8", "--max-bytes", "1M" if quick else "64M"]
        words += ["--rounds", "3" if quick else "5"]
        both(2, directory / f"{operation}-{run + 1}.json", words)


def both(ranks, file, words):
    """Runs a benchmark on both hosts, unless its file is there. Rank 0, on the first one, writes it."""
    if file.exists():
        return
    start = time.monotonic()
    print(f"{file.name}: load {os.getloadavg()[0]:.2f}", flush=True)
    environment = {
        **os.environ,
        "SYMMEM_SECRET": secrets.token_hex(32),
        "UCX_TLS": "tcp,self",
        "UCX_NET_DEVICES": "eth0",
        # Open MPI's ranks may take all processors for seconds.
        "SYMMEM_SILENCE": "30",
    }
    processes = []
    for node in (1, 0):
        place = ["--backend", "host", "-n", ranks, "--nodes", 2, "--node", node]
        place += ["--rendezvous", "10.77.0.1:4000"]
        place += ["--json", file, "--force"] if node == 0 else []
        # The agent joins its words with blanks for a shell, as ssh does.
        command = [quoted(word) for word in [SYMMEM, "bench", *words, *place]]
        command = [os.environ["TWO_HOSTS_AGENT"], f"host{node}", "exec", *command]
        log = open(file.with_suffix(f".node{node}.log"), "w")
        processes.append(subprocess.Popen(command, env=environment, stdout=log, stderr=subprocess.STDOUT))
    codes = []
    for process in processes:
        try:
            codes.append(process.wait(max(1, LIMIT - (time.monotonic() - start))))
        except subprocess.TimeoutExpired:
            process.kill()
            codes.append("too long")
    print(f"{file.name}: {time.monotonic() - start:.0f} s", flush=True)
    if codes != [0, 0]:
        sys.exit(f"{file.name}: exit codes {codes} of host1 and host0; see its logs")


def quoted(word):
    return "'" + str(word).replace("'", "'\\''") + "'"


def summary(directory):
    """Yields the lines of the summary."""
    transfers = json.loads((directory / "p2p.json").read_text())
    where = transfers["environment"]
    yield f"commit {where['commit']}, {where['date']}, {where['host']['cores']} cores, {where['host']['kernel']}"
    yield f"between nodes: {where.get('network')}"
    yield from puts(transfers)
    numbers = range(1, RUNS + 1)
    files = {run: sorted(directory.glob(f"*_*-{run}.json")) for run in numbers}
    runs = [[json.loads(file.read_text()) for file in files[run]] for run in numbers if files[run]]
    for baseline in runs[0][0]["collectives"]["baselines"]:
        yield f"{baseline['name']}: {baseline.get('version') or 'absent: ' + baseline['absent']}"
    yield from collectives(runs)
    yield from wire(runs)
    notes = {note for report in [transfers, *itertools.chain(*runs)] for note in report["notes"]}
    yield from (f"note: {note}" for note in sorted(notes) if "bring" not in note)


def puts(report):
    """Compares puts with ucx_perftest."""
    points = [one for one in report["points"] if (one["direction"], one["traffic"]) == ("push", "one_way")]
    ours = {one["bytes"]: one["looped"]["gbps"] for one in points if one["column"] == "block128"}
    theirs = {one["bytes"]: one["looped"]["gbps"] for one in points if one["column"] == "ucx_perftest"}
    yield f"{'put, bytes':>12} {'GB/s':>8} {'ucp_put_bw':>11} {'ratio':>6}"
    ratios = {}
    for size in sorted(ours):
        ratios[size] = ours[size] / theirs[size] if size in theirs else None
        beside = f"{theirs[size]:11.3f} {ratios[size]:6.2f}" if ratios[size] else f"{'-':>11} {'-':>6}"
        yield f"{size:12} {ours[size]:8.3f} {beside}"
    large = [ratio for size, ratio in ratios.items() if ratio and size >= 65536]
    if large:
        yield verdict("put, least ratio from 64 KiB on", min(large), ">=", 0.95)
    for latency in report["latencies"]:
        beside = latency.get("baseline")
        if beside:
            # Both are the median of one way; the bar allows for the signal.
            bar = 1.5 * beside["one_way_ns"]["median"] / 1e3 + 10
            us = latency["one_way_ns"]["median"] / 1e3
            yield f"ucp_put_lat {beside['one_way_ns']['median'] / 1e3:.2f} us"
            yield verdict(f"{latency['name']}, us", us, "<=", bar)


def placed(run, by):
    """Returns the out-of-place results of a library in a run, by operation and size."""
    points = [point for report in run for point in report["collectives"]["points"] if point["by"] == by]
    return {(point["collective"], point["bytes"]): point["out_of_place"] for point in points}


def collectives(runs):
    """Compares collectives with Open MPI's: the median over runs of the ratio of times in calls back to back."""
    ratios = {}
    for run in runs:
        theirs = placed(run, "mpi")
        for key, ours in placed(run, "symmem").items():
            if key in theirs:
                ratio = theirs[key]["looped"]["ns"] / ours["looped"]["ns"]
                ratios.setdefault(key, []).append(ratio)
    if not ratios:
        return
    sizes = sorted({size for _, size in ratios})
    yield "Open MPI's time over symmem's: the median of the runs, and the least"
    yield f"{'bytes':>12} " + " ".join(f"{name:>15}" for name in OPERATIONS)
    for size in sizes:
        cells = []
        for name in OPERATIONS:
            values = ratios.get((name, size))
            cells.append(f"{median(values):8.2f} {min(values):6.2f}" if values else "-")
        yield f"{size:12} " + " ".join(f"{cell:>15}" for cell in cells)
    wrong = sum(one["wrong"] for run in runs for by in ("symmem", "mpi") for one in placed(run, by).values())
    yield verdict("wrong elements", wrong, "<=", 0)
    for name in OPERATIONS:
        own = [median(values) for (operation, _), values in ratios.items() if operation == name]
        if own:
            yield f"{name}: geometric mean {geometric(own):.2f}, least {min(own):.2f}"
    for number in range(len(runs)):
        own = [values[number] for values in ratios.values() if len(values) > number]
        yield f"run {number + 1}: geometric mean {geometric(own):.2f}, least {min(own):.2f}"
    all_of_them = [median(values) for values in ratios.values()]
    yield verdict("geometric mean of all", geometric(all_of_them), ">=", 1.2)
    yield verdict("least, median of the runs", min(all_of_them), ">=", 0.8)


def wire(runs):
    """Compares what an all-reduce sends with the least: 2 (N - 1) / N of one rank's share on each rail."""
    for size in (16 << 20, 64 << 20):
        for by in ("symmem", "mpi"):
            points = [placed(run, by).get(("all_reduce", size)) for run in runs]
            sent = [point["wire_bytes"] for point in points if point and point.get("wire_bytes")]
            if not sent:
                continue
            nodes = runs[0][0]["collectives"]["nodes"]
            # Of all rails of a host together: the ranks' shares are the whole.
            least = 2 * (nodes - 1) / nodes * size
            name = f"bytes at the veth, all_reduce of {size >> 20} MiB, {by}, over the least"
            ratio = median(sent) / least
            yield verdict(name, ratio, "<=", 1.03) if by == "symmem" else f"{name}: {ratio:.3f}"


def verdict(name, value, relation, bar):
    holds = value >= bar if relation == ">=" else value <= bar
    return f"{'ok  ' if holds else 'MISS'} {name}: {value:.3f} ({relation} {bar:.3f})"


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def geometric(values):
    return math.exp(sum(map(math.log, values)) / len(values))


if __name__ == "__main__":
    main()
