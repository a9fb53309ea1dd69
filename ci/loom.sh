#!/bin/sh
# Explores the lock-free room (src/sync) under loom, and prints how many cases and executions there were.
set -eu
cd "$(dirname "$0")/.."
export RUST_BACKTRACE=0 RUSTFLAGS="--cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! cargo test --quiet --no-default-features --lib --release sync:: -- --nocapture --test-threads=2 >"$log" 2>&1; then
    cat "$log"
    exit 1
fi
awk '/explored .*: [0-9]+ executions/ { cases++; runs += $(NF - 1); sub(/.*explored /, ""); print "  " $0 }
     END { printf "loom: %d cases, %d executions\n", cases, runs; exit cases == 0 }' "$log"
