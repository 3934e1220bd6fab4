#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The figures of whole models that the program is held to, beside what they may cost.

    python3 tests/bench/figures.py build/tpsim [--only WORD]

Each command runs by itself; printed are its seconds, CPU seconds and memory, and the limits. What
is above one is marked, and the exit status is 1. Private memory is what is not a page of a mapped
file. Needs Python 3.9 on Linux, and 2 GB in the temporary folder.
"""
import argparse
import os
import re
import subprocess
import sys
import tempfile
import threading
import time

MB = 1e6


class Cost:
    def __init__(self, seconds, cpu, private):
        self.seconds, self.cpu, self.private = seconds, cpu, private


def private_bytes(pid):
    """Bytes of a process that no other has and no file stands for; 0 when it is gone."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as rollup:
            found = re.search(r"^Anonymous:\s+(\d+) kB", rollup.read(), re.M)
            return int(found.group(1)) * 1024 if found else 0
    except (OSError, ProcessLookupError):
        return 0


def measured(command):
    before = os.times()
    start = time.monotonic()
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    most = 0
    output = []
    reader = threading.Thread(target=lambda: output.append(process.stdout.read()))
    reader.start()
    while process.poll() is None:
        most = max(most, private_bytes(process.pid))
        time.sleep(0.005)
    reader.join()
    seconds, after = time.monotonic() - start, os.times()
    if process.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit status {process.returncode}\n{output[0]}")
    return Cost(seconds, after.children_user + after.children_system - before.children_user
                - before.children_system, most)


class Table:
    def __init__(self, only):
        self.only, self.missed = only, False
        print(f"{'seconds':>8} {'CPU s':>8} {'private':>9}   limit                what")

    def wants(self, what):
        return self.only in what

    def row(self, what, cost, seconds=None, memory=None, note=""):
        limits, over = [], False
        if seconds is not None:
            limits.append(f"{seconds:g} s")
            over |= cost.seconds > seconds
        if memory is not None:
            limits.append(f"{memory / MB:.0f} MB")
            over |= cost.private > memory
        self.missed |= over
        print(f"{cost.seconds:8.2f} {cost.cpu:8.2f} {cost.private / MB:6.0f} MB   "
              f"{', '.join(limits):<14} {'OVER' if over else '':<4}  {what}{note}", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("program")
    arguments.add_argument("--only", default="", help="figures whose name has this word in it")
    given = arguments.parse_args()
    table = Table(given.only)

    def figure(what, words, **limits):
        if table.wants(what):
            table.row(what, measured([given.program] + words.split()), **limits)

    figure("static, llama-3.1-405b, every tp",
           "check llama-3.1-405b --reading static --tp all -q", seconds=1, memory=100 * MB)
    for model in ("llama-3-8b", "llama-3.1-405b", "qwen3-32b", "pythia-6.9b"):
        figure(f"exact, reduced, {model}, tp 8", f"check {model} --reading exact --tp 8 -q",
               seconds=1)
    figure("exact, one llama-3-8b decoder layer at full size, tp 8",
           "--tp 8 --layer decoder --model llama-3-8b --reading exact -q", seconds=10)
    figure("numeric, the same layer",
           "--tp 8 --layer decoder --model llama-3-8b --reading numeric -q")
    figure("exact, llama-3.1-405b with --full, tp 8",
           "check llama-3.1-405b --tp 8 --reading exact --full -q", seconds=90, memory=2000 * MB)

    what = "all readings of a checkpoint of 2 GB bf16, tp 4"
    if table.wants(what):
        with tempfile.TemporaryDirectory() as folder:
            model = os.path.join(folder, "model")
            cost = measured([given.program, "synth", "llama-3-8b", "--layers", "4", "--vocab",
                             "15360", "--out", model, "-q"])
            table.row("writing a checkpoint of 2 GB", cost)
            start = time.monotonic()
            for name in os.listdir(model):
                with open(os.path.join(model, name), "rb", buffering=0) as file:
                    while file.read(1 << 24):
                        pass
            reading = time.monotonic() - start
            cost = measured([given.program, "check", model, "--tp", "4", "-q"])
            table.row(what, cost, memory=600 * MB,
                      note=f"; reading the file takes {reading:.2f} s")
    sys.exit(1 if table.missed else 0)


if __name__ == "__main__":
    main()
