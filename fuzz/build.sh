#!/bin/sh
# Builds the fuzz targets with libFuzzer and the address sanitizer, as cargo-fuzz would: the sanitizer needs the nightly
# compiler's -Z flag, the C codecs are instrumented by the C compiler. Prints the directory of the programs.
set -eu
cd "$(dirname "$0")"
target=x86_64-unknown-linux-gnu
export RUSTFLAGS="-Zsanitizer=address --cfg fuzzing -Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
-Cllvm-args=-sanitizer-coverage-trace-compares -Ccodegen-units=16"
export CFLAGS_x86_64_unknown_linux_gnu="-fsanitize=address -fno-omit-frame-pointer -g1"
cargo +nightly build --release --target "$target" "$@" >&2
echo "$PWD/target/$target/release"
