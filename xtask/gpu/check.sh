#!/usr/bin/env bash
# The whole CUDA check, for a machine with an NVIDIA GPU and a Python with PyTorch, without Rust. See README.md.
#
#   ./check.sh [--quick | --full | --smoke] [--only verify,forward] [--device cuda:0]
#
# A step that fails or takes too long says so in its rows; the others run. The table comes last. Exit code 1 when a
# result is wrong (a tier is not met, a cell failed), 0 otherwise: what a machine cannot do is n/a, with the reason.
set -u

# What is wrong comes first: whoever runs out of time knows at least that.
steps=(tests sanitizer verify decoders numerics forward end-to-end python utilization diagnosis)
mode=quick only= device=cuda:0
while [ $# -gt 0 ]; do
  case "$1" in
    --quick | --full | --smoke) mode=${1#--} ;;
    --only) only=${2:?--only needs steps}; shift ;;
    --device) device=${2:?--device needs a name}; shift ;;
    *) sed -n '2,7s/^# \{0,1\}//p' "$0"; exit 2 ;;
  esac
  shift
done
only=${only:-$(IFS=,; echo "${steps[*]}")}
for step in ${only//,/ }; do
  [[ " ${steps[*]} " == *" $step "* ]] || { echo "there is no step '$step': ${steps[*]}"; exit 2; }
done

here=$(cd "$(dirname "$0")" && pwd)
out=${OUT:-./out}
mkdir -p "$out" && out=$(cd "$out" && pwd)
# In memory if there is room, so that no disk is measured.
memory=/dev/shm
free=$(df --output=avail -BM "$memory" 2>/dev/null | tail -1 | tr -dc 0-9)
[ "${free:-0}" -ge 4096 ] || memory=${TMPDIR:-/tmp}
scratch=$(mktemp -d "$memory/foveate-check.XXXXXX")
trap 'rm -rf "$scratch"' EXIT
# The folders as the device tests know them.
export FOVEATE_WORKSPACE=$scratch/workspace
mkdir -p "$FOVEATE_WORKSPACE/tests/fixtures" "$FOVEATE_WORKSPACE/examples"
ln -s "$here"/{models,goldens,conformance} "$FOVEATE_WORKSPACE/tests/fixtures/"
ln -s "$here/examples" "$FOVEATE_WORKSPACE/examples/photos"
export PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 FOVEATE=${FOVEATE:-$here/bin/foveate} TORCHINDUCTOR_CACHE_DIR=$scratch/inductor
export HF_HUB_OFFLINE=1 TOKENIZERS_PARALLELISM=false
python=${PYTHON:-python3}

# cuBLASLt and nvJPEG come with PyTorch: foveate searches for them here besides the usual places.
wheels=$("$python" -c 'import glob, sys; print(":".join(sorted({f for p in sys.path for f in glob.glob(p + "/nvidia/*/lib")})))')
export FOVEATE_CUDA_LIB=${FOVEATE_CUDA_LIB:-$wheels}

# Time limits of the steps in seconds, and of one that hangs. All of quick end within 10 minutes; full is meant for four
# calls.
declare -A quick=([tests]=45 [sanitizer]=25 [verify]=20 [decoders]=25 [numerics]=70 [forward]=135 [end-to-end]=115
  [python]=55 [utilization]=20 [diagnosis]=30)
declare -A full=([tests]=300 [sanitizer]=200 [verify]=60 [decoders]=60 [numerics]=160 [forward]=540 [end-to-end]=540
  [python]=240 [utilization]=30 [diagnosis]=120)
declare -A smoke=([tests]=240 [sanitizer]=120 [verify]=120 [decoders]=120 [numerics]=240 [forward]=240 [end-to-end]=120
  [python]=240 [utilization]=120 [diagnosis]=240)
grace=5
declare -A program=([numerics]=numerics [forward]=forward [end-to-end]=end_to_end [python]=baseline)

# One line that says what the table is of: card, driver, and the program's commit.
card() {
  local gpu
  gpu=$(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader 2>/dev/null | head -1)
  echo "${gpu:-no nvidia-smi}; $(grep -m1 commit "$here/BUILT" 2>/dev/null || echo 'no BUILT')"
}

versions() {
  cat "$here/BUILT" 2>/dev/null
  nvidia-smi --query-gpu=name,driver_version,memory.total,clocks.max.sm,power.limit --format=csv 2>&1
  uname -srm; grep -m1 'model name' /proc/cpuinfo; nproc; df -h "$scratch" | tail -1
  "$python" - torch transformers torchvision pillow opencv-python-headless numpy triton nvidia-cublas onnx onnxruntime-gpu tensorrt <<'PYTHON'
import sys
from importlib.metadata import PackageNotFoundError, version
print("python", sys.version.split()[0])
for name in sys.argv[1:]:
    try:
        print(name, version(name))
    except PackageNotFoundError:
        print(name, "not installed")
PYTHON
  echo "FOVEATE_CUDA_LIB=$FOVEATE_CUDA_LIB"
  "$FOVEATE" --version; "$FOVEATE" backends; "$FOVEATE" doctor
}

rm -f "$out"/*.csv "$out/stopped.txt"
echo "versions"
versions >"$out/log.txt" 2>&1
cat "$out/log.txt"
for step in ${only//,/ }; do
  declare -n limit=$mode
  seconds=${limit[$step]}
  echo "$step: at most $seconds s"
  started=$SECONDS
  # Each step watches its time itself; this limit is for a step that hangs.
  timeout -k 2 $((seconds + grace)) "$python" "$here/${program[$step]:-checks}.py" --step "$step" --mode "$mode" \
    --device "$device" --seconds "$seconds" --out "$out" --scratch "$scratch" >>"$out/log.txt" 2>&1
  code=$?
  echo "$step: exit code $code, $((SECONDS - started)) s" | tee -a "$out/log.txt"
  # timeout's own code, and that of a step that it had to kill.
  case $code in 124 | 137) echo "$step" >>"$out/stopped.txt" ;; esac
done
echo
"$python" "$here/table.py" "$out" "$mode" "$only" "$(card)"
