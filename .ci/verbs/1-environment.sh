# The virtual environment, the compiled extension, the wheel and the jars.
# shellcheck shell=sh disable=SC2154 # .ci/dev sets venv and py

python3_11() { # the first interpreter that is new enough
    for candidate in ${PYTHON:-} python3 python3.14 python3.13 python3.12 python3.11; do
        if "$candidate" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
            echo "$candidate"
            return
        fi
    done
    die "Python 3.11 or newer is needed (set PYTHON=/path/to/python3 if it is not on PATH)."
}

new_environment() { # new_environment PYTHON DIRECTORY
    if "$1" -c 'import venv, ensurepip' 2>/dev/null; then
        "$1" -m venv "$2"
    else
        need uv "$1 has no venv module with pip: install it (Debian: python3-venv), or uv."
        uv venv --quiet --python "$1" "$2"
    fi
}

install_into() { # install_into PYTHON ARGUMENTS-OF-PIP; an environment made by uv has no pip
    python=$1
    shift
    if "$python" -m pip --version >/dev/null 2>&1; then
        "$python" -m pip install --quiet --no-compile "$@"
    elif command -v uv >/dev/null 2>&1; then
        uv pip install --quiet --python "$python" "$@"
    else
        "$python" -m ensurepip --upgrade >/dev/null || die "$python has no pip: install pip there, or uv on PATH."
        "$python" -m pip install --quiet --no-compile "$@"
    fi
}

#: environment  virtual environment in .venv with maturin alone, enough for `build`
environment() {
    if [ ! -x "$py" ]; then
        say "virtual environment in $venv"
        new_environment "$(python3_11)" "$venv"
        # The pip that came with Python 3.11 takes twice the time of a new one for the packages below.
        if "$py" -m pip --version >/dev/null 2>&1; then install_into "$py" --upgrade pip; fi
    fi
    [ -x "$venv/bin/maturin" ] || install_into "$py" "$("$py" .ci/requirements.py dev maturin)"
}

#: packages   virtual environment in .venv with the packages that pyproject.toml names, without kraftlog
packages() { # again only if pyproject.toml changed
    environment
    cmp -s pyproject.toml "$venv/packages-pyproject.toml" && return
    say "packages named in pyproject.toml"
    # Source packages, such as PySpark, get the build tools they ask for; kraftlog is built by the maturin installed
    # here, under the one interpreter path that `build` uses too, so that Rust is compiled once.
    "$py" .ci/requirements.py dev >"$venv/kraftlog-requirements.txt"
    # Half of the time would go into compressing half a gigabyte of PySpark, only to unpack it, and into byte code of
    # modules that nothing here imports; setuptools reads DIST_EXTRA_CONFIG, and Python compiles what it does import.
    printf '[bdist_wheel]\ncompression=stored\n' >"$venv/kraftlog-wheels.cfg"
    DIST_EXTRA_CONFIG="$venv/kraftlog-wheels.cfg" install_into "$py" --requirement "$venv/kraftlog-requirements.txt"
    cp pyproject.toml "$venv/packages-pyproject.toml"
}

#: setup      virtual environment in .venv with everything, and the compiled extension
setup() { # the packages again only if pyproject.toml changed
    need cargo "Rust 1.89 or newer builds the engine."
    packages
    if cmp -s pyproject.toml "$venv/kraftlog-pyproject.toml"; then
        build
        return
    fi
    say "kraftlog"
    PATH="$venv/bin:$PATH" install_into "$py" --no-deps --no-build-isolation --editable .
    cp pyproject.toml "$venv/kraftlog-pyproject.toml"
}

have() { [ -x "$py" ] && cmp -s pyproject.toml "$venv/kraftlog-pyproject.toml" || setup; }

#: build      compile the extension again (release, incremental)
build() {
    [ -x "$venv/bin/maturin" ] || {
        setup
        return
    }
    PATH="$venv/bin:$PATH" VIRTUAL_ENV="$venv" "$venv/bin/maturin" develop --release --skip-install --quiet
}

#: wheel      build the wheel, check its size, run kraftlog demo from it in an environment of its own
wheel() { # small enough, and enough for the README's first command
    have
    rm -rf dist
    PATH="$venv/bin:$PATH" "$venv/bin/maturin" build --release --locked --quiet --interpreter "$py" --out dist
    size=$(wc -c <"$(echo dist/*.whl)")
    say "wheel of $size bytes"
    [ "$size" -lt 8000000 ] || die "the wheel has $size bytes, the limit is 8000000"
    rm -rf "$venv-wheel"
    new_environment "$py" "$venv-wheel"
    install_into "$venv-wheel/bin/python" "$(echo dist/*.whl)[demo]"
    say "kraftlog demo, from the wheel"
    "$venv-wheel/bin/kraftlog" demo
}

#: jars       fetch the jars of the interop tests: Kafka's, Spark's Kafka source, the model checker
jars() {
    need java "the interop tests run the real Apache Kafka: a JDK 17 or newer is needed."
    fetch_all_jars
    sail_client
    # Of the jars that pyspark has; a JVM ignores an archive of others.
    classes=tests/interop/spark/target/classes.jsa
    [ "$classes" -nt "$venv/packages-pyproject.toml" ] || {
        have
        "$py" tests/interop/spark/class_archive.py || say "no $classes: Spark starts more slowly"
    }
    [ -n "${KAFKA_LIBS:-}" ] && return
    export KAFKA_LIBS="$PWD/tests/interop/target/libs/*" # the benches beside Kafka's own classes read it too
    classes=tests/interop/target/classes.jsa
    [ "$classes" -nt tests/interop/target/.complete ] || {
        packages
        "$py" tests/interop/class_archive.py || say "no $classes: JVMs start more slowly"
    }
}

fetch_all_jars() {
    for jars_of in interop/spark interop/tiered interop/transactions interop/transactions/old model; do
        fetch_jars "tests/$jars_of"
    done
    [ -n "${KAFKA_LIBS:-}" ] || fetch_jars tests/interop
}

#: jars-maven what `jars` fetches by Maven, and nothing where there is no mvn: it needs no Python package
jars_maven() {
    command -v mvn >/dev/null 2>&1 || return 0
    fetch_all_jars
}

#: jars-model fetch the model checker TLC
jars_model() { fetch_jars tests/model; }

#: jars-old   fetch kafka-clients 3.9.1, for golden files of message versions that Kafka 4 removed
jars_old() { fetch_jars tests/golden/make/kafka-3.9.1; }

# Sail 0.7 takes no newer PySpark than 4.2: its client, of which the PySpark of the other tests knows nothing.
sail_client() {
    target=tests/interop/target/sail
    [ -d "$target/pyspark" ] && return
    packages
    say "pyspark-client 4.2 for Sail"
    install_into "$py" --no-deps --target "$target" 'pyspark-client==4.2.0'
}

# The jars named in $1/pom.xml into $1/target/libs: by Maven, or where there is no mvn by the Ivy that pyspark ships,
# which reads the same file. MAVEN_OPTS and KRAFTLOG_IVY_CACHE say where they keep what they fetch, if not in the home.
fetch_jars() {
    target=$1/target
    [ "$target/.complete" -nt "$1/pom.xml" ] && return
    rm -rf "$target/libs"
    mkdir -p "$target"
    if command -v mvn >/dev/null 2>&1; then
        say "jars of $1/pom.xml, by Maven"
        mvn -q -B -Dstyle.color=never -f "$1/pom.xml" dependency:copy-dependencies -DoutputDirectory=target/libs
    else
        say "jars of $1/pom.xml, by the Ivy in pyspark (no mvn on PATH); this takes a minute"
        packages
        ivy=$("$py" -c 'import glob, os, pyspark; print(glob.glob(os.path.dirname(pyspark.__file__) + "/jars/ivy-*.jar")[0])')
        java -jar "$ivy" -warn ${KRAFTLOG_IVY_CACHE:+-cache "$KRAFTLOG_IVY_CACHE"} -ivy "$1/pom.xml" -confs default \
            -types jar bundle -retrieve "$target/libs/[artifact]-[revision](-[classifier]).[ext]"
    fi
    touch "$target/.complete"
}
