"""Typed face of the Rust extension ``kraftlog._kraftlog`` (checked by stubtest)."""

build_profile: str
