#!/usr/bin/env python3
"""Prints the size of the C++ code as Markdown: code_size.py [--above LINES] [--library FILE] [COMMIT...]

One column per commit (default: the working tree): files, lines, and the longest function outside tests. --above also
lists the working tree's functions of more than LINES lines. --library counts the symbols that a built library exports.
Functions are found by their braces: constructors, lambdas inside them and comments belong to the function around them.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[1]
SUFFIXES = {".cpp", ".h", ".hpp", ".cu"}
SKIPPED = re.compile(r"\.|build|data$|runs$")  # folders at the top that hold no sources
# A comment, a raw string, a string, a character; digit separators are no characters.
TOKENS = re.compile(r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'',
                    re.S)
NO_FUNCTION = re.compile(r"(if|for|while|switch|catch|do|else|namespace|class|struct|enum|union|extern)\b")

Function = collections.namedtuple("Function", "lines name file line")


def blank(text):
    """Replaces comments and literals by blanks, so that only the code's own braces are left."""
    text = TOKENS.sub(lambda match: re.sub(r"[^\n]", " ", match[0]), text)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda match: re.sub(r"[^\n]", " ", match[0]), text, flags=re.M)


def name_of(head):
    """The name in the head of a function, or None for another brace: a type, a namespace, an initialiser."""
    head = re.sub(r"\btemplate\s*<.*?>\s*(?=\w)|\brequires\s*\(.*?\)|\[\[.*?\]\]|__attribute__\s*\(\(.*?\)\)|alignas\(\w+\)",
                  "", head.strip(), flags=re.S)
    before, parenthesis, _ = head.partition("(")
    name = re.search(r"(?:[\w~]+(?:<[^()]*>)?::)*(?:operator\s*\S+|~?\w+)\s*$", before)
    if not parenthesis or not name or NO_FUNCTION.match(head) or head.endswith(("=", ",", "(", "return")):
        return None
    return re.sub(r"\s+", "", name[0]) or None


def functions_in(file, text):
    """The outermost functions of a file."""
    text = blank(text)
    found, stack = [], []  # stack: the name of a brace's function or None, and its start
    start = 0  # of the statement
    parentheses = 0
    inside = 0  # braces of functions around this place
    for match in re.finditer(r"[{}();]", text):
        mark, place = match[0], match.start()
        if mark in "()":
            parentheses += 1 if mark == "(" else -1
        elif mark == "{":
            name = None if inside or parentheses else name_of(text[start:place])
            stack.append((name, start, parentheses))
            inside += name is not None
            if name is None and not inside and re.match(r"\s*(inline\s+)?(namespace|class|struct|enum|union|extern)\b",
                                                        re.sub(r"template\s*<.*?>\s*(?=\w)", "", text[start:place])):
                start = place + 1
            parentheses = 0
        elif mark == "}" and stack:
            name, begin, parentheses = stack.pop()
            rest = text[place + 1:place + 200].lstrip()
            if name is not None:
                inside -= 1
                if rest.startswith(("{", ",")):  # an initialiser of a constructor: the body follows
                    continue
                first = begin + len(text[begin:]) - len(text[begin:].lstrip())
                lines = text.count("\n", first, place) + 1
                found.append(Function(lines, name, file, text.count("\n", 0, first) + 1))
            if not inside and not parentheses and not rest.startswith(("{", ",", ")", ";", ".")):
                start = place + 1
        elif mark == ";" and not parentheses and not inside:
            start = place + 1
    return found


def sources(folder):
    """The C++ files of a tree, and their texts."""
    tops = [path for path in folder.iterdir() if path.is_dir() and not SKIPPED.match(path.name)]
    for top in tops:
        for path in sorted(top.rglob("*")):
            if path.suffix in SUFFIXES and path.is_file():
                yield str(path.relative_to(folder)), path.read_text(errors="replace")


def measure(folder):
    rows, functions, files = {}, [], dict(sources(folder))
    own = {name: text for name, text in files.items() if not name.startswith("tests/")}
    lines = {name: text.count("\n") for name, text in own.items()}
    for name, text in own.items():
        functions += functions_in(name, text)
    functions.sort(reverse=True)
    rows["files outside tests"] = len(own)
    rows["lines outside tests"] = sum(lines.values())
    rows["files of fewer than 80 lines"] = sum(count < 80 for count in lines.values())
    rows["files of more than 600 lines"] = sum(count > 600 for count in lines.values())
    longest = functions[0]
    rows["longest function"] = f"`{longest.name}` in `{longest.file}`, {longest.lines} lines"
    rows["functions of more than 80 lines"] = sum(one.lines > 80 for one in functions)
    rows["files of tests"] = len(files) - len(own)
    rows["lines of tests"] = sum(text.count("\n") for name, text in files.items() if name not in own)
    return rows, functions


def exported(library):
    """The number of symbols that a library defines and exports."""
    table = subprocess.run(["nm", "--dynamic", "--defined-only", library], check=True, capture_output=True, text=True)
    return len(table.stdout.splitlines())


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--above", type=int, metavar="LINES")
    parser.add_argument("--library", type=pathlib.Path, metavar="FILE")
    parser.add_argument("commits", nargs="*", metavar="COMMIT")
    options = parser.parse_args()
    columns = {}
    for commit in options.commits:
        with tempfile.TemporaryDirectory() as folder:
            archive = subprocess.run(["git", "-C", ROOT, "archive", commit], check=True, capture_output=True).stdout
            subprocess.run(["tar", "-x", "-C", folder], input=archive, check=True)
            columns[commit] = measure(pathlib.Path(folder))[0]
    rows, functions = measure(ROOT)
    columns["working tree"] = rows
    print("| | " + " | ".join(columns) + " |\n|" + " --- |" * (len(columns) + 1))
    for row in rows:
        print(f"| {row} | " + " | ".join(f"{column[row]:,}" if isinstance(column[row], int) else column[row]
                                                 for column in columns.values()) + " |")
    if options.library:
        print(f"\n{options.library.name} exports {exported(options.library):,} symbols")
    if options.above:
        print()
        for one in functions:
            if one.lines > options.above:
                print(f"{one.lines:4}  {one.name}  {one.file}:{one.line}")


if __name__ == "__main__":
    main()
