#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# usage: lost_process.sh SIGNAL TEXT TPSIM_NCCL_RUN TPSIM
# One of three ranks gets SIGNAL in the middle of a check. Within 15 s the others must have ended,
# rank 0 with exit status 2 and TEXT.
set -uo pipefail
signal=$1 text=$2 run=$3 tpsim=$4
export tpsim signal TPSIM_NCCL_TIME_LIMIT=3 OMP_NUM_THREADS=1
start=$SECONDS
said=$("$run" -n 3 bash -c '
  "$tpsim" --layer mlp --hidden 4096 --intermediate 12288 --tokens 64 --comm nccl --backend cuda &
  if [ "$TPSIM_RANK" = 2 ]; then sleep 0.7; kill -"$signal" $! || echo "rank 2 had ended already"; fi
  wait $!' 2>&1)
status=$?
took=$((SECONDS - start))
printf '%s\nended with %d after %d s\n' "$said" "$status" "$took"
words=$(tr -s ' \n' ' ' <<<"$said")
[ "$status" = 2 ] && [ "$took" -le 15 ] && [[ $words == *"error: rank 2: $text"* ]]
