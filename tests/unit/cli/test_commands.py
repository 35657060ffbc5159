"""Every command of ``kraftlog`` can be reached as its user reaches it: by name, through ``kraftlog.cli.__main__``."""

from __future__ import annotations

import pytest

from kraftlog.cli.__main__ import COMMANDS, main


@pytest.mark.parametrize("name", COMMANDS)
def test_help_of_each_command_names_its_arguments(name, capsys):
    try:
        status = main([name, "--help"])
    except SystemExit as stop:
        status = stop.code
    assert status == 0
    assert f"usage: kraftlog {name}" in capsys.readouterr().out


@pytest.mark.parametrize(
    "arguments",
    [
        ["groups", "--bootstrap-server", "127.0.0.1:1", "list"],
        ["transactions", "--bootstrap-server", "127.0.0.1:1", "list"],
        ["features", "--bootstrap-server", "127.0.0.1:1", "describe"],
        ["metadata-quorum", "--bootstrap-server", "127.0.0.1:1", "describe", "--status"],
    ],
)
def test_commands_that_stand_for_tools_of_kafka_fail_with_a_reason(arguments, capsys):
    assert main(arguments) == 1
    assert "127.0.0.1:1" in capsys.readouterr().err
