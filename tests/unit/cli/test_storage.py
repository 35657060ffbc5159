"""``kraftlog storage``: outputs, words and exit codes of kafka-storage 4.3.1."""

from __future__ import annotations

import pytest

from kraftlog.cli.storage import main
from kraftlog.storage.bootstrap import read_bootstrap
from kraftlog.storage.meta_properties import read_meta_properties
from kraftlog.types import Uuid

CLUSTER_ID = "6ukEYB2qBMCQ4OIrSkFKQA"


@pytest.fixture
def config(tmp_path):
    def write(**changes):
        properties = {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
            "log.dirs": str(tmp_path / "data"),
            "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
        }
        properties |= {name.replace("_", "."): value for name, value in changes.items()}
        path = tmp_path / "server.properties"
        path.write_text("".join(f"{name}={value}\n" for name, value in properties.items() if value is not None))
        return str(path)

    return write


@pytest.fixture
def run(capsys):
    def run(*arguments):
        code = main(arguments)
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.mark.spec("BOOT-02", "BOOT-16", "BOOT-22")
def test_format_and_info(config, run, tmp_path):
    data = tmp_path / "data"
    code, out, _ = run("info", "-c", config())
    assert (code, out) == (1, f"Found problem:\n  {data} does not exist\n\n")
    code, out, _ = run("format", "-c", config(), "-t", CLUSTER_ID, "--standalone")
    assert code == 0
    lines = out.splitlines()
    levels = [("metadata", 30), ("eligible.leader.replicas", 1), ("group", 1), ("share", 1), ("streams", 1)]
    records = ", ".join(
        f"ApiMessageAndVersion(FeatureLevelRecord(name='{name}.version', featureLevel={level}) at version 0)"
        for name, level in [*levels, ("transaction", 2)]
    )
    assert lines[0] == (
        f"Bootstrap metadata: BootstrapMetadata(records=[{records}], metadataVersionLevel=30, source=format command)"
    )
    assert lines[1:] == [f"Formatting dynamic metadata voter directory {data} with metadata.version 4.3-IV0."]
    code, out, _ = run("info", "-c", config())
    properties = read_meta_properties(data)
    assert code == 0
    assert out == (
        f"Found log directory:\n  {data}\n\nFound metadata: {{cluster.id={CLUSTER_ID},"
        f" directory.id={properties.directory_id}, node.id=1, version=1}}\n\n"
    )
    code, _, err = run("format", "-c", config(), "-t", CLUSTER_ID, "--standalone")
    assert (code, err) == (
        1,
        (
            f"Log directory {data} is already formatted. Use --ignore-formatted to ignore this directory and format the"
            " others.\n"
        ),
    )
    code, out, _ = run("format", "-c", config(), "-t", CLUSTER_ID, "--standalone", "--ignore-formatted")
    assert (code, out) == (0, "All of the log directories are already formatted.\n")


def test_info_of_an_unformatted_directory(config, run, tmp_path):
    data = tmp_path / "data"
    data.mkdir()
    assert run("info", "-c", config())[:2] == (
        1,
        f"Found log directory:\n  {data}\n\nFound problem:\n  {data} is not formatted.\n\n",
    )


@pytest.mark.spec("BOOT-01", "BOOT-03", "BOOT-08")
@pytest.mark.parametrize(
    ("changes", "arguments", "message"),
    [
        (
            {},
            [],
            "Because controller.quorum.voters is not set on this controller, you must specify one of",
        ),
        ({"process_roles": "broker"}, ["--standalone"], "You can only use --standalone on a controller."),
        (
            {"controller_quorum_voters": "1@127.0.0.1:9093"},
            ["--standalone"],
            "You cannot specify controller.quorum.voters and format the node with --initial-controllers",
        ),
        ({"node_id": None}, ["--standalone"], 'Missing required configuration "node.id" which has no default value.'),
        (
            {},
            ["-s", "--feature", "group.version"],
            "Can't parse feature=level string group.version: equals sign not found.",
        ),
        (
            {},
            ["-s", "--release-version", "9.9"],
            "Unknown metadata.version '9.9'. Supported metadata.version are: 3.3-IV3",
        ),
        ({}, ["--initial-controllers", "1@h"], "No colon following hostname could be found."),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[name=a]"], "You must supply one of 'password' or 'saltedpassword'"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256"], "Failed to find equals sign"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-1=[name=a]"], "The add-scram mechanism SCRAM-SHA-1 is not supported."),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=name=a"], "Expected configuration string to start with ["),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[name=a"], "Expected configuration string to end with ]"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[name=a,b]"], "No equals sign found in a SCRAM component"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[password=b]"], "You must supply 'name' to add-scram"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[name=a,saltedpassword=eHg=]"], "You must supply 'salt' with"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-256=[name=a,salt=?,password=b]"], "Failed to decode given salt"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-512=[name=a,password=b,iterations=4095]"], "The 'iterations' value must"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-512=[name=a,password=b,iterations=16385]"], "The 'iterations' value"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-512=[name=a,password=b,iterations=x]"], "Failed to parse iterations"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-512=[name=a,password=b,x=y]"], "Unknown SCRAM configurations: x"),
        ({}, ["-s", "--add-scram", "SCRAM-SHA-512=[name=a,password=]"], "'name' and 'password' of add-scram must not"),
        (
            {},
            ["-s", "--release-version", "3.4", "--add-scram", "SCRAM-SHA-512=[name=a,password=b]"],
            "SCRAM is only supported in metadata.version 3.5-IV2 or later.",
        ),
    ],
)
def test_format_refusals(config, run, tmp_path, changes, arguments, message):
    code, _, err = run("format", "-c", config(**changes), "-t", CLUSTER_ID, *arguments)
    assert code == 1
    assert err.startswith(message)
    assert not (tmp_path / "data").exists()


@pytest.mark.spec("BOOT-07", "BOOT-20")
@pytest.mark.parametrize("arguments", [["-t", "c", "-s", "-N"], ["-s"], ["-t", "c", "-s", "--bogus"]])
def test_wrong_arguments_exit_with_1(config, run, arguments):
    code, _, err = run("format", "-c", config(), *arguments)
    assert code == 1
    assert "usage:" in err


def test_missing_config_file_is_named(run):
    code, _, err = run("format", "-c", "nosuch.properties", "-t", CLUSTER_ID, "-s")
    assert (code, err) == (1, "nosuch.properties: No such file or directory\n")


def test_broker_and_static_controller_are_formatted_without_a_flag(config, run, tmp_path):
    code, out, _ = run("format", "-c", config(controller_quorum_voters="1@127.0.0.1:9093"), "-t", CLUSTER_ID)
    assert code == 0
    assert f"Formatting metadata directory {tmp_path / 'data'} with" in out
    assert not (tmp_path / "data" / "__cluster_metadata-0").exists()


def test_several_directories_and_the_listener_with_an_empty_host(config, run, tmp_path):
    data, meta = tmp_path / "data", tmp_path / "meta"
    code, out, _ = run("format", "-c", config(metadata_log_dir=str(meta)), "-t", CLUSTER_ID, "-s")
    assert code == 0
    assert out.splitlines()[1:] == [
        f"Formatting data directory {data} with metadata.version 4.3-IV0.",
        f"Formatting dynamic metadata voter directory {meta} with metadata.version 4.3-IV0.",
    ]
    assert b"localhost" in next((meta / "__cluster_metadata-0").iterdir()).read_bytes()
    assert (data / "bootstrap.checkpoint").exists()


def test_scram_credentials_have_the_keys_of_rfc_5802(config, run, tmp_path):
    text = 'SCRAM-SHA-256=[name=user,salt="W22ZaJ0SNY7soEsUEjb6gQ==",password=pencil,iterations=4096]'
    assert run("format", "-c", config(), "-t", CLUSTER_ID, "-s", "--add-scram", text)[0] == 0
    record = read_bootstrap(tmp_path / "data").records[-1]
    assert (record.name, record.mechanism, record.iterations) == ("user", 1, 4096)
    # RFC 7677's example has the same salt and password; its server signature is made with this key.
    import hashlib
    import hmac

    salted = hashlib.pbkdf2_hmac("sha256", b"pencil", record.salt, 4096)
    assert record.server_key == hmac.digest(salted, b"Server Key", "sha256")
    assert record.stored_key == hashlib.sha256(hmac.digest(salted, b"Client Key", "sha256")).digest()


@pytest.mark.spec("BOOT-21")
def test_random_uuid(run):
    code, out, _ = run("random-uuid")
    assert code == 0
    assert len(out.strip()) == 22
    assert not out.startswith("-")
    assert len(Uuid.parse(out.strip())) == 16


def test_version_mapping_and_feature_dependencies(run):
    code, out, _ = run("version-mapping", "--release-version", "3.9")
    assert code == 0
    assert out == (
        "metadata.version=21 (3.9)\nkraft.version=1\ntransaction.version=0\ngroup.version=0\n"
        "eligible.leader.replicas.version=0\nshare.version=0\nstreams.version=0\n"
    )
    for feature, expected in (
        ("eligible.leader.replicas.version=1", (0, " requires:\n    metadata.version=23 (4.0-IV1)\n")),
        ("group.version=1", (0, " has no dependencies.\n")),
    ):
        code, out, _ = run("feature-dependencies", "--feature", feature)
        assert (code, out) == (expected[0], feature + expected[1])
    assert run("feature-dependencies", "--feature", "metadata.version=30")[1] == (
        "metadata.version=30 (4.3-IV0) has no dependencies.\n"
    )
    assert run("feature-dependencies", "--feature", "foo=1")[2] == "Unknown feature: foo\n"
