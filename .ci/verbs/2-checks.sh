# What needs no JDK and no jars.
# shellcheck shell=sh disable=SC2154 # .ci/dev sets venv, py and jobs

#: check      before each commit, in less than a minute once warm: lint, types and the pure tests but those of Spark
check() { # setup builds the extension again if Rust changed
    setup
    lint
    type_
    say "pure tests"
    "$py" -m pytest -n 2 -q tests/unit --ignore tests/unit/spark "$@"
}

#: fmt        format Python and Rust, apply safe fixes
fmt() {
    have
    "$venv/bin/ruff" format
    "$venv/bin/ruff" check --fix --exit-zero --quiet
    cargo fmt --all
}

#: lint       ruff, cargo fmt, clippy with warnings as errors
lint() {
    lint_python
    lint_rust
}

#: lint-python  ruff alone
lint_python() {
    packages
    say "ruff format, ruff check"
    "$venv/bin/ruff" format --check --quiet
    "$venv/bin/ruff" check --quiet
}

#: lint-rust  cargo fmt and clippy alone
lint_rust() {
    say "cargo fmt, clippy"
    cargo fmt --all --check
    cargo clippy --locked --quiet --workspace --all-targets -- -D warnings
    cargo fmt --manifest-path benches/load/Cargo.toml --check
    CARGO_TARGET_DIR=target/load cargo clippy --locked --quiet --manifest-path benches/load/Cargo.toml --all-targets -- -D warnings
    if command -v cargo-deny >/dev/null 2>&1; then cargo deny --config .ci/deny.toml check; fi
}

#: type       mypy --strict, the types that users see, and the stub file against the compiled module
type_() {
    have
    say "mypy --strict"
    "$py" -m mypy
    say "mypy --strict tests/typing"
    "$py" -m mypy tests/typing
    say "stubtest kraftlog._kraftlog"
    "$py" -m mypy.stubtest kraftlog._kraftlog --mypy-config-file pyproject.toml --allowlist .ci/stubtest-allowlist.txt
}

#: site       the documentation site alone, strict, into target/docs/site
site() {
    have
    say "site in target/docs/site"
    "$py" .ci/site/build.py
}

#: docs       links, the strict site in target/docs/site, and the examples of docstrings
docs() { # every link between files of this tree leads somewhere, and every example in a docstring is true
    site
    "$py" -m pytest tests/unit/test_docs.py "$@"
    "$py" -m pytest --doctest-modules python/kraftlog "$@"
}

#: rust-test  the tests of the engine and of the data path, the models of its threads, and the crash test
rust_test() { # with KRAFTLOG_CRASH_POINTS the crash test runs among the others, slower and without another compilation
    say "cargo test"
    cargo test --locked --quiet -p kraftlog-log -p kraftlog-path
    CARGO_TARGET_DIR=target/load cargo test --locked --quiet --manifest-path benches/load/Cargo.toml
    path_models
    [ -n "${KRAFTLOG_CRASH_POINTS:-}" ] || crash
}

#: path-models  orders of threads at a partition, tried by loom
path_models() {
    say "models of the data path"
    # Both packages are named, as in rust_test: with other features of what they depend on, cargo would compile that again.
    cargo test --locked --quiet -p kraftlog-log -p kraftlog-path --features kraftlog-path/loom --lib model_
}

#: crash      crashes of the engine on a simulated disk at 20 000 points of histories, or for so many minutes
crash() { # KRAFTLOG_CRASH_POINTS sets another number, KRAFTLOG_CRASH_SEED runs a seed that failed again
    say "crash test"
    [ $# -gt 0 ] && export KRAFTLOG_CRASH_MINUTES="$1"
    cargo test --locked --quiet --profile quick -p kraftlog-log --test crash
}

#: crash-mutants  bugs put into the engine on purpose, each of which the crash test has to find
crash_mutants() {
    KRAFTLOG_CRASH_POINTS=${KRAFTLOG_CRASH_POINTS:-20000} rust/kraftlog-log/tests/crash/mutants/run.sh "$@"
}

#: all        setup, lint, type, rust-test, wheel, test
all() {
    setup
    lint
    type_
    rust_test
    wheel
    test_
}
