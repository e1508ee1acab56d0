#!/usr/bin/env python3
"""Checks the rules of this repository that no compiler checks. Standard library only, a second or two.

    tests/tidy/tidy.py [ROOT]

prints one line for each finding (path:line: rule: what to do) and exits 1 if there is any. What is allowed where is
data, at the top: a new folder, a new library or an exception is a line there, so that a reviewer sees it.
"""

import os
import re
import sys
from pathlib import Path

# --- Who may include whom -------------------------------------------------------------------------------------------

ENGINE_LOW = ["engine/comm", "engine/kernels", "engine/data"]
ENGINE_MIDDLE = ENGINE_LOW + ["engine/nn", "engine/optim"]

# Folder of src/ -> the folders that it may include besides itself. Lower folders first.
INCLUDES = {
    "base": [],
    "model": ["base"],
    "cluster": ["base"],
    "telemetry": ["base"],
    "plan": ["base", "model", "cluster"],
    "planner": ["base", "model", "cluster", "telemetry", "plan"],
    "checkpoint": ["base", "model", "plan"],
    "engine/comm": ["base", "telemetry"],
    "engine/kernels": ["base", "telemetry"],
    "engine/data": ["base", "telemetry"],
    "engine/nn": ["base", "model", "plan", "engine/comm", "engine/kernels"],
    "engine/optim": ["base", "engine/kernels"],
    "engine/parallel": ["base", "model", "plan", "telemetry"] + ENGINE_MIDDLE,
    "engine/train": ["base", "model", "plan", "telemetry", "checkpoint", "engine/parallel"] + ENGINE_MIDDLE,
    "supervisor": ["base", "model", "cluster", "telemetry", "plan", "planner", "checkpoint"],
    "report": ["base", "model", "cluster", "telemetry", "plan", "planner"],
    "cli": [],  # filled below: everything
}
INCLUDES["cli"] = list(INCLUDES)

# A unit test may include what its folder may, and any folder of the same or a lower level.
LEVELS = [
    ["base"],
    ["model", "cluster", "telemetry"],
    ["plan"],
    ["planner", "checkpoint"],
    ["engine/comm", "engine/kernels", "engine/data"],
    ["engine/nn", "engine/optim"],
    ["engine/parallel"],
    ["engine/train"],
    ["supervisor", "report"],
    ["cli"],
]

# Folders inside a folder that must not see one another.
FORBIDDEN = [
    ("engine/kernels/reference", "engine/kernels/cpu", "the reference is the oracle: it stands alone"),
]

# Third-party headers: a pattern of the header, and of the files that may include it.
CODE = r"(src|tests|bench)/.*"
TESTS = r"tests/.*|bench/.*|.*_test\.cc|.*/test_\w+\.(?:h|cc)"  # test_*: what unit tests share
LIBRARIES = [
    (r"fmt/.*", CODE),
    (r"(gtest|gmock)/.*", TESTS),
    (r"benchmark/.*", r"bench/.*"),
    (r"nlohmann/.*", r"src/base/json\.cc"),
    (r"toml\+\+/.*", r"src/base/toml\.cc"),
    (r"CLI/.*", r"src/cli/.*"),
    (r"xxhash\.h", r"src/.*\.cc"),
    (r"(oneapi/dnnl/)?dnnl.*|omp\.h", r"src/engine/kernels/cpu/.*|bench/.*"),
    (r"hwy/.*", r"src/engine/kernels/cpu/.*"),
    (r"mpi\.h", r"src/engine/comm/mpi.*\.cc|bench/.*"),
    # The operating system. Everybody else goes through base/env.h.
    (r"(sys|linux|netinet)/.*|(unistd|fcntl|dirent|sched|pthread|signal|poll|spawn|dlfcn|cpuid|netdb|time)\.h",
     r"src/base/.*\.cc|src/engine/comm/.*\.cc|src/supervisor/.*\.cc|" + TESTS),
    (r"immintrin\.h|x86intrin\.h", r"src/engine/kernels/cpu/.*"),
]

# --- Calls with a better replacement --------------------------------------------------------------------------------

ENV = r"src/base/posix_env\.cc"
CLI = r"src/cli/.*"
PROCESS = r"src/base/child\.cc|src/(?:base|supervisor)/\w*process\w*\.cc"
# Rule, pattern (in code, never in comments or strings), files where it is allowed, replacement.
BANNED = [
    ("print", r"\b(?:std::)?(?:printf|fprintf|vprintf|puts|fputs|putchar)\s*\(|\bstd::(?:cout|cerr|clog)\b|"
              r"\bfmt::print\b", CLI + r"|src/report/.*|" + TESTS,
     "write to a Log (base/log.h) or return the text; standard output belongs to cli and report"),
    ("format", r"\b(?:std::)?v?sn?printf\s*\(|\bstd::[io]?stringstream\b", TESTS,
     "use fmt::format; read numbers with base/units.h or std::from_chars"),
    ("file", r"\b(?:std::)?(?:fopen|freopen)\s*\(|\bstd::[io]?fstream\b", ENV + "|" + TESTS,
     "use Env (base/env.h): open_reader, create_file, write_file_atomically"),
    ("filesystem", r"\bstd::filesystem\b", ENV + "|" + TESTS, "use Env (base/env.h) and its join_path"),
    ("clock", r"\b(?:steady|system|high_resolution)_clock\b|\bclock_gettime\b|\bgettimeofday\b|"
              r"\btime\s*\(\s*(?:nullptr|NULL|0)\s*\)|\bsleep_(?:for|until)\b|\b(?:usleep|nanosleep)\s*\(",
     ENV + r"|src/base/thread_clock\.cc|src/engine/comm/communicator\.h|" + TESTS, "use Env::now and Env::sleep (base/env.h), which a test can fake"),
    ("process", r"(?<![.>\w])(?:v?fork|posix_spawnp?|popen|execvp?e?|execlp?)\s*\(|\bstd::system\s*\(",
     ENV + "|" + PROCESS + "|" + TESTS, "use the supervisor's process shell"),
    ("environment", r"\b(?:std::)?(?:getenv|setenv|putenv)\s*\(", ENV + "|" + CLI + "|" + PROCESS + "|" + TESTS,
     "pass the value in; only cli reads the environment"),
    ("exit", r"\bstd::(?:_Exit|exit|quick_exit|abort|terminate)\s*\(|(?<![.>\w])_exit\s*\(",
     ENV + "|" + CLI + "|" + PROCESS + "|" + TESTS,
     "throw Error with an ExitCode (base/error.h); cli main ends the program"),
    ("random", r"\b(?:std::)?s?rand\s*\(|\bdrand48\b|\bstd::random_device\b|\bstd::\w+_distribution\b|"
               r"\bstd::(?:mt19937(?:_64)?|default_random_engine)\b", "",
     "use base/random.h: counter-based, the same on every layout and machine"),
    ("assert", r"(?<!\w)assert\s*\(", "", "use TRIREME_CHECK (base/check.h), which is on in release"),
    ("thread", r"\bstd::(?:jthread|thread|async)\b(?!::)",
     r"src/engine/(?:comm|kernels|train)/.*|src/supervisor/.*|src/telemetry/control_line\.cc|"
     r"src/base/(?:captured_output\.(?:cc|h)|stop_signals\.cc)|" + CLI + "|" + TESTS,
     "threads are started by engine/comm and engine/train; hand them the work"),
    ("allocation", r"\bstd::free\s*\(|\b(?:malloc|calloc|realloc|aligned_alloc|posix_memalign)\s*\(",
     r"src/engine/kernels/arena\.cc", "take it from the arena, which books it, or use a container"),
]
# In CMake files: flags that make bits depend on the machine that compiled.
BANNED_FLAGS = r"-march=|-mtune=|-ffast-math|-Ofast|-funsafe-math-optimizations|-ffp-contract=(?!off)"

MAX_COLUMNS = 120
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 70

# --- The source tree ------------------------------------------------------------------------------------------------


class Source:
    """A C++ file: `path` relative to the root, its `lines`, and `code`: the text without comments and literals."""

    def __init__(self, root, path):
        self.path = path
        self.text = (root / path).read_text(encoding="utf-8")
        self.lines = self.text.split("\n")
        self.code = strip(self.text)

    def includes(self):
        """(line number, '<' or '"', header) of each include."""
        for number, line in enumerate(self.lines, 1):
            found = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if found:
                yield number, found[1], found[2]


TOKENS = re.compile(
    r'//(?:[^\n\\]|\\.|\\\n)*|/\*.*?\*/'            # comments
    r'|R"([^()\\\s]{0,16})\(.*?\)\1"'               # raw strings
    r'|"(?:[^"\\\n]|\\.)*"'                         # strings
    r"|(?<![0-9a-fA-F])'(?:[^'\\\n]|\\.)+'",        # characters, but not the separators of 1'000
    re.DOTALL)


def strip(text):
    """Blanks comments and literals; lines stay where they are."""
    return TOKENS.sub(lambda found: re.sub(r"[^\n]", " ", found[0]), text)


def list_files(root, folders, suffixes):
    for folder in folders:
        for directory, below, names in os.walk(root / folder):
            below[:] = sorted(name for name in below if not name.startswith(".") and name != "build")
            for name in sorted(names):
                if name.endswith(suffixes):
                    yield (Path(directory) / name).relative_to(root).as_posix()


def folder_of(path):
    """src/engine/kernels/cpu/gemm.cc -> engine/kernels; None outside src/ or in an unknown folder."""
    parts = path.split("/")[1:-1] if path.startswith("src/") else []
    while parts and "/".join(parts) not in INCLUDES:
        parts.pop()
    return "/".join(parts) or None


def level_of(folder):
    return next(level for level, folders in enumerate(LEVELS) if folder in folders)


def allowed(pattern, path):
    return bool(pattern) and re.fullmatch(pattern, path) is not None


# --- Checks: each yields (path, line, rule, message) ----------------------------------------------------------------


def check_layers(source, paths):
    if source.path.startswith("src/") and folder_of(source.path) is None:
        yield source.path, 1, "folder", "this folder is not in the include table of tests/tidy/tidy.py"
    for number, kind, header in source.includes():
        if kind == "<":
            yield from check_library(source, number, header)
        elif "HWY_TARGET_INCLUDE" not in header:
            yield from check_own_include(source, number, header, paths)


def check_library(source, number, header):
    homes = [home for pattern, home in LIBRARIES if re.fullmatch(pattern, header)]
    if not homes and re.search(r"[/.+]", header):
        yield source.path, number, "library", f"<{header}> has no home: name one in LIBRARIES of tests/tidy/tidy.py"
    if homes and not any(allowed(home, source.path) for home in homes):
        yield source.path, number, "library", f"<{header}> belongs in {' or '.join(homes)}"


def check_own_include(source, number, header, paths):
    candidates = [f"{top}/{header}" for top in ("src", "tests", "bench") if f"{top}/{header}" in paths]
    if not candidates:
        libraries = [pattern for pattern, _ in LIBRARIES if re.fullmatch(pattern, header)]
        if libraries:
            yield from check_library(source, number, header)
        else:
            yield source.path, number, "include", f'"{header}" is no file; paths are written from src/'
        return
    home = folder_of(source.path)
    target = folder_of(candidates[0])
    if not source.path.startswith("src/"):
        return
    if allowed(TESTS, candidates[0]) and not allowed(TESTS, source.path):
        yield source.path, number, "layer", f'"{header}" is for tests; the program never includes it'
        return
    for inner, other, reason in FORBIDDEN:
        if source.path.startswith(f"src/{inner}/") and candidates[0].startswith(f"src/{other}/"):
            yield source.path, number, "layer", f"{inner} may not include {other}: {reason}"
    if home is None or target is None or target == home or target in INCLUDES[home]:
        return
    if allowed(TESTS, source.path) and level_of(target) <= level_of(home):
        return
    yield source.path, number, "layer", f'{home} may not include {target}; it may include: {", ".join(INCLUDES[home])}'


def check_header(source, paths):
    if source.path.endswith(".h"):
        again = source.path.endswith("-inl.h")  # such a header is included again for each instruction set
        if not again and "#pragma once" not in source.code:
            yield source.path, 1, "header", "put #pragma once before anything else"
        found = re.search(r"\busing\s+namespace\b", source.code)
        if found:
            yield source.path, line_of(source.code, found.start()), "header", "no using namespace in a header"
    elif source.path.endswith(".cc") and source.path[:-2] + "h" in paths:
        own = source.path[:-2].split("/", 1)[1] + "h"
        first = next(((number, header) for number, _, header in source.includes()), (1, ""))
        if first[1] != own and "HWY_TARGET_INCLUDE" not in source.text:
            yield source.path, first[0], "header", f'include "{own}" first: it shows that the header stands alone'


def check_banned(source):
    for rule, pattern, homes, replacement in BANNED:
        if allowed(homes, source.path):
            continue
        for found in re.finditer(pattern, source.code):
            yield source.path, line_of(source.code, found.start()), rule, f"{found[0].strip(' (')}: {replacement}"


def check_waits(source, sources):
    """Nobody waits in silence: a condition variable is waited for with a deadline."""
    beside = [source] + [sources[path] for path in [re.sub(r"\.cc$", ".h", source.path)] if path in sources]
    names = {name for one in beside for name in re.findall(r"\bstd::condition_variable(?:_any)?\s+(\w+)", one.code)}
    for name in names:
        for found in re.finditer(rf"\b{name}\.wait\s*\(", source.code):
            yield source.path, line_of(source.code, found.start()), "deadline", "use wait_for or wait_until"


def check_size(source):
    if len(source.lines) - 1 > MAX_FILE_LINES:
        yield source.path, MAX_FILE_LINES, "size", f"{len(source.lines) - 1} lines; files have {MAX_FILE_LINES} at most"
    for number, line in enumerate(source.lines, 1):
        if len(line) > MAX_COLUMNS:
            yield source.path, number, "size", f"{len(line)} columns; lines have {MAX_COLUMNS} at most"
        if line != line.rstrip() or "\t" in line:
            yield source.path, number, "blanks", "a tab, or blanks at the end of the line"
    for begin, end in functions(source.code):
        if end - begin + 1 > MAX_FUNCTION_LINES:
            yield (source.path, begin, "size",
                   f"{end - begin + 1} lines; functions have {MAX_FUNCTION_LINES} at most")


def functions(code):
    """(first, last line) of each function body, lambdas within counted with it. A heuristic on braces."""
    code = re.sub(r"^[ \t]*#(?:[^\n\\]|\\.|\\\n)*", lambda found: re.sub(r"[^\n]", " ", found[0]), code, flags=re.M)
    stack = []  # of ("scope" | "function" | "block", offset)
    statement = 0
    for found in re.finditer(r"[{};]", code):
        at = found.start()
        if code[at] == "{":
            head = code[statement:at]
            if any(kind != "scope" for kind, _ in stack):
                kind = "block"
            elif re.search(r"\b(?:namespace|extern|class|struct|union|enum)\b[^()]*$", head) or "(" not in head:
                kind = "scope"
            else:
                kind = "function"
            stack.append((kind, at))
        elif code[at] == "}" and stack:
            kind, begin = stack.pop()
            if kind == "function":
                yield line_of(code, begin), line_of(code, at)
        statement = at + 1


def line_of(text, offset):
    return text.count("\n", 0, offset) + 1


def check_build(root, sources):
    """Every .cc is named in a CMakeLists.txt, every header is included, no flag changes the bits."""
    named = set()
    for path in ["CMakeLists.txt", *list_files(root, ["src", "tests", "bench", "cmake"], ("CMakeLists.txt", ".cmake"))]:
        if not (root / path).exists():
            continue
        text = re.sub(r"#.*", "", (root / path).read_text(encoding="utf-8"))
        for name in re.findall(r"[\w./-]+\.cc\b", text):
            named.add(os.path.normpath(os.path.join(os.path.dirname(path), name)))
        for found in re.finditer(BANNED_FLAGS, text):
            yield path, line_of(text, found.start()), "flags", f"{found[0]} makes results depend on the machine"
    included = {header for source in sources.values() for _, kind, header in source.includes() if kind == '"'}
    for path in sources:
        if path.endswith(".cc") and path not in named:
            yield path, 1, "dead", "no CMakeLists.txt names this file"
        if path.endswith(".h") and path.split("/", 1)[1] not in included:
            yield path, 1, "dead", "nothing includes this header"


def check_labels(root, sources):
    """Tests that start threads, themselves or by a header of theirs, run under the thread sanitizer."""
    starts = next(pattern for rule, pattern, _, _ in BANNED if rule == "thread")
    threaded = {path for path, source in sources.items() if re.search(starts, source.code)}
    for path, source in sources.items():
        used = {path} | {f"{top}/{header}" for _, _, header in source.includes() for top in ("src", "tests")}
        if not path.endswith("_test.cc") or path.startswith("bench/") or not used & threaded:
            continue
        listing = next((folder / "CMakeLists.txt" for folder in (root / path).parents
                        if (folder / "CMakeLists.txt").exists()), None)
        if listing and not re.search(r"\bLABEL\s+(?:threads|long|outside)\b", listing.read_text(encoding="utf-8")):
            yield path, 1, "label", f"starts threads: give the tests of {listing.relative_to(root)} LABEL threads"


def check_links(root):
    """Relative links of the documents lead to files and headings that exist."""
    for path in [name for name in sorted(os.listdir(root)) if name.endswith(".md")] + list(
            list_files(root, ["docs", "examples", "src", "tests", "bench", "tools"], (".md",))):
        for number, line in prose(root / path):
            targets = re.findall(r"\]\(<?([^()\s<>]+(?:\([^()\s]*\))?)>?[^()]*\)", line)
            targets += re.findall(r"^\s*\[[^\]]+\]:\s*(\S+)", line)
            for target in targets:
                if re.match(r"[a-z][a-z0-9+.-]*:", target):
                    continue
                name, _, anchor = target.partition("#")
                file = root / path if not name else (root / path).parent / name
                if not file.exists():
                    yield path, number, "link", f"{target}: no such file"
                elif anchor and file.suffix == ".md" and anchor not in headings(file):
                    yield path, number, "link", f"{target}: no such heading"


def prose(file):
    """(line number, line) outside fenced blocks, inline code blanked."""
    fenced = False
    for number, line in enumerate(file.read_text(encoding="utf-8").split("\n"), 1):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        elif not fenced:
            yield number, re.sub(r"`[^`]*`", lambda found: "`" * len(found[0]), line)


def headings(file):
    """The anchors of a Markdown file, as the usual renderers make them."""
    seen = {}
    fenced = False
    for line in file.read_text(encoding="utf-8").split("\n"):
        if re.match(r"\s*(```|~~~)", line):
            fenced = not fenced
        found = None if fenced else re.match(r"#{1,6}\s+(.*?)\s*#*$", line)
        if found:
            title = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", found[1]).lower()
            slug = re.sub(r"[^\w\- ]", "", title).replace(" ", "-")
            seen[slug] = seen.get(slug, 0) + 1
            if seen[slug] > 1:
                seen[f"{slug}-{seen[slug] - 1}"] = 1
    return seen


def check(root):
    """All findings in the tree under `root`, and the number of C++ files read."""
    paths = list(list_files(root, ["src", "tests", "bench"], (".h", ".cc")))
    sources = {path: Source(root, path) for path in paths}
    findings = []
    for source in sources.values():
        findings += check_layers(source, sources)
        findings += check_header(source, sources)
        findings += check_banned(source)
        findings += check_waits(source, sources)
        findings += check_size(source)
    findings += check_build(root, sources)
    findings += check_labels(root, sources)
    findings += check_links(root)
    return sorted(findings), len(sources)


def main():
    root = Path(sys.argv[1] if len(sys.argv) > 1 else Path(__file__).resolve().parents[2])
    findings, files = check(root)
    for path, line, rule, message in findings:
        print(f"{path}:{line}: {rule}: {message}")
    print(f"tidy: {files} C++ files, {len(findings)} findings")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
