"""A verb in a folder of its own, what it should come to, and how a person goes on with it after it was cut off."""

from __future__ import annotations

import queue
import shutil
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from .harness import Outcome, Server
from .outputs import LEFT_OVER, Contents, contents, differences, entry, without_random
from .verbs import OUT, Verb, make_older, make_work

AT_ONCE = 2  # commands
MOST_RUNS = 4  # of a command and what its errors advise
VECTORS = f"{OUT}/index.vectors"
Servers = queue.SimpleQueue[Server]


@contextmanager
def borrowed(servers: Servers) -> Iterator[Server]:
    """A server that nobody else uses meanwhile."""
    server = servers.get()
    try:
        yield server
    finally:
        servers.put(server)


@dataclass
class Case:
    """A verb, the folder that every run of it starts from, and what is in `out` before and after.

    Attributes:
        whole: the outcome of a run that nothing disturbs.
        failures: where something went wrong, by what went wrong.
    """

    verb: Verb
    start: Path
    inputs: Contents
    before: Contents
    after: Contents
    whole: Outcome
    failures: dict[str, list[str]] = field(default_factory=dict)

    @classmethod
    def make(cls, verb: Verb, inputs: Path, folder: Path, server: Server) -> Case:
        """Write the folder that runs start from, and run the verb undisturbed in another."""
        start, whole = folder / "start", folder / "whole"
        make_work(start, inputs, verb)
        make_older(start, verb, server)
        shutil.copytree(start, whole)
        outcome = server.run(whole, verb.words)
        assert outcome.code == 0, outcome.stderr
        return cls(verb, start, inputs_in(start), contents(start / OUT), contents(whole / OUT), outcome)

    def fail(self, what: str, where: str, outcome: Outcome | None = None) -> None:
        """Keep what was wrong and where, and the last line of what a run said about it."""
        said = "" if outcome is None else f": {(outcome.stderr.strip().splitlines() or ['nothing said'])[-1]}"
        self.failures.setdefault(without_random(what + said), []).append(without_random(where))

    def describe(self) -> str:
        """All failures, two lines for each: what was wrong, and some of the places."""
        return "".join(
            f"\n{what}\n    {len(places)} times: {'; '.join(list(dict.fromkeys(places))[:4])}"
            for what, places in self.failures.items()
        )

    def try_all(self, places: Sequence[int], attempt: Callable[[int], None]) -> None:
        """Make an attempt at each place, some at once, and complain about all that went wrong."""
        with ThreadPoolExecutor(AT_ONCE) as pool:
            list(pool.map(attempt, places))
        assert not self.failures, self.describe()

    def check_inputs(self, work: Path, where: str) -> None:
        """What the verb reads must stay as it was."""
        for line in differences(inputs_in(work), self.inputs):
            self.fail(f"input: {line}", where)

    def check_result(self, work: Path, where: str, outcome: Outcome) -> None:
        """A command that went on must have come to the same end as one that nothing disturbed."""
        if outcome.code != 0:
            self.fail(f"run again, it ends with code {outcome.code}", where, outcome)
            return
        for line in differences(contents(work / OUT), self.after, self.verb.times):
            self.fail(f"after it ran again, {line}", where)

    def go_on(self, work: Path, server: Server, where: str) -> Outcome:
        """Run the command again as a person would: an error says what to do, and that is done."""
        command, used_vectors = [*self.verb.words, *self.verb.again.split()], False
        for _ in range(MOST_RUNS):
            outcome = server.run(work, command)
            if outcome.code != 2:
                break
            if "ask to overwrite it (--overwrite)" in outcome.stderr:
                self._check_complete(work, where)
                command = [*command, "--overwrite"]
            elif "no training run to resume" in outcome.stderr and "--resume" in command:
                command = self.verb.words
            elif f"give --vectors {work / VECTORS} to continue with these vectors" in outcome.stderr:
                given = [word for word in command if word not in ("--data", "data", "--model", "encoder")]
                command, used_vectors = [*given, "--vectors", VECTORS], True
            elif f"give --vectors {work / VECTORS} --data data to continue with these vectors" in outcome.stderr:
                given = [word for word in command if word not in ("--model", "encoder")]
                command, used_vectors = [*given, "--vectors", VECTORS], True
            elif "document is in the index already" in outcome.stderr:
                return outcome._replace(code=0)  # all were added before it was cut off; whether so is seen below
            elif "choose another place (--out), or delete it" in outcome.stderr:
                shutil.rmtree(work / OUT / "demo")
            else:
                break
        if used_vectors and outcome.code == 0:
            shutil.rmtree(work / VECTORS)  # they were given, so they are the person's own
        return outcome

    def _check_complete(self, work: Path, where: str) -> None:
        """What is not to be overwritten must be worth keeping."""
        found = contents(work / OUT)
        for name in visible(work):
            lines = differences(entry(found, name), entry(self.after, name), self.verb.times)
            for line in (line for line in lines if not line.startswith(LEFT_OVER)):
                self.fail(f"it says that all is there already, but: {line}", where)


def inputs_in(work: Path) -> Contents:
    """All that lies beside `out`."""
    return {name: content for name, content in contents(work).items() if Path(name).parts[0] != OUT}


def visible(work: Path) -> list[str]:
    """The outputs that a person sees, without the vectors that an index is being built from."""
    return [path.name for path in (work / OUT).iterdir() if path.name[0] != "." and path != work / VECTORS]
