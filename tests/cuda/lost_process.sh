#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: lost_process.sh SIGNAL TEXT TPSIM_NCCL_RUN TPSIM
# One of three ranks gets SIGNAL in the middle of a check. Within 20 s the others must have ended,
# rank 0 with exit status 2 and TEXT.
set -uo pipefail
signal=$1 text=$2 run=$3 tpsim=$4
export tpsim signal TPSIM_NCCL_TIME_LIMIT=3 OMP_NUM_THREADS=1
TPSIM_HOST_NCCL_DIR=$(mktemp -d) && export TPSIM_HOST_NCCL_DIR || exit 1
trap 'rm -rf "$TPSIM_HOST_NCCL_DIR"' EXIT
start=$SECONDS
said=$("$run" -n 3 bash -c '
  "$tpsim" --layer mlp --hidden 4096 --intermediate 12288 --tokens 64 --comm nccl --backend cuda &
  if [ "$TPSIM_RANK" = 2 ]; then
    until [ -n "$(ls "$TPSIM_HOST_NCCL_DIR")" ]; do sleep 0.01; done  # the ranks have met
    sleep 0.3
    kill -"$signal" $! || echo "rank 2 had ended already"
  fi
  wait $!' 2>&1)
status=$?
took=$((SECONDS - start))
printf '%s\nended with %d after %d s\n' "$said" "$status" "$took"
words=$(tr -s ' \n' ' ' <<<"$said")
[ "$status" = 2 ] && [ "$took" -le 20 ] && [[ $words == *"error: rank 2: $text"* ]]
