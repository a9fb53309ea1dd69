#!/usr/bin/env bash
# Explores the lock-free code under loom: the crate's own unit tests named loom_*, built with --cfg loom.
# An own target directory, since the flag rebuilds every dependency; without default features, so fewer of them.
source "$(dirname "$0")/steps.sh"

loom() {
    RUSTFLAGS="${RUSTFLAGS:-} --cfg loom" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" \
        cargo test --locked --lib --no-default-features loom
}

if grep -rqs 'cfg(all(test, loom))' src; then
    step "loom" count_tests loom
else
    skip "loom" "no source file has loom cases"
fi
