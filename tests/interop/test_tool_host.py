"""The JVM that tests share for Kafka's tools: what a tool says there is what it says in a process of its own."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from batch_rows import GOLDEN
from interop.clients import create_topic
from interop.harness import Java, Server

TOOLS = "org.apache.kafka.tools."
TOPIC = "described"
LOG = GOLDEN / "topics" / "node-1" / "g-none-0" / f"{0:020}.log"
# Main class -> arguments; "{server}" and "{properties}" are those of a node. What it prints moves with no clock.
COMMANDS = {
    TOOLS + "TopicCommand": "--bootstrap-server {server} --describe --topic described",
    "kafka.admin.ConfigCommand": "--bootstrap-server {server} --describe --entity-type topics --entity-name described",
    TOOLS + "GetOffsetShell": "--bootstrap-server {server} --topic described --time latest",
    TOOLS + "LogDirsCommand": "--bootstrap-server {server} --describe --topic-list described",
    TOOLS + "MetadataQuorumCommand": "--bootstrap-server {server} describe --status --replication",
    TOOLS + "FeatureCommand": "--bootstrap-server {server} upgrade --feature group.version=7",
    TOOLS + "ClusterTool": "list-endpoints --bootstrap-server {server}",
    TOOLS + "BrokerApiVersionsCommand": "--bootstrap-server {server}",
    TOOLS + "consumer.group.ConsumerGroupCommand": "--bootstrap-server {server} --describe --group nobody",
    TOOLS + "DumpLogSegments": f"--deep-iteration --files {LOG}",
    "kafka.tools.StorageTool": "info -c {properties}",
}
ODD = """
public class Odd {
    public static void main(String[] args) throws Exception {
        switch (args[0]) {
            case "say" -> {
                System.out.println("out " + new String(System.in.readAllBytes(), "UTF-8") + args[1]);
                System.err.println("err " + System.getProperty("odd.property"));
                System.setProperty("odd.property", "set");
                System.out.close();
            }
            case "kafka-exit" -> {
                org.apache.kafka.common.utils.Exit.addShutdownHook("hook", () -> System.out.println("hook"));
                try {
                    org.apache.kafka.common.utils.Exit.exit(Integer.parseInt(args[1]));
                } catch (Throwable thrown) {
                    System.out.println("goes on after its exit");
                }
            }
            case "throw" -> throw new IllegalStateException("broken");
            case "exit" -> System.exit(5);
            case "hang" -> Thread.sleep(600_000);
            case "thread" -> new Thread(() -> System.out.println("in a thread")).start();
            case "daemon" -> {
                Thread daemon = new Thread(() -> {
                    while (true) {
                        System.out.println("still there");
                        try {
                            Thread.sleep(10);
                        } catch (InterruptedException e) {
                            // goes on
                        }
                    }
                });
                daemon.setDaemon(true);
                daemon.start();
            }
        }
    }
}
"""


@pytest.fixture(scope="module")
def served(node: Server) -> Server:
    create_topic(node.bootstrap, TOPIC, partitions=2)
    return node


@pytest.fixture(scope="module")
def own_processes(served: Server, java: Java) -> Iterator[dict[str, subprocess.CompletedProcess[str]]]:
    """What each command says as its user starts it; two at a time."""
    with ThreadPoolExecutor(2) as threads:
        begun = {
            main: threads.submit(java.run, main, *arguments(main, served), check=False, text_input="")
            for main in COMMANDS
        }
        yield {main: future.result() for main, future in begun.items()}


def arguments(main: str, served: Server) -> list[str]:
    return COMMANDS[main].format(server=served.bootstrap, properties=served.properties_path).split()


def lines(text: str) -> list[str]:
    """Without what the logger says about itself, and where in the program something was thrown."""
    return [line for line in text.splitlines() if not re.match(r"SLF4J: |\tat |\t\.\.\. ", line)]


@pytest.mark.parametrize("main", COMMANDS)
def test_a_tool_says_there_what_it_says_in_its_own_process(
    main: str, served: Server, java: Java, own_processes: dict[str, subprocess.CompletedProcess[str]]
) -> None:
    alone = own_processes[main]
    for _ in range(2):  # the second run finds what the first one left
        shared = java.tool(main, *arguments(main, served), check=False)
        assert shared.returncode == alone.returncode
        assert sorted(lines(shared.stdout)) == sorted(lines(alone.stdout))
        assert lines(shared.stderr) == lines(alone.stderr)
    assert alone.stdout or alone.returncode


@pytest.fixture(scope="module")
def odd(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Java, str]]:
    """A JVM that may be broken, and a program that does."""
    source: Path = tmp_path_factory.mktemp("odd") / "Odd.java"
    source.write_text(ODD)
    own = Java(java.libs)
    yield own, str(source)
    own.close()


def test_streams_arguments_and_properties_are_of_one_run(odd: tuple[Java, str]) -> None:
    java, program = odd
    for word in ("a\tb\n", "", "ü€"):
        done = java.tool(program, "say", word, text_input="in\n")
        assert (done.stdout, done.stderr) == (f"out in\n{word}\n", "err null\n")


def test_ends_are_those_of_a_process(odd: tuple[Java, str]) -> None:
    java, program = odd
    ended = java.tool(program, "kafka-exit", "3", check=False)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "hook\n", "")
    thrown = java.tool(program, "throw", check=False)
    assert thrown.returncode == 1
    assert thrown.stderr.startswith('Exception in thread "main" java.lang.IllegalStateException: broken\n\tat Odd.main')
    assert java.tool(program, "thread").stdout == "in a thread\n"
    assert java.tool("no.such.Tool", check=False).returncode == 1
    with pytest.raises(AssertionError, match=r"throw ended with 1\n.*broken"):
        java.tool(program, "throw")


def test_a_jvm_that_is_lost_is_followed_by_another(odd: tuple[Java, str]) -> None:
    java, program = odd
    with pytest.raises(subprocess.TimeoutExpired):
        java.tool(program, "hang", timeout=0.5)
    assert java.tool(program, "thread").stdout == "in a thread\n"
    with pytest.raises(AssertionError, match=r"ended with 5 while it ran .*Odd\.java exit"):
        java.tool(program, "exit")
    java.tool(program, "daemon")
    assert java.tool(program, "thread").stdout == "in a thread\n"
