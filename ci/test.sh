#!/usr/bin/env bash
# Every test: unit and integration tests with and without default features, and the documentation's examples.
source "$(dirname "$0")/steps.sh"

step "tests, default features" count_tests cargo_tests --locked
step "tests, no default features" count_tests cargo_tests --locked --no-default-features
step "doc tests" count_tests cargo test --locked --doc

