"""Which examples make a batch: each once, the same whenever lines come, and after a resume as without."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
import torch

from remargin.errors import InputError
from remargin.training.streaming.feed import Feed
from remargin.training.streaming.journal import JOURNAL, StreamJournal
from remargin.training.streaming.sources import Line
from remargin.training.streaming.window import Window

GOOD = b'{"query": "q", "document": "d"}'


class Lines:
    """A source that has some lines already, and others later."""

    def __init__(self, count: int, seed: int) -> None:
        rng = random.Random(seed)
        contents = [rng.choice([GOOD, GOOD, GOOD, b"bad"]) for _ in range(count)]
        self.left = [Line("-", n, 0, len(content), "", content) for n, content in enumerate(contents, 1)]
        self.good = [line.number for line in self.left if line.content == GOOD]

    def take(self, most: int, closing: bool = False) -> list[Line]:
        taken, self.left = self.left[:most], self.left[most:]
        return taken

    @property
    def ended(self) -> bool:
        return not self.left


def feed(folder: Path, source: Lines, size: int, batch: int) -> tuple[Feed, Window]:
    journal = StreamJournal(folder, most_rejects=1)
    window = Window(journal, size, seed=5)
    return Feed(source, journal, window, batch, None, lambda: False), window


def test_each_example_is_in_one_batch_and_batches_do_not_depend_on_when_lines_come(tmp_path: Path) -> None:
    for case, (count, size, batch) in enumerate([(53, 1, 4), (53, 7, 4), (40, 100, 8), (3, 1, 8), (61, 2, 1)]):
        made = []
        for way in (1, 3, 1000):
            folder = tmp_path / f"{case}-{way}"
            folder.mkdir()
            source = Lines(count, case)
            journal = StreamJournal(folder, most_rejects=1)
            window, batches = Window(journal, size, seed=5), list[list[int]]()
            while source.left or window.rest(batch):
                while window.lacking(batch) and source.left:
                    journal.add(source.take(way))
                full = not window.lacking(batch)
                drawn = window.batch(batch if full else window.rest(batch))
                batches.append([taken.number for taken in drawn])
            made.append(batches)
        assert made[0] == made[1] == made[2]
        assert sorted(number for each in made[0] for number in each) == source.good[: len(source.good)]
        if size == 1:
            assert [number for each in made[0] for number in each] == source.good
        else:
            assert [number for each in made[0] for number in each] != source.good or batch == 1
        sizes = [len(each) for each in made[0]]
        assert all(n <= batch for n in sizes)
        assert min(sizes) >= min(2, batch)


def test_a_window_that_is_resumed_draws_what_it_would_have_drawn(tmp_path: Path) -> None:
    for number, size in enumerate((1, 5)):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = Lines(60, 3)
        running, window = feed(folder, source, size, 6)
        states, batches = [window.state_dict()], []
        while batch := running.batch():
            batches.append(batch)
            states.append(window.state_dict())
        assert len(batches) > 5
        for at, state in enumerate(states):
            journal = StreamJournal(folder, most_rejects=1)
            again = Window(journal, size, seed=5)
            again.load_state_dict({name: tensor.clone() for name, tensor in state.items()})
            rest = Feed(Lines(0, 0), journal, again, 6, None, lambda: False)
            drawn = list(iter(rest.batch, []))
            assert drawn == batches[at:]
            assert torch.equal(again.state_dict()["counts"], states[-1]["counts"])


def test_an_example_that_is_alone_waits(tmp_path: Path) -> None:
    source = Lines(0, 0)
    source.left = [Line("-", n, 0, len(GOOD), "", GOOD) for n in (1, 2, 3, 4, 5)]
    running, window = feed(tmp_path, source, 1, 4)
    assert [len(batch) for batch in iter(running.batch, [])] == [4]
    assert window.waiting == 1


def test_a_journal_without_what_was_read_of_it_is_refused(tmp_path: Path) -> None:
    running, window = feed(tmp_path, Lines(20, 0), 1, 4)
    running.batch()
    state = window.state_dict()
    (tmp_path / JOURNAL).write_bytes(b"")
    with pytest.raises(InputError, match="lines are missing at its end"):
        Window(StreamJournal(tmp_path)).load_state_dict(state)
