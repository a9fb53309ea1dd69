.PHONY: demo test check loom containers stress-kill docs fmt setup

# Installs what is missing, builds in release, and loads the small data set with a progress bar and a summary.
demo: setup
	cargo build --release --locked && target/release/forebay run datasets/tiny

# Every test.
test: setup
	ci/test.sh

# Every check that continuous integration makes.
check: setup
	ci/check.sh

# The lock-free code under loom.
loom:
	ci/loom.sh

# The tests that need namespaces or cgroups of their own.
containers: setup
	ci/containers.sh

# Thousands of killed and lying workers, and of loaders that come and go.
stress-kill: setup
	ci/stress.sh

# The documentation, private items too.
docs: setup
	cargo doc --no-deps --document-private-items

fmt:
	cargo fmt --all

# A C compiler, make, cmake and nasm, where they are missing.
setup:
	@ci/setup.sh
