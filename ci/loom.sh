#!/usr/bin/env bash
# Explores the lock-free room (src/sync) under loom, and counts cases and executions.
# An own target directory, since the flag rebuilds every dependency; without default features, so fewer of them; and
# without optimising those that no case runs, which takes minutes otherwise.
source "$(dirname "$0")/steps.sh"

loom() {
    RUSTFLAGS="${RUSTFLAGS:-} --cfg loom -A unused" CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-target}/loom" cargo \
        --config 'profile.dev.package."*".opt-level = 0' \
        --config 'profile.dev.package.loom.opt-level = 3' \
        --config 'profile.dev.package.generator.opt-level = 3' \
        test --locked --no-default-features --lib sync:: -- --nocapture --test-threads=2
}

count_executions() {
    awk '/explored .*: [0-9]+ executions/ { cases++; runs += $(NF - 1) }
         END { printf "%d cases with %d executions\n", cases, runs }' "$1"
}

step "loom" count_executions loom
