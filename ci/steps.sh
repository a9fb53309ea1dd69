# Sourced by the other scripts: names each step, counts its cases, times it, and stops at the first that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"
summary=()

# step NAME CASES COMMAND...: runs COMMAND with its output shown. CASES names a function that prints, from the
# output in the file it is given, how many cases ran and of what; no cases is a failure.
step() {
    local name=$1 cases=$2 log begin seconds count
    shift 2
    log=$(mktemp)
    echo "==> $name"
    begin=$SECONDS
    if ! "$@" 2>&1 | tee "$log"; then
        rm -f "$log"
        echo "FAILED: $name: $*" >&2
        exit 1
    fi
    seconds=$((SECONDS - begin))
    count=$("$cases" "$log")
    rm -f "$log"
    if [[ ! $count =~ ^[1-9] ]]; then
        echo "FAILED: $name ran no cases, so it checked nothing" >&2
        exit 1
    fi
    echo "<== $name: ok, $count, $seconds s"
    summary+=("$name: ok, $count, $seconds s")
}

# skip NAME WHY: says by name that a step did not run.
skip() {
    echo "==> $1: skipped: $2"
    summary+=("$1: skipped: $2")
}

print_summary() {
    echo "--- $1"
    printf '%s\n' "${summary[@]}"
}

# Tests that ran: the sum over nextest's and cargo test's summary lines.
count_tests() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        / tests? run:/ && /Summary/ { for (i = 1; i <= NF; i++) if ($i ~ /^tests?$/) { n += $(i - 1); break } }
        /^test result:/ { n += $4 + $6 }
        END { print n + 0, "tests" }'
}

count_sources() { echo "$(git ls-files '*.rs' | wc -l) files"; }
count_targets() {
    cargo metadata --no-deps --format-version 1 --offline | grep -o '"kind":' | wc -l | sed 's/$/ targets/'
}
count_pages() { echo "$(find target/doc/forebay -name '*.html' | wc -l) pages"; }
count_examples() { echo "$(find examples -maxdepth 1 -name '*.rs' | wc -l) examples"; }
count_packaged() { sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '/^ *Packaged/ { print $2, "files" }'; }
count_one() { echo "1 run"; }

# has GLOB: whether any path matches.
has() { compgen -G "$1" >/dev/null; }

have_nextest() { cargo nextest --version >/dev/null 2>&1; }

# Tests of every target but doc tests, by nextest where it is installed.
cargo_tests() {
    # tests/examples.rs runs them; a choice of targets leaves them out.
    cargo build --examples "$@"
    if have_nextest; then
        cargo nextest run --no-fail-fast "$@"
    else
        cargo test --no-fail-fast --lib --bins --tests "$@"
    fi
}
