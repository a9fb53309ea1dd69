#!/usr/bin/env bash
# Kills workers at random moments of one run, then lets workers lie and loaders come and go, in large numbers.
# FOREBAY_TEST_KILLS, FOREBAY_TEST_LIARS and FOREBAY_TEST_CYCLES set how many.
source "$(dirname "$0")/steps.sh"

export FOREBAY_TEST_KILLS="${FOREBAY_TEST_KILLS:-2000}"
export FOREBAY_TEST_LIARS="${FOREBAY_TEST_LIARS:-2000}"
export FOREBAY_TEST_CYCLES="${FOREBAY_TEST_CYCLES:-1000}"

one() { cargo test --locked --release --test "$1" "$2" -- --exact --nocapture; }

step "kills" count_tests one worker_death kills_at_random_moments_of_one_run_lose_and_repeat_nothing
step "lies" count_tests one hostile_worker lies_of_workers_cost_workers_and_no_batch_is_wrong
step "cycles" count_tests one lifecycle nothing_is_left_of_any_number_of_loaders

print_summary "stress"
