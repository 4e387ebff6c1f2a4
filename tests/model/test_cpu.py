"""All cores at once: the same results in the same order, and nothing is left changed."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch

from remargin import BiEncoder
from remargin.model.cpu import on_all_cores
from remargin.model.tokenizer import Tokens

THREADS = 3


@pytest.fixture(autouse=True)
def several_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(THREADS)
    yield
    assert torch.get_num_threads() == THREADS  # whatever happened
    torch.set_num_threads(before)


def test_results_come_in_order_from_threads_with_one_core_each() -> None:
    cores = set()

    def work(number: int) -> int:
        cores.add((threading.get_ident(), torch.get_num_threads()))
        time.sleep(0.02 if number % 3 == 0 else 0)
        return number

    assert list(on_all_cores(work, range(30), 30)) == list(range(30))
    assert len(cores) == THREADS
    assert {count for _, count in cores} == {1}
    assert threading.get_ident() not in {thread for thread, _ in cores}


def test_a_few_items_have_all_cores_each() -> None:
    found = list(on_all_cores(lambda _: (threading.get_ident(), torch.get_num_threads()), range(5), 5))
    assert set(found) == {(threading.get_ident(), THREADS)}


def test_what_goes_wrong_is_raised_and_no_more_is_done() -> None:
    begun = []

    def work(number: int) -> int:
        begun.append(number)
        if number == 4:
            raise RuntimeError("four")
        return number

    made = on_all_cores(work, range(1000), 1000)
    with pytest.raises(RuntimeError, match="four"):
        list(made)
    assert len(begun) < 30


def test_items_are_made_as_they_are_needed_and_not_after_the_caller_stopped() -> None:
    asked: list[int] = []

    def items() -> Iterator[int]:
        for number in range(1000):
            asked.append(number)
            yield number

    before = threading.active_count()
    made: Any = on_all_cores(lambda number: number, items(), 1000)
    assert next(made) == 0
    assert len(asked) <= 3 * THREADS
    assert threading.active_count() == before + THREADS
    made.close()
    assert len(asked) <= 3 * THREADS
    assert threading.active_count() == before


def test_threads_that_others_start_meanwhile_have_all_cores() -> None:
    made, found = on_all_cores(lambda number: number, range(100), 100), list[int]()
    assert next(made) == 0
    thread = threading.Thread(target=lambda: found.append(torch.get_num_threads()))
    thread.start()
    thread.join()
    assert found == [THREADS]
    assert list(made) == list(range(1, 100))


@pytest.mark.parametrize("pooling", ["cls", "mean"])
def test_batches_have_few_sizes_and_the_same_vectors(
    tiny_model: Any, pooling: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneDNN keeps code for every size: 500 batches of different sizes are computed in a few dozen."""
    model = BiEncoder.from_pretrained(tiny_model("bert"), pooling=pooling)
    compute = model._computing()
    random = np.random.default_rng(0)
    sizes, given = set(), set()
    for _ in range(500):
        lengths = random.integers(1, 60, random.integers(1, 60))
        tokens = Tokens(np.ones(lengths.sum(), np.int32), lengths)
        packed = compute.pack(tokens, np.arange(len(lengths)))
        assert len(packed.bounds) - 1 - packed.fillers == len(lengths)
        sizes.add(len(packed.ids))
        given.add(int(lengths.sum()))
    assert len(given) > 300
    assert len(sizes) <= 45
    texts = ["a query", "the value of the text", "", "list " * 40]
    rounded = model.encode_documents(texts)
    monkeypatch.setattr("remargin.model.compute.size_step", lambda tokens: 1)
    np.testing.assert_allclose(rounded, model.encode_documents(texts), atol=1e-6)
    tokens = model.tokenizer(texts, 64)[0]
    monkeypatch.setattr("remargin.model.compute.size_step", lambda tokens: 1000)  # nearly all of it fillers
    assert len(compute.pack(tokens, np.arange(4)).ids) == 1000
    np.testing.assert_allclose(rounded, model.encode_tokens(tokens), atol=1e-6)
