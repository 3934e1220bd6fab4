#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Time and memory of `tpsim synth` for a bf16 checkpoint of 2 GB, which is removed afterwards.
# usage: tests/bench/synth_checkpoint.sh [TPSIM [FOLDER]]
# Needs GNU time. Resident memory includes the pages of the program itself; the cache of what was
# written is not counted. dd says what the disk can do.
set -euo pipefail
tpsim=${1:-build/tpsim}
folder=$(mktemp -d "${2:-${TMPDIR:-/tmp}}/tpsim-bench-XXXXXX")
trap 'rm -rf "$folder"' EXIT

/usr/bin/time -f '%e s, %U s user, %S s system, largest resident memory %M KiB' \
  "$tpsim" synth llama-3-8b --layers 4 --vocab 15360 --out "$folder/model"
TIMEFORMAT='until it is on the disk: %R s more'
time sync -f "$folder"
bytes=$(stat -c %s "$folder/model/model.safetensors")
rm -rf "$folder/model"
echo "dd of $bytes zero bytes, synced:"
dd if=/dev/zero of="$folder/zeros" bs=1M count=$((bytes >> 20)) conv=fdatasync 2>&1 | tail -n 1
