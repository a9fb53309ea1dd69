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

target=${CARGO_TARGET_DIR:-target}

docs() { RUSTDOCFLAGS="${RUSTDOCFLAGS:-} -D warnings" cargo doc --locked --no-deps --document-private-items; }

# In this target directory, so that what the checks above have built is not built once more.
package() { CARGO_TARGET_DIR=$target cargo package --locked --allow-dirty; }

count_sources() { echo "$(git ls-files '*.rs' | wc -l) files"; }
count_targets() { cargo metadata --no-deps --format-version 1 --offline | grep -o '"kind":' | wc -l | sed 's/$/ targets/'; }
count_pages() { echo "$(find "$target/doc/forebay" -name '*.html' | wc -l) pages"; }
count_benches() { sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '/^Success/ { n++ } END { print n + 0, "benches" }'; }
count_examples() { echo "$(find examples -maxdepth 1 -name '*.rs' | wc -l) examples"; }
count_licences() { grep -c ' ok' "$1" | sed 's/$/ run/'; }
count_packaged() { sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '/^ *Packaged/ { print $2, "files" }'; }

step "fmt" count_sources cargo fmt --all --check
step "clippy" count_targets cargo clippy --locked --all-targets --all-features -- -D warnings
step "clippy, no default features" count_targets \
    cargo clippy --locked --all-targets --no-default-features -- -D warnings
if [[ $with_tests == yes ]]; then ci/test.sh; fi
step "rustdoc" count_pages docs
ci/loom.sh
step "benches, once" count_benches cargo test --locked --benches
if has 'examples/*.rs'; then
    step "examples build" count_examples cargo build --locked --examples
else
    skip "examples build" "no examples yet"
fi
ci/containers.sh
if cargo deny --version >/dev/null 2>&1; then
    step "deny" count_licences cargo deny --locked check
else
    skip "deny" "cargo-deny is not installed (cargo install --locked cargo-deny)"
fi
step "package" count_packaged package
