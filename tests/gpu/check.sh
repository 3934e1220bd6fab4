#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# All that only a GPU can show, in one command of less than 6 minutes. Prints a table, and writes all
# output to a log. usage: tests/gpu/check.sh [BUILD_FOLDER] [LOG]
# BUILD_FOLDER is one where `cmake --build BUILD_FOLDER --target tpsim_gpu` was built (by default
# build/), or the folder of tpsim_gpu_folder (by default this one, where it is that). LOG is gpu.log.
# Needs from CUDA the driver, cuBLAS and, for their lines, NCCL and compute-sanitizer. No network.
# The exit status is 1 when a line failed or there was no time for it, 2 without a GPU.
set -uo pipefail
cd "$(dirname "$0")/../.." || exit 2

build=${1:-$([ -f tpsim ] && echo . || echo build)}
log=${2:-gpu.log}
limit=${GPU_CHECK_LIMIT:-60}    # seconds for one line
budget=${GPU_CHECK_BUDGET:-330} # seconds for all: no line starts later, and none ends 20 s later
lines=0 failed=0
: >"$log"

program() { find "$build/$1" "$build/tests/$1" -type f -perm -u+x 2>/dev/null | head -n 1; }
tpsim=$(program tpsim) probe=$(program tpsim_cuda_probe)
nccl=$(program tpsim_nccl_probe) bench=$(program tpsim_decoder_time)
run=$(find "$build/tpsim-nccl-run" sim/nccl/tpsim-nccl-run 2>/dev/null | head -n 1)
tpsim=${TPSIM:-$tpsim}
if [ -z "$tpsim" ]; then
  echo "error: no tpsim in $build; cmake --build $build --target tpsim_gpu" >&2
  exit 2
fi

# What is worth a place in the table: the reason of a failure, or the figure that is nearest to one.
note_of() {  # note_of FILE
  grep -m 1 -oE '^error: .*|^ *FAIL .*|no CUDA device.*' "$1" ||
    grep -oE 'largest difference [^ ]+ of its bound' "$1" | sort -g -k 3,3 | tail -n 1 | grep . ||
    grep -m 1 -oE '^NCCL [0-9.]+|^ok .*' "$1"
}

line() {  # line NAME COMMAND...
  local name=$1 start=$SECONDS verdict=ok seconds=$((budget + 20 - SECONDS)) status=0
  shift
  ((++lines))
  printf '\n=== %s: %s\n' "$name" "$*" >>"$log"
  if ((start >= budget)); then
    ((++failed))
    : >"$log.part"
    printf '%-7s         %-50s %s\n' 'NOT RUN' "$name" "$budget s are used up" | tee -a "$log"
    return
  fi
  if ((seconds > limit)); then seconds=$limit; fi
  timeout -k 12 "$seconds" "$@" >"$log.part" 2>&1 || status=$?
  if ((status == 124 || status == 137)); then echo "error: over $seconds s" >>"$log.part"; fi
  if ((status != 0)); then verdict=FAILED; ((++failed)); fi
  cat "$log.part" >>"$log"
  printf '%-7s %4d s  %-50s %s\n' "$verdict" $((SECONDS - start)) "$name" \
    "$(note_of "$log.part")" | tee -a "$log"
}
skip() { printf '%-7s         %-50s %s\n' skipped "$1" "$2" | tee -a "$log"; }

{
  date -u
  nvidia-smi --query-gpu=name,driver_version,memory.total --format=csv,noheader 2>/dev/null ||
    cat /proc/driver/nvidia/version 2>/dev/null || echo "no NVIDIA driver"
  if [ -n "$probe" ]; then "$probe" --versions 2>&1; fi
  "$tpsim" --version
} | tee -a "$log"

if ! "$tpsim" --tp 1 --layer row --in 8 --out 8 --reading numeric --backend cuda >"$log.part" 2>&1 &&
  grep -q 'no CUDA device\|without the CUDA backend' "$log.part"; then
  tee -a "$log" <"$log.part"
  rm -f "$log.part"
  exit 2
fi

if [ -n "$probe" ]; then line "layers of integers on each GPU" "$probe"; fi
for golden in tests/data/*/golden.safetensors; do
  folder=$(dirname "$golden")
  for tp in 2 3 4 1; do  # the first that this model can have
    if "$tpsim" run "$folder" --tp "$tp" --tokens 1 -q >/dev/null 2>&1; then break; fi
  done
  line "run $(basename "$folder"), tp $tp, f32" "$tpsim" run "$folder" --tp "$tp" --tokens 3,0,14,9 \
    --generate 4 --backend cuda
done
for dtype in bf16 f16; do
  line "run tiny-llama, tp 2, $dtype" "$tpsim" run tests/data/tiny-llama --tp 2 \
    --tokens 3,0,14,9 --generate 4 --dtype "$dtype" --backend cuda
done
line "run tiny-llama, tp 2, f32 with TF32" "$tpsim" run tests/data/tiny-llama --tp 2 \
  --tokens 3,0,14,9 --generate 4 --backend cuda --tf32
# Several processes on one GPU: the launcher makes each of them a host of its own for NCCL.
if [ -n "$nccl" ] && [ -n "$run" ]; then
  for n in 1 2 4; do
    line "NCCL, $n processes, every collective" "$run" -n "$n" "$nccl"
    line "NCCL, $n processes, a decoder layer" "$run" -n "$n" "$tpsim" --layer decoder \
      --model qwen3-0.6b --dtype bf16 --comm nccl --backend cuda
  done
  line "NCCL, 2 processes, run tiny-llama" "$run" -n 2 "$tpsim" run tests/data/tiny-llama \
    --tokens 3,0,14,9 --generate 4 --comm nccl --backend cuda
else
  skip "NCCL" "no tpsim_nccl_probe in $build, or no tpsim-nccl-run"
fi
if sanitizer=$(command -v compute-sanitizer || ls /usr/local/cuda/bin/compute-sanitizer 2>/dev/null); then
  limit=120 line "memcheck of a small run" "$sanitizer" --tool memcheck --error-exitcode 1 "$tpsim" run \
    tests/data/tiny-llama --tp 2 --tokens 3,0 --dtype bf16 --backend cuda
else
  skip "memcheck of a small run" "no compute-sanitizer"
fi
if [ -n "$bench" ]; then
  line "time of a decoder layer" "$bench"
  grep tokens "$log.part"
else
  skip "time of a decoder layer" "no tpsim_decoder_time in $build"
fi
# Last, since these take the most time: the host bounds every number.
for dtype in f32 bf16 f16; do
  for tp in 1 2 4 8; do
    line "every layer, tp $tp, $dtype: integer and rounding" "$tpsim" --tp "$tp" --layer all \
      --model qwen3-0.6b --vocab 4096 --dtype "$dtype" --reading numeric --backend cuda
  done
done
line "every layer, tp 2, f32 with TF32" "$tpsim" --tp 2 --layer all --model qwen3-0.6b \
  --vocab 4096 --reading numeric --backend cuda --tf32
line "decoder layer of llama-3-8b, tp 8, bf16" "$tpsim" --tp 8 --layer decoder --dtype bf16 \
  --reading numeric --backend cuda
rm -f "$log.part"
printf '%d of %d lines failed, %d s in all; log: %s\n' "$failed" "$lines" "$SECONDS" "$log" |
  tee -a "$log"
exit $((failed > 0))
