#!/usr/bin/env bash
# SPDX-License-Identifier: MIT
# Sets tpsim up on Debian 12 or Ubuntu 22.04 and later: installs the packages that are missing
# (the only step that needs root), then configures and builds build/. Run it again at any time.
set -euo pipefail
cd "$(dirname "$0")"

packages=(
  g++ cmake ninja-build
  libeigen3-dev libboost-context-dev libboost-program-options-dev libfmt-dev nlohmann-json3-dev
  catch2 librapidcheck-dev
)

installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

if command -v dpkg-query >/dev/null && command -v apt-get >/dev/null; then
  missing=()
  for package in "${packages[@]}"; do
    installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -gt 0 ]; then
    as_root=()
    if [ "$(id -u)" != 0 ]; then
      if ! command -v sudo >/dev/null; then
        echo "error: these packages are missing, and installing them needs root: ${missing[*]}" >&2
        echo "hint: as root, apt-get install ${missing[*]}; then run ./setup.sh again" >&2
        exit 1
      fi
      as_root=(sudo)
    fi
    echo "setup: installing ${missing[*]}"
    "${as_root[@]}" apt-get update -qq
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
      apt-get install -y -qq --no-install-recommends "${missing[@]}"
  else
    echo "setup: all packages are installed"
  fi
else
  echo "setup: no apt-get here; tpsim needs what these Debian packages hold: ${packages[*]}"
fi

# An existing build folder keeps its generator and options.
if [ ! -e build/CMakeCache.txt ]; then
  generator=()
  if command -v ninja >/dev/null; then generator=(-G Ninja); fi
  cmake -S . -B build "${generator[@]}" -DCMAKE_BUILD_TYPE=Release
fi
# CMakeLists.txt tells what memory a compiler takes, and where it takes more.
jobs=$(nproc 2>/dev/null || echo 2)
free=$(awk '/^MemTotal:/ { each = $2 > 18000 * 1024 ? 3400000 : 2600000 }
  /^MemAvailable:/ { print int($2 / each) }' /proc/meminfo 2>/dev/null || true)
if [ -n "$free" ] && [ "$free" -lt "$jobs" ]; then
  jobs=$((free > 1 ? free : 1))
  echo "setup: there is not memory for a compiler on each core"
fi
echo "setup: building with $jobs jobs; on 2 cores it takes about 4 minutes"
cmake --build build --parallel "$jobs"
echo "setup: done. Try ./build/tpsim --tp 4 --layer qkv"
