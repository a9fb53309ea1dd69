#!/usr/bin/env bash
# Tests that need namespaces or cgroups of their own: integration tests named containers*.
# One section a kind of container; each says by name what it could not run here.
source "$(dirname "$0")/steps.sh"

namespaces() { unshare --mount --pid --fork true 2>/dev/null || unshare --user --map-root-user --mount true 2>/dev/null; }

if ! has 'tests/containers*'; then
    skip "containers" "no test is named containers*"
elif ! namespaces; then
    skip "containers" "this machine gives no mount namespace (neither root nor unprivileged user namespaces)"
else
    step "containers" count_tests cargo test --locked --test 'containers*'
fi
