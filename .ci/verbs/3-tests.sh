# Tests that need the jars, much time, or a number of rounds.
# shellcheck shell=sh disable=SC2154 # .ci/dev sets venv, py and workers

#: test       every Python test, interop with the real Kafka included
test_() { # three processes per two cores, as many tests wait for a JVM; with arguments in one process
    setup
    jars
    if [ $# -gt 0 ]; then
        "$py" -m pytest "$@"
    else
        "$py" -m pytest -n "$workers" --dist loadscope -q || alone "$?"
    fi
}

# The few tests that failed beside others, once more, one at a time: what fails again is broken, what passes is named
# as a test that its neighbours disturb. More than five failures are no accident.
alone() { # alone STATUS-OF-THE-RUN
    [ "$1" -eq 1 ] || return "$1"
    failed=$("$py" -m pytest -p no:xdist --last-failed --last-failed-no-failures none --collect-only -q | grep '::' || true)
    count=$(printf '%s\n' "$failed" | grep -c '::' || true)
    if [ "$count" -eq 0 ] || [ "$count" -gt 5 ]; then return "$1"; fi
    say "$count failed beside other tests, once more alone:"
    printf '%s\n' "$failed" >&2
    "$py" -m pytest -p no:xdist --last-failed --last-failed-no-failures none -q || return 1
    say "passed alone only: those named above"
}

#: interop    only the tests against Apache Kafka (Java; jars through Maven)
interop() {
    setup
    jars
    "$py" -m pytest tests/interop "$@"
}

#: python-path  clients, groups, followers and hostile frames again, with kraftlog.data.path=python
python_path() { # KRAFTLOG_TEST_DATA_PATH has the same effect on any other verb
    setup
    jars
    [ $# -gt 0 ] || set -- -n "$workers" --dist loadscope -q tests/unit/runtime/replica/test_data_path.py \
        tests/integration/node --ignore tests/integration/node/test_sasl_data_path.py \
        tests/integration/cluster/test_replication.py tests/integration/cluster/test_puppet_follower.py \
        tests/interop/test_groups.py tests/interop/test_frame_fuzzer.py tests/interop/test_clients.py
    (
        export KRAFTLOG_TEST_DATA_PATH=python KRAFTLOG_INTEROP_RECORDS="${KRAFTLOG_INTEROP_RECORDS:-10000}" \
            KRAFTLOG_FUZZ_SECONDS="${KRAFTLOG_FUZZ_SECONDS:-20}"
        "$py" -m pytest "$@" || alone "$?"
    )
}

#: franz      franz-go against both data paths, and all tests of its own client package (needs Go; its modules come
#:            through Go's proxy; KRAFTLOG_INTEROP_TARGET=kafka runs its own tests against Kafka)
franz() {
    setup
    need go "franz-go is a library of Go."
    go build -C tests/interop/franz -o "$PWD/target/franz" .
    own=$(go list -C tests/interop/franz -m -f '{{.Dir}}' github.com/twmb/franz-go)
    go test -C "$own" -c -o "$PWD/target/franz-tests" ./pkg/kgo
    KRAFTLOG_FRANZ=$PWD/target/franz KRAFTLOG_FRANZ_TESTS=$PWD/target/franz-tests KRAFTLOG_FRANZ_SOURCE=$own/pkg/kgo \
        "$py" -m pytest -s tests/interop/test_franz.py "$@"
}

#: foreign    the client against Kafka 2.1, 2.8, 3.3 and 3.9 and franz-go's kfake, and sarama and kafkajs against a node
#:            and Kafka (jars through Maven; Go; npm)
foreign() {
    setup
    jars
    need go "kfake and sarama are libraries of Go."
    need npm "kafkajs is a package of npm."
    for pom in tests/interop/foreign/kafka-*/pom.xml; do
        fetch_jars "${pom%/pom.xml}"
    done
    go build -C tests/interop/foreign/kfake -o "$PWD/target/kfake" .
    go build -C tests/interop/foreign/sarama -o "$PWD/target/sarama" .
    npm ci --prefix tests/interop/foreign/kafkajs --no-audit --no-fund
    KRAFTLOG_SARAMA=$PWD/target/sarama KRAFTLOG_KFAKE=$PWD/target/kfake "$py" -m pytest -s tests/interop/foreign "$@"
}

#: sim        scenarios of the consensus core, and 200 clusters under faults (KRAFTLOG_SEEDS sets the number);
#:            sim SEED or sim FILE replays one and shrinks it when it fails
sim() {
    setup
    case ${1:-} in
        "" | -*) KRAFTLOG_SEEDS=${KRAFTLOG_SEEDS:-200} "$py" -m pytest -s tests/scenarios tests/simulation "$@" ;;
        *) PYTHONPATH=python "$py" tests/simulation/campaign.py --replay "$@" ;;
    esac
}

#: sim-mutants  bugs that KRaft and others once had, put back one at a time, each of which has to be noticed
sim_mutants() {
    setup
    "$py" -m pytest tests/scenarios/test_mutants.py tests/simulation/test_mutants.py "$@"
    put_back
}

#: put-back   [--only WORDS]: bugs put back into the product, each noticed by its test
put_back() { # --native: those of the native code, compiled for each
    setup
    (cd tests && PYTHONPATH=../python:. "$py" -m put_back "$@")
}

#: put-back-chance  --rows FILE [--cap CPU_SECONDS] [--minutes N] [--table]: the same bugs, by drawn seeds
put_back_chance() {
    setup
    (cd tests && PYTHONPATH=../python:. "$py" -m put_back.chance "$@")
}

#: histories  [--cpu-minutes N] [--first SEED] [--only NAME [--seed N]]: single state machines, with drawn seeds
histories() {
    setup
    (cd tests && PYTHONPATH=../python:. "$py" -m put_back.histories "$@")
}

#: world      [--minutes N | --seeds A:B | --seed N | --scenario FILE] [--workload NAME]: whole clusters in virtual time;
#:            NAME is records, transactions, groups, pipelines, shares, tables, topics, losses, trims, bursts or commands
world() {
    setup
    PYTHONPATH=python "$py" tests/simulation/world/campaign.py "$@"
}

#: sim-nightly  random seeds on all cores without end, figures each minute; failing ones end up in build/
sim_nightly() {
    setup
    PYTHONPATH=python "$py" tests/simulation/campaign.py "$@"
}

#: explore    [ROUNDS]: the property tests of both languages with draws that no run before had
explore() {
    setup
    round=0
    while [ "$round" -lt "${1:-10}" ]; do
        round=$((round + 1))
        say "round $round of ${1:-10}"
        cargo test --locked --quiet --profile quick -p kraftlog-log -p kraftlog-path
        "$py" -m pytest -q -n "$workers" tests/property
    done
}

#: fuzz       the seeded frame fuzzer against a live node
fuzz() {
    setup
    "$py" -m pytest -s tests/interop/test_frame_fuzzer.py "$@"
}

#: fuzz-rust  TARGET [CPU seconds]: a libFuzzer target of the engine with the address sanitizer
fuzz_rust() { # or `all`; until it has used so many CPU seconds; nightly Rust
    need rustup "the sanitizer needs a nightly compiler: rustup toolchain install nightly"
    target=${1:-}
    [ -n "$target" ] || die "a target is needed: all, or one of $(ls fuzz/fuzz_targets | sed 's/.rs$//' | tr '\n' ' ')"
    if [ "$target" = all ]; then
        sh fuzz/build.sh >/dev/null
        target=
    else
        sh fuzz/build.sh --bin "$target" >/dev/null
    fi
    python=$(python3_11)
    "$python" fuzz/seed_corpus.py >/dev/null
    # shellcheck disable=SC2086 # no target is no argument
    "$python" fuzz/run.py --seconds "${2:-600}" $target
}

#: fuzz-logs  damaged directories through open_log (KRAFTLOG_FUZZ_ROUNDS sets the number)
fuzz_logs() { # a longer run than the tests do
    setup
    KRAFTLOG_FUZZ_ROUNDS=${KRAFTLOG_FUZZ_ROUNDS:-2000} "$py" -m pytest -s tests/property/test_open_log_fuzz.py "$@"
}

#: beside     controllers, brokers and raft replicas of kraftlog in one cluster with Kafka's, all cases
beside() {
    setup
    jars
    KRAFTLOG_BESIDE=all "$py" -m pytest tests/interop/beside "$@"
}

#: mixed      clusters of kraftlog and Kafka nodes, five times from one program to the other (KRAFTLOG_MIXED_ROUNDS)
mixed() {
    setup
    jars
    KRAFTLOG_MIXED=all KRAFTLOG_MIXED_ROUNDS=${KRAFTLOG_MIXED_ROUNDS:-5} "$py" -m pytest -s tests/interop/mixed "$@"
}

#: kill       200 times kill -9 during produce (KRAFTLOG_KILLS sets the number)
kill_() {
    setup
    jars
    KRAFTLOG_KILLS=${KRAFTLOG_KILLS:-200} "$py" -m pytest -s -k kill tests/interop/test_kill.py "$@"
}

#: spark-kill 50 times kill -9 of a streaming query's processes (KRAFTLOG_SPARK_KILLS sets the number)
spark_kill() { # the JVM, the driver and the Python processes
    setup
    KRAFTLOG_SPARK_KILLS=${KRAFTLOG_SPARK_KILLS:-50} "$py" -m pytest -s tests/interop/spark/test_stream_kill.py "$@"
}

#: model      the specifications in larger scopes, 500 runs of the simulator and 200 of a partition replayed (KRAFTLOG_TRACES)
model() { # five times the traces of CI; an hour or more
    setup
    jars_model
    KRAFTLOG_MODEL_LARGE=1 KRAFTLOG_TRACES=${KRAFTLOG_TRACES:-500} \
        KRAFTLOG_PARTITION_RUNS=${KRAFTLOG_PARTITION_RUNS:-200} "$py" -m pytest -s tests/model "$@"
}

#: linearizability  histories of replicas and of partitions under faults, ten minutes each (KRAFTLOG_LINEARIZABILITY_SECONDS)
linearizability() { # kraftlog.Quorum in processes, kraftlog.Cluster
    setup
    KRAFTLOG_LINEARIZABILITY_SECONDS=${KRAFTLOG_LINEARIZABILITY_SECONDS:-600} "$py" -m pytest -s \
        tests/linearizability/test_linearizability.py tests/linearizability/test_partition_registers.py "$@"
}

#: kill-replicas  500 leaders of replicated partitions killed, paused, stopped or cut off (KRAFTLOG_REPLICA_KILLS)
kill_replicas() { # KRAFTLOG_REPLICA_FLUSH=true lets acknowledgements wait for the disks, _MINUTES ends it earlier
    setup
    jars
    need go "franz-go is a library of Go."
    go build -C tests/interop/franz -o "$PWD/target/franz" .
    KRAFTLOG_FRANZ=$PWD/target/franz KRAFTLOG_REPLICA_CLIENTS=${KRAFTLOG_REPLICA_CLIENTS:-confluent,java,franz} \
        KRAFTLOG_REPLICA_KILLS=${KRAFTLOG_REPLICA_KILLS:-500} "$py" -m pytest -s tests/interop/test_kill_replicas.py "$@"
}

#: consumer-kills  50 times kill -9 of Kafka's brokers under kraftlog.Consumer (KRAFTLOG_CONSUMER_KILLS)
consumer_kills() { # KRAFTLOG_CONSUMER_NODES=kraftlog takes kraftlog's nodes, _MINUTES ends it earlier
    setup
    jars
    KRAFTLOG_CONSUMER_KILLS=${KRAFTLOG_CONSUMER_KILLS:-50} "$py" -m pytest -s tests/interop/test_consumer_kills.py "$@"
}

#: kill-leader  500 times kill -9 of the leader of a quorum (KRAFTLOG_LEADER_KILLS)
kill_leader() { # KRAFTLOG_LEADER_KILL_TIMERS=default takes Kafka's time-outs instead of short ones
    setup
    KRAFTLOG_LEADER_KILLS=${KRAFTLOG_LEADER_KILLS:-500} "$py" -m pytest -s tests/linearizability/test_kill_leader.py "$@"
}

#: exactly-once  a chain of transactional clients while nodes and clients are struck (KRAFTLOG_EXACTLY_ONCE_SECONDS=1800)
exactly_once() { # _NODES=1 has one node, _SEED repeats the strikes, _SERVER=kafka takes Apache Kafka's nodes, _CUTS=1 cuts networks too
    setup
    jars
    KRAFTLOG_EXACTLY_ONCE_SECONDS=${KRAFTLOG_EXACTLY_ONCE_SECONDS:-1800} "$py" -m pytest -s \
        tests/interop/transactions/test_exactly_once.py "$@"
}
