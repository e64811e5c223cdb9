#!/usr/bin/env python3
"""Checks README.md, docs and the other Markdown files: check.py MODE [--build DIR] [--long] [FILE ...]

blocks    Every fenced block names its language, and every sh block says where it can run. TOML, JSON, CSV, Python and
          sh are parsed. The options of millrace commands are looked up in --help, and ctest shows why a test
          fails. Prose is at most 120 columns wide.
includes  Every `#include <millrace/...>` that a document names compiles by itself, and so does a block with one.
links     Every relative link, every anchor and every path of the tree that the prose names exists, with or without its
          suffix, and so does a source file that backticks name without its folder.
run       Runs the `sh run` blocks as printed, each page's in order in a fresh folder. With --long runs the pages that
          have `sh long` blocks, and these blocks too. A page starts with small generated data sets in data/, and
          `build` leads to the build folder. A block with the tag file=PATH is written there, so that later blocks can
          use it.
spelling  Looks for the misspellings that codespell knows; exits with 77 where codespell is missing.
words     docs/reference/words.md explains every name that the sources of closing tables, wait breakdowns and verdicts
          list, each in the section of its kind, and every entry of a list links to a page that says more.
"""
import argparse
import ast
import collections
import csv
import functools
import json
import os
import pathlib
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
import tomllib

ROOT = pathlib.Path(__file__).resolve().parents[2]
SKIPPED = re.compile(r"\.|build|data$|runs$")  # folders at the top that hold no documents
NEEDS = {
    "data": "a data set that millrace does not generate",
    "free-threaded": "a free-threaded Python",
    "gpu": "a CUDA device",
    "hosts": "several machines",
    "hours": "more than a quarter of an hour",
    "matplotlib": "Python with matplotlib",
    "network": "downloads",
    "root": "the right to mount or install",
    "slurm": "a Slurm cluster",
    "torch": "Python with PyTorch or another loader",
    "tree": "the source tree and its build folder",
}
SET_UP = {"digits": ["digits", "--train", "6400", "--test", "1000"], "photos": ["photos", "--count", "64"],
          "objects": ["objects", "--train", "2000", "--test", "500"]}

WORDS = ROOT / "docs/reference/words.md"
# Names that the program prints: the file and the beginning of the definition that lists them, and the section of WORDS.
PRINTED = [
    ("measure/spans.h", "kSpanNames{", "Where a step's time goes"),
    ("measure/wait_breakdown.h", "kPartNames{", "What the trainer waited for"),
    ("study/analysis/bound.cpp", "kBoundNames{", "The verdict"),
    ("study/analysis/statistics.cpp", "std::string name_of(Verdict verdict) {", "Sweeps"),
    ("measure/data_loader/breakdown.h", "kPlaceNames{", "Watched loops"),
    ("measure/data_loader/clock.h", "kKindNames{", "Watched loops"),
    ("measure/data_loader/loop_timeline.h", "kLoopSpanNames{", "Watched loops"),
]

DESIGNS = {"device-pipeline.md"}  # pages on what is not built, whose files have no folder yet

Block = collections.namedtuple("Block", "file line language tags text")


def documents(names):
    """Every Markdown file of the source tree, or those that are named."""
    if names:
        return [pathlib.Path(name).resolve() for name in names]
    tops = [path for path in ROOT.iterdir() if not SKIPPED.match(path.name)]
    return sorted(path for top in tops for path in ([top] if top.is_file() else top.rglob("*"))
                  if path.suffix == ".md")


def split(path):
    """The blocks of a page, and its prose: every line outside them, with its number."""
    blocks, prose, fence = [], [], None
    for number, line in enumerate(path.read_text().splitlines(), 1):
        mark = re.match(r"( *)(`{3,})([^`]*)$", line)
        if fence is None and mark:
            fence, start, lines = mark, number, []
        elif fence is not None and mark and mark[2].startswith(fence[2]) and not mark[3].strip():
            words = fence[3].split() or [""]
            blocks.append(Block(path, start, words[0], words[1:], "\n".join(lines) + "\n"))
            fence = None
        elif fence is not None:
            lines.append(line.removeprefix(fence[1]))
        else:
            prose.append((number, line))
    if fence is not None:
        blocks.append(Block(path, start, "", ["unclosed"], ""))
    return blocks, prose


def file_of(block):
    """The file that a block is to be written to."""
    return block.tags[0][5:] if len(block.tags) == 1 and block.tags[0].startswith("file=") else None


class Problems:
    def __init__(self):
        self.count = 0

    def add(self, path, line, text):
        self.count += 1
        print(f"{path.relative_to(ROOT)}:{line}: {text}")


# --- blocks


def parse_sh(text):
    done = subprocess.run(["bash", "-n"], input=text, capture_output=True, text=True)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip().splitlines()[0])


def parse_csv(text):
    if len({len(row) for row in csv.reader(text.splitlines(), strict=True)}) > 1:
        raise ValueError("rows differ in length")


def parse_json_lines(text):
    for line in text.splitlines():
        json.loads(line)


PARSERS = {"sh": parse_sh, "toml": tomllib.loads, "json": json.loads, "jsonl": parse_json_lines, "csv": parse_csv,
           "python": ast.parse}
LANGUAGES = {*PARSERS, "c", "cmake", "cpp", "text"}


@functools.lru_cache(maxsize=None)
def help_of(program, *commands):
    return subprocess.run([program, *commands, "--help"], capture_output=True, text=True, check=True).stdout


def unknown_options(program, text):
    """Options of `millrace COMMAND` in a block that the command's --help does not list."""
    for line in text.replace("\\\n", " ").splitlines():
        try:
            words = shlex.split(line, comments=True)
        except ValueError:  # quotes that span lines; bash has parsed them
            continue
        starts = [i for i, word in enumerate(words) if word == "millrace" or word.endswith("/millrace")]
        for start in starts[:1]:
            commands, rest = [], words[start + 1:]
            listed = help_of(program)
            while rest and re.search(rf"^  {re.escape(rest[0])} ", listed.partition("Subcommands:")[2], re.M):
                commands.append(rest.pop(0))
                listed = help_of(program, *commands)
            end = next((i for i, word in enumerate(rest) if word in ("--", "|", "&&", ";", ">")), len(rest))
            options = [word.partition("=")[0] for word in rest[:end] if re.match(r"--?[a-z]", word)]
            allowed = listed + "--help --version"
            yield from (f"millrace {' '.join(commands)} has no option {option}" for option in options
                        if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", allowed))


def silent_ctest(text):
    """Commands in a block that run tests and would not show why one fails."""
    for line in text.replace("\\\n", " ").splitlines():
        for command in re.findall(r"\bctest\b[^&|;#]*", line):
            if not re.search(r"--output-on-failure|--verbose|-V\b|-N\b", command):
                yield f"{command.strip()}: a failure shows nothing; add --output-on-failure"


def tag_problem(block):
    if block.language not in LANGUAGES:
        return f"a block in the language {block.language!r}; expected one of {', '.join(sorted(LANGUAGES))}"
    if block.language != "sh":
        return f"only sh blocks take {block.tags}" if file_of(block) is None and block.tags else None
    if len(block.tags) != 1:
        return "a sh block takes one tag: run, long or needs=WHAT"
    tag = block.tags[0]
    if tag in ("run", "long") or (tag.startswith("needs=") and set(tag[6:].split(",")) <= NEEDS.keys()):
        return None
    return f"the tag {tag!r}; expected run, long or needs= with {', '.join(NEEDS)}"


def check_blocks(pages, problems, options):
    counts = collections.Counter()
    program = str(options.build / "millrace")
    for page in pages:
        blocks, prose = split(page)
        for block in blocks:
            counts[" ".join([block.language or "untagged", *block.tags])] += 1
            problem = tag_problem(block)
            if problem:
                problems.add(page, block.line, problem)
                continue
            try:
                PARSERS.get(block.language, str)(block.text)
            except (ValueError, SyntaxError, csv.Error) as error:
                problems.add(page, block.line, f"this {block.language} does not parse: {error}")
            for problem in unknown_options(program, block.text) if block.language == "sh" else ():
                problems.add(page, block.line, problem)
            for problem in silent_ctest(block.text) if block.language in ("sh", "text") else ():
                problems.add(page, block.line, problem)
        for number, line in prose:
            if len(line) > 120 and not line.startswith("|"):
                problems.add(page, number, f"{len(line)} columns; a line of prose has at most 120")
    for name, count in sorted(counts.items()):
        print(f"{count:4} {name}")


# --- includes


def check_includes(pages, problems, options):
    sources = {}
    for page in pages:
        blocks, prose = split(page)
        for block in blocks:
            if block.language == "cpp" and "#include <millrace/" in block.text:
                own = '#include "' in block.text  # needs a file of the page's
                text = "".join(re.findall(r"#include <.*\n", block.text)) if own else block.text
                sources.setdefault(text, (page, block.line))
        for number, line in prose:
            for include in re.findall(r"#include <millrace/[^>]+>", line):
                sources.setdefault(include + "\n", (page, number))
    for text, (page, line) in sources.items():
        command = [os.environ.get("CXX", "c++"), "-std=c++20", "-fsyntax-only", "-x", "c++", "-I", ROOT / "include", "-"]
        done = subprocess.run(command, input=text, capture_output=True, text=True)
        if done.returncode != 0:
            problems.add(page, line, f"this does not compile:\n{done.stderr}")
    print(f"{len(sources)} sources")


# --- links


def slugs(page):
    """The anchors that GitHub gives a page's headings."""
    seen = collections.Counter()
    for _, line in split(page)[1]:
        heading = re.match(r"#{1,6} +(.*)", line)
        if heading:
            text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
            yield slug if not seen[slug] else f"{slug}-{seen[slug]}"
            seen[slug] += 1
        yield from re.findall(r'<a (?:id|name)="([^"]+)"', line)


def named_paths(line, tops, sources, own):
    """The paths of a line, as (name, exists). `own` are the files that the page itself writes; None: any."""
    line = re.sub(r"\[[^\]]*\]\([^)]*\)", "", line)  # links are checked by themselves
    for name in re.findall(rf"(?<![\w./=-])((?:{'|'.join(tops)})/[\w./-]*\w)(?![\w*])", line):
        path = ROOT / name
        yield name, path.exists() or any(path.parent.glob(f"{path.name}.*"))
    for name in re.findall(r"`([\w-]+\.(?:cpp|h|hpp|cu|py|pyi))`", line):
        yield name, own is None or name in sources or name in own


def check_links(pages, problems, options):
    counts = collections.Counter()
    tops = [path for path in ROOT.iterdir() if path.is_dir() and not SKIPPED.match(path.name)]
    sources = {path.name for top in tops for path in top.rglob("*.*")}
    for page in pages:
        blocks, prose = split(page)
        own = None if page.name in DESIGNS else set(re.findall(r"[\w-]+\.\w+", " ".join(" ".join(block.tags) + block.text for block in blocks)))
        dated = re.match(r"\d{4}-", page.name) or page.name == "CHANGELOG.md"  # describes the tree of its day
        for number, line in prose:
            for name, exists in () if dated else named_paths(line, [top.name for top in tops], sources, own):
                counts["files named"] += 1
                if not exists and not re.search("[A-Z]{4}", name):  # NAME stands for a file
                    problems.add(page, number, f"{name} does not exist")
            line = re.sub(r"`[^`]*`", "", re.sub(r"\[`[^`]*`\]", "[]", line))
            for target in re.findall(r"\]\(<?([^)\s>]+)>?[^)]*\)|(?:src|srcset|href)=\"([^\"]+)\"", line):
                target = target[0] or target[1]
                if re.match(r"[a-z]+:", target):
                    counts["web links, not followed"] += 1
                    continue
                counts["links"] += 1
                name, _, anchor = target.partition("#")
                file = (page.parent / name).resolve() if name else page
                if not file.exists():
                    problems.add(page, number, f"the link to {target} leads nowhere")
                elif anchor and file.suffix == ".md":
                    counts["anchors"] += 1
                    if anchor not in slugs(file):
                        problems.add(page, number, f"{target}: no heading has this anchor")
    print(", ".join(f"{count} {name}" for name, count in counts.items()))


# --- run


def run_page(page, blocks, folder, build):
    """Runs blocks in order; the first one that fails ends the page."""
    env = {**os.environ, "PATH": f"{build}:{os.environ['PATH']}", "HOME": str(folder), "NO_COLOR": "1",
           "XDG_CONFIG_HOME": str(folder / ".config")}
    for block in blocks:
        if file_of(block) is not None:
            (folder / file_of(block)).write_text(block.text)
            continue
        with (folder / "output").open("w+") as output:
            try:
                status = subprocess.run(["bash", "-euo", "pipefail", "-c", block.text], cwd=folder, env=env,
                                        stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                                        timeout=900).returncode
            except subprocess.TimeoutExpired:
                status = "a timeout after 900 s"
            output.seek(0)
            if status != 0:
                yield block, f"the block ends with {status}:\n" + "".join(output.readlines()[-20:])
                return


def check_run(pages, problems, options):
    wanted = {"run", "long"} if options.long else {"run"}
    total, begin = 0, time.monotonic()
    with tempfile.TemporaryDirectory(prefix="millrace-docs-") as temporary:
        top = pathlib.Path(temporary)
        for kind, arguments in SET_UP.items():
            subprocess.run([options.build / "millrace", "data", "make", arguments[0], top / kind, *arguments[1:], "-q"],
                           check=True, stdout=subprocess.DEVNULL)
        for place, page in enumerate(pages):
            blocks = [block for block in split(page)[0] if wanted & {*block.tags} or file_of(block) is not None]
            count = sum(block.language == "sh" for block in blocks)
            if not any(("long" if options.long else "run") in block.tags for block in blocks):
                continue
            folder = top / f"page-{place}"
            (folder / "data").mkdir(parents=True)
            (folder / "build").symlink_to(options.build)
            for kind in SET_UP:  # a page that makes a set itself starts without it
                if not any(re.search(rf"data make {kind}\b", block.text) for block in blocks):
                    (folder / "data" / kind).symlink_to(top / kind)
            start = time.monotonic()
            for block, problem in run_page(page, blocks, folder, options.build):
                problems.add(page, block.line, problem)
            total += count
            print(f"{time.monotonic() - start:6.1f} s  {count:3} blocks  {page.relative_to(ROOT)}", flush=True)
            shutil.rmtree(folder)
    print(f"{time.monotonic() - begin:6.1f} s  {total:3} blocks in all")


def check_spelling(pages, problems, options):
    if shutil.which("codespell") is None:
        print("SPELLING NOT CHECKED: codespell is missing; install the package codespell")
        sys.exit(77)
    for line in subprocess.run(["codespell", *pages], capture_output=True, text=True).stdout.splitlines():
        problems.count += 1
        print(line.removeprefix(f"{ROOT}/"))


# --- words


def names_in(source, begin):
    """The texts between `begin` and the bracket that closes it; "-" stands for no name."""
    at = source.index(begin) + len(begin)
    depth, end = 1, at
    while depth:
        depth += {"{": 1, "(": 1, "}": -1, ")": -1}.get(source[end], 0)
        end += 1
    names = [name for name in re.findall(r'"([^"]*)"', source[at:end]) if name != "-"]
    if not names:
        raise ValueError(f"no names follow {begin!r}")
    return names


def explained(prose):
    """The words that each section of a page explains: in a list before the colon, in a table in all columns but the
    last. Also the lines of entries without a link."""
    words, unlinked, section, entries = collections.defaultdict(set), [], "", []
    for number, line in prose:
        if line.startswith("## "):
            section = line[3:]
        elif line.startswith("- "):
            entries.append((number, section, line))
        elif line.startswith("  ") and entries:
            entries[-1] = (*entries[-1][:2], entries[-1][2] + line)
        elif line.startswith("|"):
            words[section].update(re.findall(r"`([^`]+)`", line.strip("|").rpartition("|")[0]))
    for number, section, entry in entries:
        words[section].update(re.findall(r"[`*]+([^`*]+)[`*]+", entry.partition(": ")[0]))
        if "](" not in entry:
            unlinked.append(number)
    return words, unlinked


def word_problems(prose):
    """What is wrong with WORDS, as pairs of line and text."""
    words, unlinked = explained(prose)
    for number in unlinked:
        yield number, "this entry has no link to a page that says more"
    for file, begin, section in PRINTED:
        for name in names_in((ROOT / file).read_text(), begin):
            if name not in words[section]:
                yield 1, f"the section {section!r} does not explain {name!r}, a name in {file}"


def check_words(pages, problems, options):
    prose = split(WORDS)[1]
    for number, problem in word_problems(prose):
        problems.add(WORDS, number, problem)
    print(f"{sum(map(len, explained(prose)[0].values()))} words in {WORDS.relative_to(ROOT)}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    modes = {"blocks": check_blocks, "includes": check_includes, "links": check_links, "run": check_run,
             "spelling": check_spelling, "words": check_words}
    parser.add_argument("mode", choices=modes)
    parser.add_argument("--build", type=lambda name: pathlib.Path(name).resolve(), default=ROOT / "build")
    parser.add_argument("--long", action="store_true")
    parser.add_argument("files", nargs="*")
    options = parser.parse_intermixed_args()
    pages, problems = documents(options.files), Problems()
    modes[options.mode](pages, problems, options)
    print(f"{len(pages)} files, {problems.count} problems")
    sys.exit(problems.count > 0)


if __name__ == "__main__":
    main()
