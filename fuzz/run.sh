#!/bin/sh
# Builds every fuzz target and runs each for a bounded time:  fuzz/run.sh SECONDS [TARGET…]
#
# Needs only a Rust toolchain (any channel) and a C++ compiler for libFuzzer: this script passes the flags for coverage
# instrumentation that `cargo fuzz` would pass. Seeds are the committed samples and fixtures, the larger shared data set
# if present, and fuzz/seeds/TARGET. libFuzzer's corpus stays in target/fuzz/corpus.
set -eu

seconds=${1:?usage: fuzz/run.sh SECONDS [TARGET...]}
shift
root=$(CDPATH= cd -- "$(dirname -- "$0")/.." && pwd)
cd "$root/fuzz"
work=${FUZZ_DIR:-$root/target/fuzz}
host=$(rustc -vV | sed -n 's/^host: //p')
if [ $# -eq 0 ]; then
    for file in fuzz_targets/*.rs; do
        target=$(basename "$file" .rs)
        set -- "$@" "$target"
    done
fi

# Build scripts and procedural macros are not instrumented, because --target is given.
export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares ${RUSTFLAGS:-}"
for target in "$@"; do
    bins="${bins:-} --bin $target"
    if [ "$target" = source_parquet ]; then bins="$bins --features parquet"; fi
done
# shellcheck disable=SC2086 # a list of arguments
cargo build --release --target "$host" --target-dir "$work/build" $bins

for target in "$@"; do
    mkdir -p "$work/corpus/$target" "$work/artifacts/$target"
    seeds=
    for folder in "seeds/$target" ../crates/foveate-decode/samples ../tests/fixtures/conformance \
        ../../shared/data/conformance; do
        case $target:$folder in
        net_*:../* | sink_*:../* | source_*:../*) ;; # images are useful seeds for decoders alone
        *) if [ -d "$folder" ]; then seeds="$seeds $folder"; fi ;;
        esac
    done
    log="$work/$target.log"
    # shellcheck disable=SC2086
    if ! "$work/build/$host/release/$target" "$work/corpus/$target" $seeds -artifact_prefix="$work/artifacts/$target/" \
        -max_total_time="$seconds" -max_len=65536 -timeout=10 -rss_limit_mb=2048 -print_final_stats=1 \
        >"$log" 2>&1; then
        tail -n 60 "$log"
        echo "$target FAILED; the input is in $work/artifacts/$target" >&2
        exit 1
    fi
    echo "$target: $(sed -n 's/^stat::number_of_executed_units: *//p' "$log") inputs in $seconds s, peak" \
        "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log") MiB, slowest" \
        "$(sed -n 's/^stat::slowest_unit_time_sec: *//p' "$log") s"
done
