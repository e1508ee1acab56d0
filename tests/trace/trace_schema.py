#!/usr/bin/env python3
"""The trace of a real run is what the Trace Event Format wants, and what the run was: four ranks of a 1f1b pipeline, as
threads and, where there is a launcher, as MPI processes that seem to be on two hosts. Then the page of it.

    trace_schema.py PROGRAM [MPIRUN]
"""

import collections
import html.parser
import json
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "support"))
import mpirun  # noqa: E402
import tiny_data  # noqa: E402

MICRO_BATCHES = 8
STAGES = 4
UNITS = 6  # embedding, 4 layers, head
FIRST, LAST = 2, 3
CATEGORIES = {"compute", "communication", "waiting"}


def check_form(trace: dict) -> tuple[dict, dict]:
    """The format. Returns the complete events by track, and the tracks' names."""
    tracks, thread_names, process_names = collections.defaultdict(list), {}, {}
    for event in trace["traceEvents"]:
        for key, kinds in {"name": str, "ph": str, "ts": (int, float), "pid": int, "tid": int}.items():
            assert isinstance(event.get(key), kinds) and not isinstance(event[key], bool), (key, event)
        assert event["ph"] in ("X", "M"), event
        track = (event["pid"], event["tid"])
        if event["ph"] == "X":
            assert isinstance(event["dur"], (int, float)) and event["dur"] >= 0 and event["ts"] >= 0, event
            assert event["cat"] in CATEGORIES, event
            # Whole nanoseconds, so that sums of decimals do not seem to overlap.
            begin = round(event["ts"] * 1000)
            tracks[track].append((begin, begin + round(event["dur"] * 1000), event))
        elif event["name"] == "process_name":
            process_names[event["pid"]] = event["args"]["name"]
        elif event["name"] == "thread_name":
            thread_names[track] = event["args"]["name"]
        else:
            assert event["name"] in ("process_sort_index", "thread_sort_index"), event
            assert isinstance(event["args"]["sort_index"], int), event
    for track, events in tracks.items():
        assert track in thread_names and track[0] in process_names, track
        events.sort(key=lambda e: (e[0], -e[1]))
        open_ends = []
        for begin, end, event in events:
            while open_ends and open_ends[-1] <= begin:
                open_ends.pop()
            assert not open_ends or end <= open_ends[-1], ("overlaps without nesting", track, event)
            open_ends.append(end)
    assert len({(pid, name) for (pid, _), name in thread_names.items()}) == len(thread_names), thread_names
    return tracks, thread_names


def check_content(trace: dict, hosts: list[str]) -> None:
    tracks, names = check_form(trace)
    about = trace["otherData"]
    assert about["schedule"] == "1f1b" and about["pp"] == STAGES and about["micro_batches"] == MICRO_BATCHES, about
    assert (about["first_step"], about["last_step"]) == (FIRST, LAST), about
    for rank, clock in enumerate(about["ranks"]):
        assert clock["rank"] == rank and clock["host"] == hosts[rank] and clock["dropped_spans"] == 0, clock
        assert clock["clock"] == ("shared" if hosts[rank] == hosts[0] else "estimated"), clock
        # All ranks of the test read one clock, whatever their hosts are called.
        assert abs(clock["clock_offset_s"]) <= clock["clock_round_trip_s"] / 2 + 1e-9, clock
    work = {pid: events for (pid, tid), events in tracks.items() if names[(pid, tid)] == "compute"}
    axes = {(pid, names[(pid, tid)].split(" ")[0]) for pid, tid in tracks if names[(pid, tid)] != "compute"}
    assert axes == {(pid, "pipeline") for pid in range(STAGES)}, axes
    assert sorted(work) == list(range(STAGES))
    done = collections.Counter()  # by name, unit, micro-batch
    for pid, events in work.items():
        steps = [event["args"]["step"] for _, _, event in events if event["name"] == "step"]
        assert steps == [FIRST, LAST], steps
        for _, _, event in events:
            args = event["args"]
            assert FIRST <= args["step"] <= LAST, event
            if event["name"] in ("forward", "backward input", "backward weight"):
                done[event["name"], args["unit"], args["micro_batch"]] += 1
                assert args["chunk"] == 0, event
        waits = [event for _, _, event in events if event["cat"] == "waiting"]
        assert any(event["name"] == "wait: receive" and event["args"]["bytes"] > 0 for event in waits)
    steps = LAST - FIRST + 1
    for micro_batch in range(MICRO_BATCHES):
        for unit in range(UNITS):
            assert done["forward", unit, micro_batch] == steps, (unit, micro_batch)
            assert done["backward weight", unit, micro_batch] == (steps if unit < UNITS - 1 else 0), (unit, micro_batch)
            assert done["backward input", unit, micro_batch] == (steps if unit > 0 else 0), (unit, micro_batch)
    check_order(work)


def check_order(work: dict) -> None:
    """A stage begins a micro-batch's forward after the stage before it has ended its own, on one scale of time."""
    ends, begins = {}, {}
    for pid, events in work.items():
        for begin, end, event in events:
            if event["name"] == "forward":
                key = (pid, event["args"]["step"], event["args"]["micro_batch"])
                ends[key] = max(ends.get(key, 0), end)
                begins[key] = min(begins.get(key, begin), begin)
    for (pid, step, micro_batch), begin in begins.items():
        if pid > 0:
            assert begin >= ends[pid - 1, step, micro_batch], (pid, step, micro_batch)


class Page(html.parser.HTMLParser):
    """Counts what a page draws, and refuses what it would have to load."""

    def __init__(self) -> None:
        super().__init__()
        self.boxes = collections.Counter()
        self.sections = 0

    def handle_starttag(self, tag: str, attributes: list) -> None:
        assert tag not in ("script", "link", "img", "iframe"), tag
        values = dict(attributes)
        assert "src" not in values and "href" not in values, values
        self.sections += tag == "section"
        if tag == "rect" and "x" in values:
            self.boxes[values["class"].split()[0]] += 1


def check_page(program: str, traces: list[pathlib.Path], out: pathlib.Path) -> None:
    command = [program, "report", "trace", *map(str, traces), "--out", str(out), "--json"]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    for file in answer["files"]:
        assert 0 < file["bubble_fraction"] < 1, file
        assert [step["step"] for step in file["steps"]] == [FIRST, LAST], file
        assert file["ranks"] == STAGES, file
    page = Page()
    page.feed(out.read_text())
    assert page.sections == len(traces)
    for kind in "fiwq":  # forward, backward input, backward weight, waiting
        assert page.boxes[kind] >= STAGES, page.boxes
    empty = out.with_name("empty.json")
    empty.write_text('{"traceEvents": []}')
    for arguments, said in [([str(empty)], "shows no step"), (["no.json"], "there is no such file"), ([str(traces[0]), "--step", "9"], "--step"),
                            ([str(out)], "page.html: line 1"), ([str(traces[0]), "--step", "-1"], "steps count from 1")]:
        done = subprocess.run([program, "report", "trace", *arguments, "--out", str(out)], capture_output=True, text=True,
                              check=False)
        assert done.returncode == 2 and said in done.stderr, done


def train(command: list[str], out: pathlib.Path) -> subprocess.CompletedProcess:
    return subprocess.run(command + ["--out", str(out)], capture_output=True, text=True, timeout=240, check=False,
                          env=mpirun.environment())


def check_refusals(command: list[str], folder: pathlib.Path, trace: pathlib.Path) -> None:
    for arguments, said in [(["--trace", str(trace)], "is there already"),
                            (["--trace-steps", "2-3"], "is used with out.trace only"),
                            (["--trace", str(folder / "new"), "--trace-steps", "3-9"], "the run has 4 steps"),
                            (["--trace", str(folder / "new"), "--trace-steps", "0"], "steps count from 1"),
                            (["--trace", "--json"], "--trace")]:
        for dry_run in [[], ["--dry-run"]]:
            done = train(command + dry_run + arguments, folder / "refused")
            assert done.returncode == 2 and said in done.stderr, done


def main() -> int:
    program, launcher = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else ""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        tiny_data.make(program, folder, 4, MICRO_BATCHES, 1)
        plain = [program, "train", str(folder / "run.toml"), "--model.config", str(folder / "llama"), "--layout.pp",
                 str(STAGES), "--layout.schedule", "1f1b"]
        options = ["--trace-steps", f"{FIRST}-{LAST}"]
        threads = folder / "traces" / "threads.json"
        done = train(plain + options + ["--trace", str(threads)], folder / "threads")
        assert done.returncode == 0, done.stderr
        trace = json.loads(threads.read_text())
        check_content(trace, [trace["otherData"]["ranks"][0]["host"]] * STAGES)
        assert "trace" not in [line.split(" ")[0] for line in (folder / "threads" / "run.toml").read_text().split("\n")
                               if not line.endswith(("''", '""'))], "a look at one run is no part of its description"
        print(f"threads: {len(trace['traceEvents'])} events, as they should be")
        axes = folder / "axes.json"
        done = train([program, "train", str(folder / "run.toml"), "--model.config", str(folder / "llama"), "--layout.dp",
                      "2", "--layout.tp", "4", "--trace", str(axes)], folder / "axes")
        assert done.returncode == 0, done.stderr
        names = set(check_form(json.loads(axes.read_text()))[1].values())
        assert {"compute", "data", "tensor"} <= names, names
        print(f"dp 2, tp 4: tracks {sorted(names)}")
        traces = [threads]
        if launcher:
            mpi = folder / "mpi.json"
            # Two hosts of two stages each, which differ in name alone.
            shell = ["sh", "-c", 'TRIREME_HOST=host$((${OMPI_COMM_WORLD_RANK:-$PMI_RANK} / 2)) exec "$@"', "sh"]
            done = train(mpirun.command(launcher, STAGES) + shell + plain + options + ["--trace", str(mpi)],
                         folder / "mpi")
            assert done.returncode == 0, done.stderr
            trace = json.loads(mpi.read_text())
            check_content(trace, ["host0", "host0", "host1", "host1"])
            print(f"MPI: {len(trace['traceEvents'])} events, clocks {trace['otherData']['ranks'][2:]}")
            traces.append(mpi)
        check_page(program, traces, folder / "page.html")
        check_refusals(plain, folder, threads)
    return 0


if __name__ == "__main__":
    sys.exit(main())
