#!/usr/bin/env bash
# Every check, in order; stops at the first that fails. --after-tests leaves out what ci/test.sh runs.
source "$(dirname "$0")/steps.sh"

with_tests=yes
case "${1:-}" in
    "") ;;
    --after-tests) with_tests=no ;;
    *)
        echo "usage: ci/check.sh [--after-tests]" >&2
        exit 2
        ;;
esac

# A step that is a script of its own keeps its own summary; its exit status is what counts here.
script() { "$@" || exit 1; }

docs() { RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --locked --no-deps --document-private-items; }

step "fmt" count_sources cargo fmt --all --check
step "clippy" count_targets cargo clippy --locked --all-targets --all-features -- -D warnings
step "clippy, no default features" count_targets \
    cargo clippy --locked --all-targets --no-default-features -- -D warnings
[[ $with_tests == no ]] || script ci/test.sh
step "rustdoc" count_pages docs
script ci/loom.sh
if has 'benches/*.rs'; then
    step "benches, once" count_one cargo test --locked --benches
else
    skip "benches, once" "no benches yet"
fi
if has 'examples/*.rs'; then
    step "examples build" count_examples cargo build --locked --examples
else
    skip "examples build" "no examples yet"
fi
[[ $with_tests == yes ]] || skip "rooms" "ran with the tests"
[[ $with_tests == no ]] || step "rooms" count_tests cargo test --locked --test rooms
script ci/containers.sh
if cargo deny --version >/dev/null 2>&1; then
    step "deny" count_one cargo deny --locked check
else
    skip "deny" "cargo-deny is not installed (cargo install cargo-deny)"
fi
step "package" count_packaged cargo package --locked --allow-dirty

print_summary "checks"
