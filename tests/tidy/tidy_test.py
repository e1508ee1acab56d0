#!/usr/bin/env python3
"""Tests of tidy.py: each plants one violation in a small tree and requires that it is found, at its line."""

import tempfile
import unittest
from pathlib import Path

import tidy

CMAKE = "add_component(base SOURCES a.cc TESTS a_test.cc)\n"
# A tree without findings.
CLEAN = {
    "CMakeLists.txt": "add_subdirectory(src)\n",
    "README.md": "# Title\n\nSee [the layers](docs/layers.md#who-includes-whom).\n",
    "docs/layers.md": "# Layers\n\n## Who includes whom?\n\nBack to [the start](../README.md).\n",
    "src/base/CMakeLists.txt": CMAKE,
    "src/base/a.h": "#pragma once\n\n#include <string>\n\n#include <fmt/format.h>\n\nint f(int a);\n",
    "src/base/a.cc": '#include "base/a.h"\n\nint f(int a) { return a; }\n',
    "src/base/a_test.cc": '#include "base/a.h"\n\n#include <gtest/gtest.h>\n\nTEST(A, F) { EXPECT_EQ(f(1), 1); }\n',
}


def findings(files):
    """(path, line, rule) of each finding in the clean tree with `files` laid over it."""
    with tempfile.TemporaryDirectory() as folder:
        for path, text in {**CLEAN, **files}.items():
            file = Path(folder) / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text, encoding="utf-8")
        return [finding[:3] for finding in tidy.check(Path(folder))[0]]


def source(path, text):
    """One more .cc file, named in its folder's CMakeLists.txt."""
    folder, name = path.rsplit("/", 1)
    cmake = CLEAN.get(f"{folder}/CMakeLists.txt", "") + f"add_component(x SOURCES {name})\n"
    return {path: text, f"{folder}/CMakeLists.txt": cmake}


class TidyTest(unittest.TestCase):
    def expect(self, files, *expected):
        self.assertEqual(findings(files), list(expected))

    def expect_code(self, path, code, rule):
        """`code` on line 3 of the file breaks `rule` and nothing else."""
        self.expect(source(path, f"\n\n{code}\n"), (path, 3, rule))

    def test_clean_tree_has_no_findings(self):
        self.expect({})

    def test_this_repository_names_every_level(self):
        self.assertEqual(sorted(sum(tidy.LEVELS, [])), sorted(tidy.INCLUDES))
        for folder, below in tidy.INCLUDES.items():
            for other in below:
                self.assertLessEqual(tidy.level_of(other), tidy.level_of(folder), (folder, other))

    def test_lower_folder_includes_higher(self):
        self.expect({"src/plan/p.h": "#pragma once\n", **source("src/base/b.cc", '#include "plan/p.h"\n')},
                    ("src/base/b.cc", 1, "layer"))

    def test_folders_of_one_level_include_each_other(self):
        self.expect({"src/engine/comm/c.h": "#pragma once\n",
                     **source("src/engine/kernels/cpu/k.cc", '\n#include "engine/comm/c.h"\n')},
                    ("src/engine/kernels/cpu/k.cc", 2, "layer"))

    def test_supervisor_includes_engine(self):
        self.expect({"src/engine/train/t.h": "#pragma once\n",
                     **source("src/supervisor/s.cc", '#include "engine/train/t.h"\n')},
                    ("src/supervisor/s.cc", 1, "layer"))

    def test_cli_includes_everything(self):
        self.expect({"src/engine/train/t.h": "#pragma once\n", **source("src/cli/c.cc", '#include "engine/train/t.h"\n')})

    def test_unit_test_may_include_its_level(self):
        self.expect({"src/engine/comm/c.h": "#pragma once\n",
                     **source("src/engine/kernels/k_test.cc", '#include "engine/comm/c.h"\n')})

    def test_unit_test_includes_higher(self):
        self.expect({"src/plan/p.h": "#pragma once\n", **source("src/model/m_test.cc", '#include "plan/p.h"\n')},
                    ("src/model/m_test.cc", 1, "layer"))

    def test_reference_kernel_includes_cpu_kernel(self):
        self.expect({"src/engine/kernels/cpu/k.h": "#pragma once\n",
                     **source("src/engine/kernels/reference/r.cc", '#include "engine/kernels/cpu/k.h"\n')},
                    ("src/engine/kernels/reference/r.cc", 1, "layer"))

    def test_source_includes_test_code(self):
        self.expect({"tests/help.h": "#pragma once\n", **source("src/base/b.cc", '#include "help.h"\n')},
                    ("src/base/b.cc", 1, "layer"))
        self.expect({"src/base/test_help.h": "#pragma once\n#include <gtest/gtest.h>\n",
                     **source("src/base/b.cc", '#include "base/test_help.h"\n')}, ("src/base/b.cc", 1, "layer"))

    def test_unit_tests_share_headers(self):
        self.expect({"src/base/test_help.h": "#pragma once\n#include <gtest/gtest.h>\n",
                     **source("src/base/b_test.cc", '#include "base/test_help.h"\n')})

    def test_unknown_folder(self):
        self.expect(source("src/misc/m.cc", "\n"), ("src/misc/m.cc", 1, "folder"))

    def test_include_of_no_file(self):
        self.expect_code("src/base/b.cc", '#include "../base/a.h"', "include")

    def test_library_outside_its_home(self):
        for header in ["nlohmann/json.hpp", "dnnl.hpp", "oneapi/dnnl/dnnl.h", "hwy/highway.h", "mpi.h", "CLI/CLI.hpp",
                       "toml++/toml.h", "omp.h", "gtest/gtest.h", "immintrin.h"]:
            self.expect_code("src/plan/p.cc", f"#include <{header}>", "library")

    def test_library_in_its_home(self):
        self.expect(source("src/base/json.cc", "#include <nlohmann/json.hpp>\n"))
        self.expect(source("src/engine/kernels/cpu/gemm.cc", "#include <dnnl.hpp>\n"))
        self.expect(source("src/engine/comm/mpi_communicator.cc", "#include <mpi.h>\n"))

    def test_library_without_home(self):
        self.expect_code("src/base/b.cc", "#include <boost/any.hpp>", "library")

    def test_operating_system_outside_its_home(self):
        self.expect_code("src/plan/p.cc", "#include <sys/mman.h>", "library")

    def test_header_without_guard(self):
        self.expect({"src/base/b.h": "int g();\n", **source("src/base/b.cc", '#include "base/b.h"\n')},
                    ("src/base/b.h", 1, "header"))

    def test_using_namespace_in_header(self):
        self.expect({"src/base/b.h": "#pragma once\nusing namespace std;\n",
                     **source("src/base/b.cc", '#include "base/b.h"\n')}, ("src/base/b.h", 2, "header"))

    def test_own_header_comes_first(self):
        self.expect({"src/base/b.h": "#pragma once\n",
                     **source("src/base/b.cc", '#include <string>\n#include "base/b.h"\n')},
                    ("src/base/b.cc", 1, "header"))

    def test_banned_calls(self):
        for rule, code in [
                ("print", 'void f() { printf("a"); }'), ("print", "auto& out = std::cout;"),
                ("format", "char b[9]; int n = snprintf(b, 9, b);"), ("file", "std::ifstream in(path);"),
                ("file", 'auto* f = fopen("a", "r");'), ("filesystem", "std::filesystem::remove(p);"),
                ("clock", "auto t = std::chrono::steady_clock::now();"), ("clock", "std::this_thread::sleep_for(t);"),
                ("process", "int p = fork();"), ("environment", 'auto* e = std::getenv("A");'),
                ("exit", "void f() { std::exit(1); }"), ("random", "int r = rand();"), ("random", "std::mt19937 r;"),
                ("assert", "void f() { assert(true); }"), ("thread", "std::jthread t(f);"),
                ("allocation", "void* p = malloc(8);")]:
            with self.subTest(code):
                self.expect_code("src/plan/p.cc", code, rule)

    def test_what_only_looks_banned(self):
        self.expect(source("src/plan/p.cc", '''// printf("a") and std::cout
/* std::exit(1);
   rand() */
const char* text = "printf(1) \\" rand()";
const char* raw = R"(malloc(1) " rand())";
const int thousand = 1'000 + my_printf(2) + worker.fork();
static_assert(sizeof(int) == 4);
unsigned n = std::thread::hardware_concurrency();
'''))

    def test_banned_calls_in_their_homes(self):
        self.expect(source("src/base/posix_env.cc", "std::ifstream in; auto t = std::chrono::steady_clock::now();\n"))
        self.expect(source("src/cli/c.cc", "void f() { std::cout << 1; }\n"))

    def test_wait_without_deadline(self):
        self.expect({"src/base/b.h": "#pragma once\nstruct B {\n  std::condition_variable ready_;\n};\n",
                     **source("src/base/b.cc", '#include "base/b.h"\nvoid f() { ready_.wait(lock); }\n')},
                    ("src/base/b.cc", 2, "deadline"))

    def test_long_line(self):
        self.expect(source("src/base/b.cc", "// " + 117 * "x" + "\n// " + 118 * "x" + "\n"),
                    ("src/base/b.cc", 2, "size"))

    def test_blanks(self):
        self.expect(source("src/base/b.cc", "int a; \n\tint b;\n"), ("src/base/b.cc", 1, "blanks"),
                    ("src/base/b.cc", 2, "blanks"))

    def test_long_file(self):
        self.expect(source("src/base/b.cc", 500 * "\n"))
        self.expect(source("src/base/b.cc", 501 * "\n"), ("src/base/b.cc", 500, "size"))

    def test_long_function(self):
        def function(head, lines):
            body = "".join(f"  if (a == {i}) {{ b = '{{'; }}\n" for i in range(lines - 2))
            return f"namespace x {{\n#define M(a) \\\n  if (a) {{\nstruct S {{\n{head} {{\n{body}}}\n}};\n}}  // namespace x\n"

        for head in ["int f(int a)", "  S() : a_{1}, b_(2)", "TEST(A, B)", "auto f() -> std::vector<int>"]:
            with self.subTest(head):
                self.expect(source("src/base/b.cc", function(head, 70)))
                self.expect(source("src/base/b.cc", function(head, 71)), ("src/base/b.cc", 5, "size"))

    def test_dead_source(self):
        self.expect({"src/base/b.cc": "\n"}, ("src/base/b.cc", 1, "dead"))
        self.expect({"src/base/CMakeLists.txt": CMAKE + "# b.cc\n", "src/base/b.cc": "\n"},
                    ("src/base/b.cc", 1, "dead"))

    def test_dead_header(self):
        self.expect({"src/base/b.h": "#pragma once\n"}, ("src/base/b.h", 1, "dead"))

    def test_threads_without_label(self):
        code = "std::jthread t(f);\n"
        self.expect(source("src/base/b_test.cc", code), ("src/base/b_test.cc", 1, "label"))
        self.expect({"src/base/test_ranks.h": "#pragma once\n" + code,
                     **source("src/base/b_test.cc", '#include "base/test_ranks.h"\n')},
                    ("src/base/b_test.cc", 1, "label"))
        self.expect({"src/base/b_test.cc": code,
                     "src/base/CMakeLists.txt": CMAKE + "add_component(x TESTS b_test.cc LABEL threads)\n"})

    def test_flags_that_change_bits(self):
        for flag in ["-march=native", "-ffast-math", "-Ofast", "-ffp-contract=fast"]:
            self.expect({"src/base/CMakeLists.txt": CMAKE + f"add_compile_options({flag})\n"},
                        ("src/base/CMakeLists.txt", 2, "flags"))
        self.expect({"src/base/CMakeLists.txt": CMAKE + "add_compile_options(-ffp-contract=off)  # no -ffast-math\n"})

    def test_broken_links(self):
        self.expect({"README.md": "[a](docs/none.md)\n[b](docs/layers.md#no-such)\n[c](#neither)\n\n[d]: gone.md\n"},
                    ("README.md", 1, "link"), ("README.md", 2, "link"), ("README.md", 3, "link"),
                    ("README.md", 5, "link"))

    def test_links_that_are_none(self):
        self.expect({"README.md": "`[a](none)` [b](https://example.org/x) [c](mailto:a@b.c)\n```\n[d](none)\n```\n"})


if __name__ == "__main__":
    unittest.main()
