#!/usr/bin/env python3
"""Outputs that docs/ shows are what the program prints (tools/doc_blocks.py), and the tool finds and renews those that are
not.

    doc_blocks_test.py PROGRAM
"""

import pathlib
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tools"))
import doc_blocks  # noqa: E402
from doc_blocks import Command  # noqa: E402

PROGRAM = pathlib.Path("build/release/trireme")
PRINTED = ["64 devices", "", "9 layouts screened in 18.6 ms", "   step  layout", "  1  7.87 s  dp 64", "  2  7.94 s  dp 32",
           "  3  8.00 s  dp 16", "", "what binds: products 67 %"]


def command(shown: str, printed: list[str], text: str = "trireme plan x", code: int = 0) -> Command:
    return Command(text, 1, shown.split("\n"), 1, code, list(printed))


class DocBlocksTest(unittest.TestCase):
    def test_commands_of_a_document(self):
        text = ("words\n```\ntrireme plan x   # a sum\nmake demo\ncp a \\\n    b\n```\n```\n$ trireme train y \\\n    --z # exit code 2\n"
                "error: no\n$ trireme model m\n```\n```toml\ntrireme = 1\n```\n```\nno command\n```\n").split("\n")
        everything = doc_blocks.commands_of(text, True)
        self.assertEqual([one.text for one in everything],
                         ["trireme plan x   # a sum", "make demo", "cp a \\\n    b", "trireme train y \\\n    --z # exit code 2",
                          "trireme model m"])
        self.assertEqual([one.shown for one in everything], [None, None, None, ["error: no"], []])
        self.assertEqual([one.runs for one in everything], [True, False, True, True, True])
        self.assertEqual([one.expected_code for one in everything], [0, 0, 0, 2, 0])
        self.assertEqual(len(doc_blocks.commands_of(text, False)), 2)
        self.assertEqual(text[everything[3].shown_at], "error: no")

    def test_what_is_shown_is_what_is_printed(self):
        for shown in ["\n".join(PRINTED), "...\n  2  7.94 s  dp 32\n...", "64 devices\n...\nwhat binds: products 67 %",
                      "...\n9 layouts screened in 3.2 s\n   step  layout\n...\n  3  8.00 s  dp 16\n...", "...\nwhat binds: products 67 %"]:
            self.assertEqual(doc_blocks.fault_of(command(shown, PRINTED)), "", shown)

    def test_what_is_not(self):
        for shown in ["...\n  2  7.95 s  dp 32\n...", "64 devices\n9 layouts screened in 18.6 ms\n...", "64 devices", "...\n64 devices",
                      "...\n  3  8.00 s  dp 16\n...\n  2  7.94 s  dp 32\n...", "\n".join(PRINTED[1:]), "...\n   step  layout"]:
            self.assertIn("is not what is printed", doc_blocks.fault_of(command(shown, PRINTED)), shown)
        self.assertIn("exit code 71 instead of 0", doc_blocks.fault_of(command("...", PRINTED, code=71)))
        self.assertEqual(doc_blocks.fault_of(command("64 devices\n...", PRINTED, "trireme plan x # exit code 71", 71)), "")
        late = command("...", PRINTED)
        late.code = None
        self.assertIn("did not end", doc_blocks.fault_of(late))

    def test_measured_figures_are_compared_by_shape(self):
        printed = ["step 60/60  loss 3.0931  31.2k tok/s  MFU 42.5%  ETA 0:00  16.23 MB", "sum  8,000,000  equal",
                   "resident memory   16,386,048  (+104.8% beside the ledger)", "checkpoint of step 20 is durable: 2.28 MB in 639.4 ms"]
        other = ["step 60/60  loss 3.1  890 tok/s  MFU 4.5%  ETA 1:02:00  101.23 MB", "sum  8,000,000  equal",
                 "resident memory  116,386,048  (+4.8% beside the ledger)", "checkpoint of step 20 is durable: 2.28 MB in 1.2 s"]
        self.assertEqual(doc_blocks.fault_of(command("\n".join(other), printed, "trireme train run.toml")), "")
        for old, new in [("60/60", "59/60"), ("8,000,000", "8,000,064"), ("step 20", "step 30"), ("loss", "lost")]:
            bad = "\n".join(other).replace(old, new)
            self.assertNotEqual(doc_blocks.fault_of(command(bad, printed, "trireme train run.toml")), "", old)

    def test_renewed(self):
        for shown, new in [
                ("\n".join(PRINTED[:3]), PRINTED),
                ("...\n  1  9.99 s  dp 64\n  2  9.99 s  dp 32\n...", ["...", *PRINTED[4:6], "..."]),
                ("64 devices\n...\n  1  9.99 s  dp 64\n  3  9.99 s  dp 16\n...\nwhat binds: products 5 %",
                 [PRINTED[0], "...", *PRINTED[4:7], "...", PRINTED[8]]),
                ("9 layouts screened in 18.6 ms\n   step  layout\n...", [*PRINTED[:4], "..."]),
                ("64 devices\n...\n  3  9.94 s  dp 16", [PRINTED[0], "...", *PRINTED[6:]]),
                ("...\nwhat binds: products 5 %", ["...", PRINTED[8]])]:
            old = command(shown, PRINTED)
            self.assertNotEqual(doc_blocks.fault_of(old), "")
            self.assertEqual(doc_blocks.renewed(old), new)
            self.assertEqual(doc_blocks.fault_of(command("\n".join(new), PRINTED)), "")

    def test_documents_are_renewed_once(self):
        text = "# A\n\n```\n$ trireme plan bubble --stages 4 --microbatches 16\n...\nzb-h1 99.0 %  4\n...\n```\nend\n"
        with tempfile.TemporaryDirectory(dir=ROOT) as folder:
            path = pathlib.Path(folder) / "a.md"
            path.write_text(text)
            self.assertEqual(doc_blocks.work(path, PROGRAM, False, False), 1)
            self.assertEqual(path.read_text(), text)
            self.assertEqual(doc_blocks.work(path, PROGRAM, True, False), 0)
            renewed = path.read_text()
            self.assertNotEqual(renewed, text)
            self.assertEqual(doc_blocks.work(path, PROGRAM, True, False), 0)
            self.assertEqual(path.read_text(), renewed)

    def test_docs(self):
        shown = 0
        for path in sorted((ROOT / "docs").rglob("*.md")):
            shown += len(doc_blocks.commands_of(path.read_text().split("\n"), False))
            self.assertEqual(doc_blocks.work(path, PROGRAM, False, False), 0, f"{path}: tools/doc_blocks.py --write renews it")
        self.assertGreater(shown, 20)


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
