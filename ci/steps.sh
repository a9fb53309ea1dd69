# Sourced by the other scripts: names each step, counts its cases, times it, and stops at the first that fails.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

export CARGO_TERM_COLOR="${CARGO_TERM_COLOR:-auto}"

# One summary a run: the script that was started first prints it when it ends; those that it calls add their lines.
if [[ -z ${STEPS_SUMMARY:-} ]]; then
    STEPS_SUMMARY=$(mktemp)
    export STEPS_SUMMARY
    trap print_summary EXIT
fi

print_summary() {
    local status=$?
    echo "--- summary of $0"
    cat "$STEPS_SUMMARY"
    rm -f "$STEPS_SUMMARY"
    exit "$status"
}

# note LINE: a line for the summary.
note() { echo "$1" >>"$STEPS_SUMMARY"; }

# step NAME CASES COMMAND...: runs COMMAND with its output shown. CASES names a function that prints, from the
# output in the file it is given, how many cases ran and of what; no cases is a failure.
step() {
    local name=$1 cases=$2 log begin cpu took count
    shift 2
    log=$(mktemp)
    echo "==> $name"
    begin=$SECONDS
    cpu_seconds cpu
    if ! "$@" 2>&1 | tee "$log"; then
        rm -f "$log"
        echo "FAILED: $name: $*" >&2
        note "$name: FAILED"
        exit 1
    fi
    local before=$cpu
    cpu_seconds cpu
    took="$((SECONDS - begin)) s ($((cpu - before)) s of processors)"
    count=$("$cases" "$log")
    rm -f "$log"
    if [[ ! $count =~ ^[1-9] ]]; then
        echo "FAILED: $name ran no cases, so it checked nothing" >&2
        note "$name: FAILED: no cases"
        exit 1
    fi
    echo "<== $name: ok, $count, $took"
    note "$name: ok, $count, $took"
}

# cpu_seconds VARIABLE: what the commands that have ended took of all processors.
cpu_seconds() {
    local file
    file=$(mktemp)
    times >"$file" # not in a subshell, which has a count of its own
    printf -v "$1" %s "$(awk 'NR == 2 { gsub(/[ms]/, " "); printf "%d", ($1 + $3) * 60 + $2 + $4 }' "$file")"
    rm -f "$file"
}

# skip NAME WHY: says by name that a step did not run.
skip() {
    echo "==> $1: skipped: $2"
    note "$1: skipped: $2"
}

# Tests that ran: the sum over nextest's and cargo test's summary lines.
count_tests() {
    sed 's/\x1b\[[0-9;]*m//g' "$1" | awk '
        / tests? run:/ && /Summary/ { for (i = 1; i <= NF; i++) if ($i ~ /^tests?$/) { n += $(i - 1); break } }
        /^test result:/ { n += $4 + $6 }
        END { print n + 0, "tests" }'
}

# has GLOB: whether any path matches.
has() { compgen -G "$1" >/dev/null; }

# Tests of every target but doc tests, by nextest where it is installed.
cargo_tests() {
    # tests/examples.rs runs them; a choice of targets leaves them out.
    cargo build --examples "$@"
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --no-fail-fast "$@"
    else
        cargo test --no-fail-fast --lib --bins --tests "$@"
    fi
}
