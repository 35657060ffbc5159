"""The documentation site: its navigation, and the checks that its generator does not have."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

import kraftlog

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def build():
    spec = importlib.util.spec_from_file_location("docs_site_build", ROOT / ".ci" / "site" / "build.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def write(folder, **pages):
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in pages.items():
        (folder / f"{name}.html").write_text(text)
    return folder


def test_navigation_has_every_page_of_this_tree(build):
    entries, faults = build.navigation()
    assert not faults, "\n".join(faults)
    assert [next(iter(entry)) for entry in entries if isinstance(entry, dict)][:3] == ["Home", "How-to", "Reference"]


def test_navigation_follows_the_headings_of_a_readme(build, tmp_path):
    folder = tmp_path / "how-to"
    folder.mkdir()
    (folder / "README.md").write_text(
        "# How to\n\n- [a](a.md)\n\n## Read logs\n\n- [b](b.md#part), again [a](a.md)\n\nSpark:\n\n- [c](c.md)\n"
    )
    assert build.folder_navigation(folder) == [
        "how-to/README.md",
        "how-to/a.md",
        {"Read logs": ["how-to/b.md"]},
        {"Spark": ["how-to/c.md"]},
    ]


def test_page_that_no_readme_names_is_a_fault(build, tmp_path):
    folder = tmp_path / "how-to"
    folder.mkdir()
    (tmp_path / "index.md").write_text("# Home\n")
    (folder / "README.md").write_text("# How to\n")
    (folder / "lost.md").write_text("# Lost\n")
    _, faults = build.navigation(tmp_path)
    assert faults == ["docs/how-to/lost.md: add a link to this page to how-to/README.md, which makes the navigation"]


def test_rendered_links_that_lead_nowhere_are_faults(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "public_names", list)
    site = write(
        tmp_path / "site",
        index='<a href="other.html#here">x</a> <a href="other.html#gone">x</a> <a href="https://example.org/">x</a>',
        other='<h1 id="here">x</h1> <img src="missing.png"> <a href="../outside/">x</a> <a href="#here">x</a>',
    )
    assert build.check_pages(site) == [
        "index.html: other.html#gone: the page has no such anchor",
        "other.html: ../outside/ leads nowhere",
        "other.html: missing.png leads nowhere",
    ]


def test_role_that_was_not_rewritten_is_a_fault(build, tmp_path, monkeypatch):
    monkeypatch.setattr(build, "public_names", list)
    site = write(tmp_path / "site", index="<p>see :meth:<code>Log.scan</code></p>")
    assert build.check_pages(site) == ["index.html: a role was not rewritten: :meth:"]


def test_public_name_without_a_page_is_a_fault(build, tmp_path):
    assert build.public_names() == [name for name in kraftlog.__all__ if name != "__version__"]
    faults = build.check_pages(write(tmp_path / "site", index='<h2 id="kraftlog.Broker">Broker</h2>'))
    assert "kraftlog.Log: public and on no page" in faults
    assert "kraftlog.Broker: public and on no page" not in faults
