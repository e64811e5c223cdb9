"""Checks which symbols the libraries and the program define, from their symbol tables.

    symbols.py check --build BUILD --headers include/millrace LIBRARY FILE...
    symbols.py self-test --compiler c++

`check` reports, of LIBRARY (the public one) and the other files,
- a strong symbol that two of them define, exported or not: code or state that exists twice in a process;
- an exported weak symbol of the namespace millrace that two of them define: the dynamic linker takes one for both;
- writable data of an inline function or variable of that namespace in two of them: state that exists twice;
- an exported symbol directly in the namespace millrace that include/millrace does not declare, or that another file
  than LIBRARY defines.

A linked file does not tell hidden strong symbols from hidden weak ones, so the object files in BUILD do. `self-test`
compiles small libraries, with one defect each and without any, and compares what `check` reports.
"""
import argparse
import collections
import pathlib
import re
import subprocess
import sys
import tempfile

Symbol = collections.namedtuple("Symbol", "name type bind section")

ROOMS = {"base", "measure", "recipe", "plugins", "pipeline", "augment", "probe", "train", "study", "tools"}
# Symbols that the linker and the C start-up files define in every linked file.
OF_THE_LINKER = {"_init", "_fini", "_end", "_edata", "_etext", "end", "edata", "etext", "__bss_start", "_start",
                 "__data_start", "data_start", "__dso_handle", "__TMC_END__", "_IO_stdin_used"}
WRITABLE = {".data", ".bss", ".tdata", ".tbss"}
# millrace.hpp's inline code: each plugin and the library have hidden copies of their own.
PLUGIN_CODE = "plugin_v1"


def output_of(*command):
    return subprocess.run([str(part) for part in command], check=True, capture_output=True, text=True,
                          errors="replace").stdout


def symbols_of(file):
    """Returns the symbols that a file defines: all, and the exported ones. Leaves out copies of another library's
    data, because the dynamic linker makes both use the copy."""
    sections = dict(re.findall(r"^\s*\[\s*(\d+)\]\s+(\S+)", output_of("readelf", "-SW", file), re.M))
    copies = {line.split()[4].split("@")[0] for line in output_of("readelf", "-rW", file).splitlines()
              if re.search(r"\bR_\w+_COPY\b", line)}
    tables = {".symtab": [], ".dynsym": []}
    for line in output_of("readelf", "-sW", file).splitlines():
        if heading := re.match(r"Symbol table '(\S+)'", line):
            table = tables[heading.group(1)]
        part = line.split()  # number, value, size, type, bind, visibility, section, name
        if len(part) < 8 or not part[0][:-1].isdigit() or part[6] == "UND" or part[3] in ("FILE", "SECTION"):
            continue
        name = part[7].split("@")[0]
        if name not in copies and name not in OF_THE_LINKER:
            table.append(Symbol(name, part[3], part[4], sections.get(part[6], part[6])))
    return tables[".symtab"], tables[".dynsym"]


def path_in_millrace(name):
    """Returns the names inside the namespace millrace that a mangled name lists: ["base", "printable"]. Returns None
    for a symbol elsewhere."""
    prefix = re.match(r"_Z(?:T[VTISC]|Th[n\d]+_|GV|GR|Z)*N[VKRO]*8millrace", name)
    if prefix is None:
        return None
    path, rest = [], name[prefix.end():]
    while length := re.match(r"\d+", rest):
        end = length.end() + int(length.group())
        path.append(rest[length.end():end])
        rest = rest[end:]
    return path


class Headers:
    """The functions and types that the headers of a folder declare."""

    def __init__(self, folder):
        text = "\n".join(re.sub(r"//.*", "", file.read_text()) for file in sorted(folder.glob("*.h*")))
        self.bodies = {}
        outside = []
        end = 0
        for found in re.finditer(r"\b(?:class|struct|enum)\s+(?:class\s+)?(?:MILLRACE_\w+\s+)?(\w+)[^;{}()]*{", text):
            if found.start() < end:  # nested in the previous type
                continue
            outside.append(text[end:found.start()])
            depth, end = 1, found.end()
            while depth > 0:
                depth += {"{": 1, "}": -1}.get(text[end], 0)
                end += 1
            self.bodies[found.group(1)] = text[found.end():end]
        self.functions = set(re.findall(r"\b(\w+)\(", "".join(outside) + text[end:]))

    def declare(self, path):
        if len(path) < 2:
            return path != [] and (path[0] in self.functions or path[0] in self.bodies)
        return re.search(rf"\b{path[1]}\b", self.bodies.get(path[0], "")) is not None


def in_two(files, wanted):
    """Returns {name: files} for the wanted symbols that more than one file defines. `files` maps a file to symbols."""
    owners = collections.defaultdict(set)
    for file, symbols in files.items():
        for symbol in symbols:
            if wanted(symbol):
                owners[symbol.name].add(file)
    return {name: " and ".join(sorted(all)) for name, all in owners.items() if len(all) > 1}


def check(build, headers, files):
    """Returns (findings, exports): lines, and per file the numbers of public and of private symbols."""
    objects = [symbol for file in sorted(build.rglob("*.o")) if not {"tests", "bench"} & set(file.parts)
               for symbol in symbols_of(file)[0]]
    strong = {symbol.name for symbol in objects if symbol.bind == "GLOBAL"}
    weak = {symbol.name for symbol in objects if symbol.bind in ("WEAK", "UNIQUE")}
    every, exported = {}, {}
    for file in files:
        every[file.name], exported[file.name] = symbols_of(file)
        if not every[file.name]:
            raise SystemExit(f"{file}: its symbols are stripped; build without -s")
    if not strong & {symbol.name for symbol in every[files[0].name]}:
        raise SystemExit(f"{build}: no object file of {files[0].name} lies there")

    findings = []

    def report(what, names):
        findings.extend(f"{what}: {name} in {where}" for name, where in sorted(names.items()))

    report("strong symbol defined twice", in_two(every, lambda s: s.name in strong)
           | in_two(exported, lambda s: s.bind == "GLOBAL"))
    report("weak symbol exported twice", in_two(
        exported, lambda s: s.bind in ("WEAK", "UNIQUE") and path_in_millrace(s.name) is not None))
    report("writable data of inline code in two files", in_two(
        every, lambda s: s.name in weak and s.section in WRITABLE and s.type in ("OBJECT", "TLS")
        and (path_in_millrace(s.name) or [PLUGIN_CODE])[0] != PLUGIN_CODE and not s.name.startswith("_ZGV")))
    declared = Headers(headers)
    exports = {}
    for number, file in enumerate(files):
        paths = {symbol.name: path_in_millrace(symbol.name) for symbol in exported[file.name]}
        private = [name for name, path in paths.items()
                   if name.startswith("millrace_") or path and path[0] in ROOMS]
        public = {name: path for name, path in paths.items() if path is not None and name not in private}
        exports[file.name] = (len(public), len(private))
        if number > 0:
            report("public symbol outside of the public library", {name: file.name for name in public})
        report("public symbol that no public header declares",
               {name: file.name for name, path in public.items() if not declared.declare(path)})
    readable = subprocess.run(["c++filt"], input="\n".join(findings), check=True, capture_output=True, text=True)
    return readable.stdout.splitlines(), exports


def run_check(args):
    findings, exports = check(args.build, args.headers, args.files)
    for file, (public, private) in exports.items():
        print(f"{file}: {public} public and {private} private symbols exported")
    print("\n".join(findings))
    return 1 if findings else 0


# --- self-test

# Beginning of both libraries of a case.
COMMON = """
#define MILLRACE_EXPORT __attribute__((visibility("default")))
#define KEPT __attribute__((used))
namespace millrace {
MILLRACE_EXPORT int answer();
struct MILLRACE_EXPORT Known { int known(); int unknown(); };
namespace base { KEPT inline int hidden_inline() { return 1; } }
}
"""
HEADER = COMMON.replace(" int unknown();", "")
ANSWER = "int millrace::answer() { return base::hidden_inline(); }\n"
USER = "int user() { return millrace::answer() + millrace::base::hidden_inline(); }\n"

# name: (in the public library, in the other one, in both, the only finding or None)
CASES = {
    "sound": ("int millrace::Known::known() { return 1; }"
              "namespace millrace::base { MILLRACE_EXPORT int level() { return 1; } }", "", "", None),
    "hidden strong": ("", "", "namespace millrace::train { KEPT int twice() { return 2; } }",
                      "strong symbol defined twice: millrace::train::twice() in a.so and b.so"),
    "strong C": ("", "", 'extern "C" MILLRACE_EXPORT int twice_c() { return 2; }',
                 "strong symbol defined twice: twice_c in a.so and b.so"),
    "exported weak": ("", "", "namespace millrace::train { MILLRACE_EXPORT KEPT inline int inlined() { return 2; } }",
                      "weak symbol exported twice: millrace::train::inlined() in a.so and b.so"),
    "state": ("", "", "namespace millrace::base { KEPT inline int& count() { static int kept; return ++kept, kept; } }",
              "writable data of inline code in two files: millrace::base::count()::kept in a.so and b.so"),
    "inline variable": ("", "", "namespace millrace::base { KEPT inline int global = 1; }",
                        "writable data of inline code in two files: millrace::base::global in a.so and b.so"),
    "undeclared function": ("namespace millrace { MILLRACE_EXPORT int secret() { return 1; } }", "", "",
                            "public symbol that no public header declares: millrace::secret() in a.so"),
    "undeclared member": ("int millrace::Known::unknown() { return 1; }", "", "",
                          "public symbol that no public header declares: millrace::Known::unknown() in a.so"),
    "elsewhere": ("", "int millrace::Known::known() { return 1; }", "",
                  "public symbol outside of the public library: millrace::Known::known() in b.so"),
}


def findings_of_case(compiler, folder, first, second, both):
    (folder / "include").mkdir(parents=True)
    (folder / "include" / "answer.h").write_text(HEADER)
    files = []
    for name, text in (("a", ANSWER + first), ("b", USER + second)):
        (folder / f"{name}.cpp").write_text(COMMON + both + "\n" + text + "\n")
        flags = ["-std=c++20", "-fPIC", "-fvisibility=hidden", "-fvisibility-inlines-hidden"]
        output_of(compiler, *flags, "-c", folder / f"{name}.cpp", "-o", folder / f"{name}.o")
        output_of(compiler, "-shared", folder / f"{name}.o", "-o", folder / f"{name}.so")
        files.append(folder / f"{name}.so")
    return check(folder, folder / "include", files)[0]


def self_test(args):
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (first, second, both, expected) in CASES.items():
            case = pathlib.Path(folder, name.replace(" ", "-"))
            findings = findings_of_case(args.compiler, case, first, second, both)
            if findings != ([expected] if expected else []):
                failed += 1
                print(f"{name}: expected {expected}, found {findings}")
    print(f"{len(CASES) - failed} of {len(CASES)} cases as expected")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    checking = commands.add_parser("check")
    checking.add_argument("--build", type=pathlib.Path, required=True)
    checking.add_argument("--headers", type=pathlib.Path, required=True)
    checking.add_argument("files", type=pathlib.Path, nargs="+")
    checking.set_defaults(run=run_check)
    testing = commands.add_parser("self-test")
    testing.add_argument("--compiler", default="c++")
    testing.set_defaults(run=self_test)
    args = parser.parse_args()
    return args.run(args)


if __name__ == "__main__":
    sys.exit(main())
