"""kill -9 at random, 50 times over one stream on standard input: every line is accounted for, and trained on once.

Half of the kills are at a random change of a file, half at a random time. The program that writes the stream begins
with the first line each time, or goes on with the line after the last that was taken, as the journal has it.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from .cases import Servers, borrowed
from .harness import NEVER, Outcome, Server
from .outputs import contents, differences
from .test_kills import IN_MEMORY
from .verbs import WORDS

KILLS = 50
LINES, BATCH = 1200, 4
TRIED = 400  # commands at most
COMMAND = (
    f"fit --stream - --data data --model model --out out/run --also data --batch-size {BATCH} --shuffle 6 "
    "--save-every 3 --validate-every 20 --log-every 50 --learning-rate 0.001"
).split()
RESUME = ["fit", "--resume", "out/run"]


def stream_line(number: int) -> str:
    """A pair, now and then a triplet, a vote against a document, or something malformed."""
    word = WORDS[number % 12]
    line = {"query": f"the {word} {number}", "document_id": f"d{number % 12}"}
    if number % 7 == 0:
        line = {"query": f"the {word} {number}", "positive": f"how do {word}", "negative": f"a document {number}"}
    if number % 31 == 0:
        return json.dumps({**line, "grade": -1})
    return f"malformed {number}" if number % 37 == 0 else json.dumps(line)


def entries(path: Path) -> list[dict]:
    """Those of a file of checksummed lines that were wholly written."""
    content = path.read_text() if path.exists() else ""
    return [json.loads(line.split(" ", 1)[1]) for line in content.split("\n")[:-1]]


class Accounts:
    """What each command said and wrote, compared with what was sent."""

    def __init__(self, run: Path) -> None:
        self.run, self.rows, self.replays = run, 0, Counter[int]()

    def follow(self, outcome: Outcome) -> None:
        """See that the steps that a command added replay what it said, and nothing else."""
        new = entries(self.run / "trained.jsonl")[self.rows :]
        self.rows += len(new)
        replayed = lines_of(new, "replayed")
        said = re.search(r"; lines ([\d, to]+) of the stream were trained on after", outcome.stdout)
        announced = set[int]()
        for part in said[1].split(", ") if said else []:
            first, _, last = part.replace(",", "").partition(" to ")
            announced |= set(range(int(first), int(last or first) + 1))
        assert set(replayed) <= announced, outcome.stdout
        if not outcome.killed:
            assert set(replayed) == announced
        self.replays.update(replayed)

    def trained(self) -> list[int]:
        """The lines that the weights come from: of steps that were made again, the last time counts."""
        steps: list[dict] = []
        for row in entries(self.run / "trained.jsonl"):
            while steps and steps[-1]["step"] >= row["step"]:
                steps.pop()
            assert row["step"] == len(steps) + 1
            steps.append(row)
        return lines_of(steps, "lines")

    def twice_without_a_word(self) -> set[int]:
        """Lines that were trained on again, in a step that does not call them replayed."""
        seen, silent = set[int](), set[int]()
        for row in entries(self.run / "trained.jsonl"):
            lines, replayed = set(lines_of([row], "lines")), set(lines_of([row], "replayed"))
            silent |= (lines & seen) ^ replayed
            seen |= lines
        return silent


def lines_of(rows: list[dict], name: str) -> list[int]:
    return [line for row in rows for first, last in row[name] for line in range(first, last + 1)]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_killed_50_times_a_stream_loses_no_line_and_trains_on_each_once(
    inputs: Path, servers: Servers, say_at_the_end: Callable[[str], None]
) -> None:
    sent = [stream_line(number) for number in range(1, LINES + 1)]
    rng = random.Random(0)
    with borrowed(servers) as server, tempfile.TemporaryDirectory(dir=IN_MEMORY) as name:
        folders = [Path(name) / part for part in ("whole", "work")]
        for folder in folders:
            (folder / "out").mkdir(parents=True)
            for part in ("data", "model"):
                shutil.copytree(inputs / part, folder / part)
        whole, work = folders
        began = time.monotonic()
        undisturbed = send(server, whole, COMMAND, sent)
        assert undisturbed.code == 0, undisturbed.stderr
        ended = time.monotonic()
        idle = send(server, whole, RESUME, sent)  # nothing is left to do, but to start
        start, seconds = time.monotonic() - ended, ended - began
        changes = len(undisturbed.operations) // KILLS  # so many bring a command as far as it may come between kills
        kills, commands, accounts = Counter[str](), 0, Accounts(work / "out" / "run")
        while True:
            commands += 1
            assert commands < TRIED
            enough = kills.total() == KILLS
            by_change = rng.random() < 0.5
            kill_at = rng.randint(1, len(idle.operations) + changes) if by_change and not enough else NEVER
            after = rng.uniform(0, start) + rng.uniform(0, seconds / KILLS)
            kill_after = after if not by_change and not enough else None
            command = RESUME if (work / "out" / "run" / "config.yaml").exists() else COMMAND
            outcome = send(server, work, command, sent, rng, kill_at, kill_after)
            accounts.follow(outcome)
            kills["at a change of a file" if by_change else "at a time"] += outcome.killed
            if not outcome.killed:
                assert outcome.code == 0, outcome.stderr
                break
        run = work / "out" / "run"
        assert kills.total() == KILLS, "the stream was too short"
        journal = entries(run / "stream.jsonl")
        assert [entry["number"] for entry in journal] == list(range(1, LINES + 1))
        assert [entry["text"] for entry in journal] == sent
        of_kind = {
            kind: [e["number"] for e in journal if e["kind"] == kind] for kind in ("example", "malformed", "against")
        }
        assert sum(map(len, of_kind.values())) == LINES
        rejects = [json.loads(line) for line in (run / "rejects.jsonl").read_text().splitlines()]
        assert [row["line"] for row in rejects] == of_kind["malformed"]
        assert of_kind["malformed"] == [n for n in range(1, LINES + 1) if n % 37 == 0 and n % 31]
        assert sorted(accounts.trained()) == of_kind["example"]
        assert accounts.twice_without_a_word() == set()
        most = max(accounts.replays.values(), default=0)
        lines = differences(contents(run), contents(whole / "out" / "run"), ("trained.jsonl", "config.yaml"))
        assert [line for line in lines if "metrics.csv" not in line] == []
        count = ", ".join(f"{count} {how}" for how, count in kills.items())
        say_at_the_end(
            f"{LINES:,} lines, killed {kills.total()} times ({count}): {len(of_kind['example']):,} examples, "
            f"each trained on once; {len(accounts.replays):,} of them replayed after kills, {most} times at most; "
            f"{len(rejects)} rejects, {len(of_kind['against'])} votes against; the same model as undisturbed"
        )


def send(
    server: Server,
    folder: Path,
    command: list[str],
    sent: list[str],
    rng: random.Random | None = None,
    kill_at: int = NEVER,
    kill_after: float | None = None,
) -> Outcome:
    """Run a command that reads the stream: from its first line on, or from the first that was not taken."""
    taken = len(entries(folder / "out" / "run" / "stream.jsonl"))
    again = rng is not None and command == RESUME and rng.random() < 0.5
    lines = folder.with_name(f"{folder.name}.jsonl")
    lines.write_text("".join(line + "\n" for line in (sent if again else sent[taken:])))
    options = ["--from-start"] if again else []
    return server.run(folder, [*command, *options], kill_at, kill_after, str(lines))
