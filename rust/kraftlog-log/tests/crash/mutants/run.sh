#!/bin/sh
# Put each bug of this directory into the engine, one at a time, and see that the crash test finds it.
# The engine's sources must be as committed; they are so again at the end. Arguments: names of patches, else all.
set -eu
cd "$(dirname "$0")/../../../../.."
mutants=rust/kraftlog-log/tests/crash/mutants
git diff --quiet -- rust/kraftlog-log/src || { echo "rust/kraftlog-log/src has changes; commit them first" >&2; exit 1; }
trap 'git checkout -q -- rust/kraftlog-log/src' EXIT
trap 'exit 130' INT TERM
output=$(mktemp)
missed=0
profile=${KRAFTLOG_CRASH_PROFILE:-quick} # dev builds sooner and runs slower
[ $# -gt 0 ] || set -- $(cd "$mutants" && ls -- *.patch)
for name in "$@"; do
    name=${name%.patch}
    git apply "$mutants/$name.patch"
    cargo build --locked --quiet --profile "$profile" -p kraftlog-log --test crash
    if cargo test --locked --quiet --profile "$profile" -p kraftlog-log --test crash > "$output" 2>&1; then
        echo "MISSED  $name: $(head -1 "$mutants/$name.patch")"
        missed=1
    else
        echo "caught  $name: $(head -1 "$mutants/$name.patch")"
        sed -n '/^FAILED/,$p' "$output" | grep -m 1 -E '^  [^ ]' || true
        grep -E ' crashes \(' "$output" || true
    fi
    git checkout -q -- rust/kraftlog-log/src
done
rm -f "$output"
exit "$missed"
