# Measurements, and their tables in docs/reports.
# shellcheck shell=sh disable=SC2154 # .ci/dev sets venv and py

#: bench      pytest-benchmark groups; `python benches/node_bench.py` compares whole nodes
bench() { # --quick: a third of the rows, half the time
    setup
    jars
    if [ "${1:-}" = --quick ]; then
        shift
        set -- -k "not (gzip or zstd or 10- or 10000 or protocol)" "$@"
    fi
    [ -x target/rust-peers/release/rust-peers ] || bench_peers
    "$py" -m pytest benches --benchmark-enable --benchmark-only --benchmark-max-time=0.25 --benchmark-min-rounds=3 \
        --benchmark-warmup=on --benchmark-warmup-iterations=1 -q --benchmark-json=target/bench.json "$@"
}

#: bench-peers  build the kafka-protocol crate, which bench compares with
bench_peers() { # in a crate of its own that nothing depends on
    CARGO_TARGET_DIR=target/rust-peers cargo build --locked --release --quiet --manifest-path benches/rust-peers/Cargo.toml
}

#: bench-path  Produce and Fetch, data path native and python, beside Kafka (an hour; --rounds 1 --seconds 2: a quarter)
bench_path() {
    setup
    jars
    "$py" benches/path_bench.py --json target/path.json "$@"
}

#: bench-replication  three kraftlog nodes beside three of Kafka (an hour; --rounds and --rows set it)
bench_replication() {
    setup
    jars
    "$py" benches/replication.py --json target/replication.json "$@"
}

#: bench-coordinators  groups and transactions beside Kafka (eight minutes; --rounds 1 --seconds 2: two)
bench_coordinators() {
    setup
    jars
    "$py" benches/coordinators.py "$@"
}

#: busy-threads  ten minutes of produce to a node beside threads that compute (--seconds sets the time)
busy_threads() {
    setup
    "$py" benches/busy_threads.py "$@"
}

#: request-walk  the largest request of every array of every API, and the longest turn of the loop (20 minutes; --key 24)
request_walk() {
    setup
    "$py" benches/request_walk.py "$@"
}

#: bench-spark  Spark scans beside spark-sql-kafka, engines in process, Sail (15 minutes; --quick 3)
bench_spark() {
    setup
    jars
    "$py" benches/spark/compare.py "$@"
}

#: bench-consensus  kraftlog.Quorum beside pysyncobj and Kafka's TestRaftServer (25 minutes; --quick 5)
bench_consensus() {
    setup
    jars
    "$py" .ci/requirements.py bench >"$venv/kraftlog-requirements-bench.txt"
    install_into "$py" --requirement "$venv/kraftlog-requirements-bench.txt"
    "$py" benches/consensus/run.py target/consensus.json "$@"
}

#: quorum-gil  ten minutes of commits beside threads that compute (KRAFTLOG_GIL_SECONDS sets the time)
quorum_gil() {
    setup
    KRAFTLOG_GIL_SECONDS=${KRAFTLOG_GIL_SECONDS:-600} "$py" -m pytest -s -k computes tests/interop/test_quorum_api.py "$@"
}

#: bench-spark-broker  latency of a broker's other clients during a backfill, and its page cache
bench_spark_broker() {
    setup
    jars
    "$py" benches/spark/broker_effect.py "$@"
}

#: bench-spark-large   10 GB read by Spark executors of 1 GB
bench_spark_large() {
    setup
    "$py" benches/spark/large.py "$@"
}

#: tables     put what `bench` measured into docs/reports
tables() { "$py" benches/write_tables.py target/bench.json "$@"; }

#: consensus-tables  put what bench-consensus measured into docs/reports
consensus_tables() { "$py" benches/write_tables.py --consensus target/consensus.json "$@"; }

#: path-tables  put what bench-path measured there (--path FILE: another run of path_bench.py)
path_tables() { "$py" benches/write_tables.py --path target/path.json "$@"; }

#: spark-tables  put what bench-spark, bench-spark-broker and bench-spark-large measured there too
spark_tables() { "$py" benches/spark/write_tables.py "$@"; }

#: instructions  count the instructions of the main loops and compare (needs valgrind)
instructions() { # by callgrind, beside those in benches/instructions.json
    need valgrind "callgrind counts the instructions."
    python3 benches/instructions.py "$@"
}
