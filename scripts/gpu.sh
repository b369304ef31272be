#!/usr/bin/env bash
# The tests that need GPUs: scripts/gpu.sh OUT [FILTER...]. Takes the build in build/gpu if it is there (built elsewhere
# and carried here), else builds; leaves what was seen in OUT. Each filter of tests is a process of its own.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${1:?"scripts/gpu.sh OUT [FILTER...]: a folder for the results"}
shift
# What forks ranks must not have opened the driver before.
[ $# -gt 0 ] || set -- '*.Processes*' '-*.Processes*'
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
status=0
number=0
for filter in "$@"; do
  number=$((number + 1))
  timeout 550 build/gpu/test_gpu --gtest_filter="$filter" --gtest_output="json:$out/tests_$number.json" 2>&1 |
    tee -a "$out/summary.txt" || status=1
done
exit $status
