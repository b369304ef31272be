#!/usr/bin/env bash
# The tests that need GPUs: scripts/gpu.sh OUT [FILTER]. Takes the build in build/gpu if it is there (built elsewhere and
# carried here), else builds; leaves what was seen in OUT.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?"scripts/gpu.sh OUT [FILTER]: a folder for the results"}
filter=${2:-*}
mkdir -p "$out"
if [ ! -x build/gpu/test_gpu ]; then
  scripts/install build test
  scripts/build release
  mkdir -p build/gpu
  cp build/release/bin/test_gpu build/release/bin/tileway build/gpu/
fi
export LD_LIBRARY_PATH=$PWD/build/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TILEWAY_CACHE=${TILEWAY_CACHE:-$PWD/build/gpu/cache}
build/gpu/tileway doctor --json "$out/machine.json" | tee "$out/summary.txt"
timeout 500 build/gpu/test_gpu --gtest_filter="$filter" --gtest_output="json:$out/tests.json" 2>&1 | tee -a "$out/summary.txt"
