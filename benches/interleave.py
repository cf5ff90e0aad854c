#!/usr/bin/env python3
"""Measures two builds of the command in turn and reports where they differ.

    benches/interleave.py OLD NEW --out DIR [--rounds N] [--control] -- bench p2p [-- bench collectives ...]

OLD and NEW are `symmem` binaries. Each round runs every benchmark with both builds, in alternating order. A point's
time is its median over the rounds, and its ratio is old time / new time: 1.02 means that NEW is 2 % faster. Prints each
benchmark's geometric mean, its worst ratio and all points below 0.97. The JSON of every run stays in DIR, with a
summary.

With --control, the old build is measured a second time: the number of points below 0.97 between the old build and
itself shows the noise.
"""

import argparse
import json
import math
import pathlib
import statistics
import subprocess
import sys


def points(report):
    """Returns the times of a report in ns, by name."""
    found = {}
    for point in report.get("points") or []:
        name = " ".join(str(point[key]) for key in ("direction", "traffic", "column", "bytes"))
        for kind in ("looped", "graph"):
            if point.get(kind):
                found[f"p2p {name} {kind}"] = point[kind]["ns"]
    for point in report.get("latencies") or []:
        found[f"latency {point['name']}"] = point["one_way_ns"]["median"]
    for point in (report.get("collectives") or {}).get("points") or []:
        if point["by"] != "symmem":
            continue
        for place in ("out_of_place", "in_place"):
            for kind in ("looped", "graph"):
                measured = (point.get(place) or {}).get(kind)
                if measured:
                    name = f"{point['collective']} {point['bytes']} {place} {kind}"
                    found[f"collective {name}"] = measured["ns"]
    for product in (report.get("ag_gemm") or {}).get("products") or []:
        shape = product["product"]
        name = f"{shape['m']}x{shape['n']}x{shape['k']} {shape.get('sharding')}"
        for entry in product["entries"]:
            for kind in ("time", "graph"):
                if entry.get(kind):
                    found[f"ag-gemm {name} {entry['by']} {entry.get('how', '')} {kind}"] = entry[kind]["ns"]
    for row in report.get("rows") or []:
        if isinstance(row.get("ns"), dict):
            # Maps a call's name in older reports to its current name.
            call = row["call"].replace("Stream::put_with", "Queue::put")
            found[f"enqueue {call}"] = row["ns"]["median"]
    return found


def run(binary, arguments, file):
    if "ag-gemm" in arguments:
        folder = file.with_suffix("")
        command = [binary, *arguments, "--out", str(folder), "--json", str(file)]
    else:
        command = [binary, *arguments, "--json", str(file)]
    outcome = subprocess.run(command, capture_output=True, text=True)
    if outcome.returncode != 0 or not file.is_file():
        sys.exit(f"{command}: exit code {outcome.returncode}\n{outcome.stdout[-2000:]}\n{outcome.stderr[-2000:]}")
    return points(json.loads(file.read_text()))


def compare(old, new):
    """Returns old / new of the median times, by name."""
    ratios = {}
    for name, before in old.items():
        after = new.get(name)
        if after and statistics.median(after) > 0 and statistics.median(before) > 0:
            ratios[name] = statistics.median(before) / statistics.median(after)
    return ratios


def main():
    own, benchmarks = [], []
    for argument in sys.argv[1:]:
        if argument == "--":
            benchmarks.append([])
        else:
            (benchmarks[-1] if benchmarks else own).append(argument)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--out", required=True, type=pathlib.Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--control", action="store_true", help="measure the old build a second time")
    options = parser.parse_args(own)
    options.out.mkdir(parents=True, exist_ok=True)
    binaries = {"old": options.old, "new": options.new}
    if options.control:
        binaries["again"] = options.old
    summary = {}
    for number, arguments in enumerate(benchmarks):
        times = {which: {} for which in binaries}
        for turn in range(options.rounds):
            # Rotates the order, so that each build goes first equally often.
            first = turn % len(binaries)
            order = [*binaries][first:] + [*binaries][:first]
            for which in order:
                file = options.out / f"{number}-{which}-{turn}.json"
                for name, ns in run(binaries[which], arguments, file).items():
                    times[which].setdefault(name, []).append(ns)
        ratios = compare(times["old"], times["new"])
        # Spread of the old build over its rounds, as a measure of the noise.
        noise = [max(old) / min(old) for old in times["old"].values() if min(old) > 0 and len(old) > 1]
        label = " ".join(arguments)
        if not ratios:
            print(f"{label}: no common points")
            continue
        mean = math.exp(statistics.fmean(math.log(ratio) for ratio in ratios.values()))
        print(f"{label}: {len(ratios)} points, geometric mean {mean:.4f}, worst {min(ratios.values()):.3f}; the old "
              f"build against itself: median spread {statistics.median(noise) if noise else 1:.3f}")
        for name, ratio in sorted(ratios.items(), key=lambda pair: pair[1]):
            if ratio < 0.97:
                old, new = times["old"][name], times["new"][name]
                print(f"  {ratio:.3f} {name}: old {[round(ns) for ns in old]} new {[round(ns) for ns in new]}")
        summary[label] = {"geometric_mean": mean, "ratios": ratios, "old_ns": times["old"], "new_ns": times["new"]}
        if options.control:
            control = compare(times["old"], times["again"])
            below = sum(ratio < 0.97 for ratio in control.values())
            mean = math.exp(statistics.fmean(math.log(ratio) for ratio in control.values()))
            print(f"  control, the old build against itself: geometric mean {mean:.4f}, worst "
                  f"{min(control.values()):.3f}, {below} of {len(control)} points below 0.97; new against old: "
                  f"{sum(ratio < 0.97 for ratio in ratios.values())}")
            summary[label] |= {"control_ratios": control, "again_ns": times["again"]}
    (options.out / "summary.json").write_text(json.dumps(summary, indent=1))


if __name__ == "__main__":
    main()
