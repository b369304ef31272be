#!/usr/bin/env bash
# The tests and benchmarks that need GPUs, on however many there are: scripts/gpu.sh OUT [FILTER...]
# Takes the build in build/gpu if it is there (built elsewhere and carried here), else builds. Leaves in OUT: summary.txt;
# machine.json; tests_N.json of each filter of tests, a process of its own, with bytes by engine and what multiplied;
# times.jsonl of all schedules, peers.jsonl of cuBLAS and NCCL (where PyTorch is), bench.json; what compute-sanitizer
# says. With filters only those tests. TILEWAY_GEMMS and TILEWAY_REPLAYS say how many.
set -euo pipefail
cd "$(dirname "$0")/.."
out=$(mkdir -p "${1:?"scripts/gpu.sh OUT [FILTER...]: a folder for the results"}" && cd "$1" && pwd)
shift
all=
if [ $# -eq 0 ]; then
  all=yes
  # Kernels first, on all cores. What forks ranks must not have opened the driver before.
  set -- '*.Processes*Compile*' '*.Processes*-*Compile*:Nccl.*' 'Nccl.Processes*' '-*.Processes*:GemmShapes.*' 'GemmShapes.*'
fi
if [ ! -x build/gpu/test_gpu ]; then
  scripts/install build test
  scripts/build release
  mkdir -p build/gpu
  cp build/release/bin/test_gpu build/release/bin/tileway build/gpu/
fi
export LD_LIBRARY_PATH=$PWD/build/gpu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
export TILEWAY_CACHE=${TILEWAY_CACHE:-$PWD/build/gpu/cache} TILEWAY_TIMES=$out/times.jsonl
status=0
rm -f "$TILEWAY_TIMES"
build/gpu/tileway doctor --json "$out/machine.json" | tee "$out/summary.txt"
number=0
for filter in "$@"; do
  number=$((number + 1))
  timeout 900 build/gpu/test_gpu --gtest_filter="$filter" --gtest_output="json:$out/tests_$number.json" 2>&1 |
    tee -a "$out/summary.txt" || status=1
done
[ "$all" ] || exit $status
try() {  # what fails is told
  timeout 120 "$@" 2>&1 | tee -a "$out/summary.txt" || { echo "failed: $*" | tee -a "$out/summary.txt"; status=1; }
}
# What shares a GPU cannot use copy engines.
gpus=$(nvidia-smi --list-gpus | wc -l)
copy=$((gpus > 1 ? 2 : 0))
try build/gpu/tileway bench gemm_all_reduce --executor cuda --dtype bf16 --size 513x1025x1023 --json "$out/bench.json"
if command -v torchrun >/dev/null; then
  try torchrun --nproc-per-node "$gpus" bench/peers.py "$out/peers.jsonl"
fi
check() {
  local tool=$1
  shift
  try compute-sanitizer --tool "$tool" --target-processes all --error-exitcode 3 \
    build/gpu/tileway run --executor cuda "$@"
}
if command -v compute-sanitizer >/dev/null; then
  check memcheck gemm_all_reduce --size 130x264x144 --dtype bf16 --topology ranks=2,lanes=16,copy=$copy
  check memcheck gemm_all_reduce --size 130x264x144 --dtype e4m3 --topology ranks=2,lanes=16,copy=0
  check memcheck gemm_reduce_scatter --size 256x512x128 --dtype bf16 --schedule fused --topology ranks=2,lanes=16,copy=0
  check memcheck gemm_all_to_all --size 130x264x144 --dtype tf32 --schedule library --topology ranks=2,lanes=16,copy=$copy,library=1
  check racecheck gemm_all_reduce --size 130x264x144 --dtype bf16 --topology ranks=2,lanes=16,copy=0
  check racecheck gemm_all_reduce --size 130x263x143 --dtype bf16 --topology ranks=2,lanes=16,copy=0
  check racecheck all_reduce_rms_norm --dtype f32 --topology ranks=2,lanes=16,copy=0
  check synccheck gemm_all_reduce --size 130x264x144 --dtype bf16 --topology ranks=2,lanes=16,copy=0
fi
exit $status
