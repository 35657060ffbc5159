"""Build the documentation site from ``docs/`` and the docstrings, and fail on anything that a reader would miss.

    python .ci/site/build.py            writes target/docs/site, prints each fault with its place, exits 1 on any

The pages are copied to ``target/docs`` and the navigation is added to ``zensical.toml`` there: the order of the links in the
``README.md`` of each folder, grouped by its headings, is the order of the navigation, and a page that no README names
is a fault. Zensical's strict mode finds missing pages, anchors and API references. What it does not find is checked
here: warnings about docstrings (parameters that the signature does not have), links to files that are no pages, names
of ``kraftlog.__all__`` without documentation, and a role that no reference came of.
"""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
WORK = ROOT / "target" / "docs"
SETTINGS = Path(__file__).with_name("zensical.toml")
STYLES = Path(__file__).with_name("site.css")

# The folders of docs/ that come first, in this order; others follow by name.
FOLDERS = ("how-to", "reference", "behaviours", "design", "reports")
TITLES = {"how-to": "How-to"}
LAST_PAGES = ("changelog.md",)

_LINK = re.compile(r"\]\((?P<page>[\w./-]+\.md)(?:#[^)]*)?\)")
_HEADING = re.compile(r"^(?:##+ (?P<heading>.+)|(?P<label>[A-Z][^:`\[]{0,60}):)\s*$")
_WARNING = re.compile(r"^(?:griffe|mkdocstrings|autorefs): ")
_ANSI = re.compile(r"\x1b\[[0-9;]*m")

Navigation = list["str | dict[str, str | Navigation]"]


def navigation(docs: Path = DOCS) -> tuple[Navigation, list[str]]:
    """The navigation, and the faults found while it was read.

    Args:
        docs: The folder with the pages.
    """
    entries: Navigation = [{"Home": "index.md"}]
    folders = sorted(
        (path.parent.name for path in docs.glob("*/README.md")),
        key=lambda name: (FOLDERS.index(name) if name in FOLDERS else len(FOLDERS), name),
    )
    for folder in folders:
        entries.append({TITLES.get(folder, folder.capitalize()): folder_navigation(docs / folder)})
    entries += [page for page in LAST_PAGES if (docs / page).exists()]
    listed = set(pages_of(entries))
    faults = []
    for page in sorted(docs.rglob("*.md")):
        name = page.relative_to(docs).as_posix()
        if name not in listed:
            faults.append(
                f"docs/{name}: add a link to this page to {page.parent.name}/README.md, which makes the navigation"
            )
    return entries, faults


def folder_navigation(folder: Path) -> Navigation:
    """The pages of one folder in the order of its README, grouped by the README's headings."""
    pages: Navigation = [f"{folder.name}/README.md"]
    group: Navigation = pages
    seen = {"README.md"}
    for line in (folder / "README.md").read_text(encoding="utf-8").splitlines():
        if heading := _HEADING.match(line):
            group = []
            pages.append({heading["heading"] or heading["label"]: group})
        for match in _LINK.finditer(line):
            page = match["page"]
            if page not in seen and "/" not in page:
                seen.add(page)
                group.append(f"{folder.name}/{page}")
    return [entry for entry in pages if not isinstance(entry, dict) or all(entry.values())]


def pages_of(entries: Navigation) -> list[str]:
    """Every page of a navigation, in order."""
    found = []
    for entry in entries:
        if isinstance(entry, str):
            found.append(entry)
        else:
            for value in entry.values():
                found += [value] if isinstance(value, str) else pages_of(value)
    return found


def _toml(entries: Navigation) -> str:
    """Lists, tables and strings of the navigation as one TOML value."""
    parts = []
    for entry in entries:
        if isinstance(entry, str):
            parts.append(json.dumps(entry))
        else:
            parts += [
                f"{{ {json.dumps(name)} = {json.dumps(value) if isinstance(value, str) else _toml(value)} }}"
                for name, value in entry.items()
            ]
    return "[" + ", ".join(parts) + "]"


def stage(entries: Navigation) -> None:
    """Copy pages and settings to ``target/docs``."""
    shutil.rmtree(WORK, ignore_errors=True)
    shutil.copytree(DOCS, WORK / "docs")
    (WORK / "docs" / "assets").mkdir(exist_ok=True)
    shutil.copy(STYLES, WORK / "docs" / "assets")
    settings = SETTINGS.read_text(encoding="utf-8")
    first, rest = settings.split("[project.theme]", 1)
    (WORK / "zensical.toml").write_text(f"{first}nav = {_toml(entries)}\n\n[project.theme]{rest}", encoding="utf-8")


def run_zensical() -> list[str]:
    """Build strictly; return the faults."""
    program = Path(sysconfig.get_path("scripts")) / "zensical"
    if not program.exists():
        return ["zensical is not installed: pip install '.[docs]'"]
    done = subprocess.run(
        [program, "build", "--strict", "--clean"],
        cwd=WORK,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = _ANSI.sub("", done.stdout + done.stderr)
    faults = sorted({line for line in said.splitlines() if _WARNING.match(line)})
    if done.returncode:
        faults.append(said.split("Traceback (most recent call last)")[0].strip() or said.strip())
        faults += [line for line in said.splitlines() if line.startswith("RuntimeError") and "--strict" not in line]
    return faults


class Page(HTMLParser):
    """The links, the anchors and the text outside of code of a rendered page."""

    def __init__(self) -> None:
        super().__init__()
        self.targets: list[str] = []
        self.anchors: set[str] = set()
        self.prose: list[str] = []
        self._code_depth = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._code_depth += tag == "code"
        for name, value in attrs:
            if name == "id" and value:
                self.anchors.add(value)
            elif (tag, name) in {("a", "href"), ("link", "href"), ("img", "src"), ("script", "src")} and value:
                self.targets.append(value)

    def handle_endtag(self, tag: str) -> None:
        self._code_depth -= tag == "code"

    def handle_data(self, data: str) -> None:
        if not self._code_depth:
            self.prose.append(data)


def check_pages(site: Path) -> list[str]:
    """Faults of the rendered pages: links that lead nowhere, and roles that were not rewritten."""
    faults = []
    pages: dict[Path, Page] = {}
    for path in sorted(site.rglob("*.html")):
        pages[path] = page = Page()
        page.feed(path.read_text(encoding="utf-8"))
        if role := re.search(r":(?:attr|class|data|exc|func|meth|mod):", "".join(page.prose)):
            faults.append(f"{path.relative_to(site)}: a role was not rewritten: {role.group()}")
    for path, page in pages.items():
        if path.name == "404.html":
            continue  # it is served for any address: its links have no folder of their own
        for target in page.targets:
            parts = urlsplit(target)
            if parts.scheme or parts.netloc or target.startswith("//"):
                continue
            aim = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if aim.is_dir():
                aim /= "index.html"
            if not aim.exists():
                faults.append(f"{path.relative_to(site)}: {target} leads nowhere")
            elif parts.fragment and aim in pages and unquote(parts.fragment) not in pages[aim].anchors | {"__skip"}:
                faults.append(f"{path.relative_to(site)}: {target}: the page has no such anchor")
    anchors = {anchor for page in pages.values() for anchor in page.anchors}
    faults += [
        f"kraftlog.{name}: public and on no page" for name in public_names() if f"kraftlog.{name}" not in anchors
    ]
    return sorted(set(faults))


def public_names() -> list[str]:
    """The functions and classes of ``kraftlog.__all__``, read without importing the package."""
    for node in ast.parse((ROOT / "python" / "kraftlog" / "__init__.py").read_text(encoding="utf-8")).body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            return [name for name in ast.literal_eval(node.value) if not name.startswith("__")]
    return []


def main() -> int:
    started = time.monotonic()
    entries, faults = navigation()
    stage(entries)
    faults += run_zensical()
    site = WORK / "site"
    if site.is_dir():
        faults += check_pages(site)
    for fault in faults:
        print(fault, file=sys.stderr)
    seconds = time.monotonic() - started
    if faults:
        print(f"the site has {len(faults)} faults ({seconds:.1f} s)", file=sys.stderr)
        return 1
    print(f"target/docs/site/index.html: {len(list(site.rglob('*.html')))} pages in {seconds:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
