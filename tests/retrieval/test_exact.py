"""The blocked search finds what the whole score matrix would, over vectors and over codes of them."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from remargin.retrieval import exact
from remargin.retrieval.codes import Coder
from remargin.retrieval.exact import top_k

SIZES = st.integers(1, 40), st.integers(1, 30), st.integers(1, 50), st.integers(1, 9), st.integers(1, 9)


@given(*SIZES, st.integers(0, 99), st.booleans())
def test_blocked_top_k_is_the_whole_matrix_sorted(
    documents: int, queries: int, k: int, document_block: int, query_block: int, seed: int, ascending: bool
) -> None:
    rng = np.random.default_rng(seed)
    q, d = rng.integers(-3, 4, (queries, 6)).astype("f4"), rng.integers(-3, 4, (documents, 6)).astype("f4")  # many ties
    if ascending:  # every block is better than all before it
        q = np.abs(q)
        d = np.arange(documents, dtype="f4")[:, None] * np.ones(6, "f4")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(exact, "CPU_BLOCK", (query_block, document_block))
        scores, rows = top_k(q, d, k)
    whole = q @ d.T
    np.testing.assert_array_equal(scores, -np.sort(-whole, axis=1)[:, :k])
    np.testing.assert_array_equal(np.take_along_axis(whole, rows, 1), scores)
    assert all(len(set(row)) == len(row) for row in rows.tolist())


def test_half_precision_and_tensors_are_taken_as_they_are() -> None:
    rng = np.random.default_rng(0)
    q, d = rng.normal(size=(5, 16)).astype("f4"), rng.normal(size=(50, 16)).astype("f2")
    expected = -np.sort(-(q @ d.astype("f4").T), axis=1)[:, :7]
    np.testing.assert_allclose(top_k(q, d, 7)[0], expected, rtol=1e-6)
    np.testing.assert_allclose(top_k(torch.from_numpy(q), torch.from_numpy(d), 7)[0], expected, rtol=1e-6)


@pytest.mark.parametrize("coding", ["int8", "binary"])
@pytest.mark.parametrize("dimension", [16, 13])
def test_codes_are_searched_as_the_vectors_they_stand_for(coding: str, dimension: int) -> None:
    rng = np.random.default_rng(1)
    matrix = (rng.normal(size=(300, dimension)) * np.linspace(0.5, 2, dimension) + 0.3).astype("f4")
    queries = rng.normal(size=(9, dimension)).astype("f4")
    coder = Coder.fit(matrix, coding)  # type: ignore[arg-type]
    codes = coder.encode(matrix)
    assert codes.shape[1] == coder.width() == (dimension if coding == "int8" else 2)
    decoded = coder.offset + coder.scale * coder.decode(torch.from_numpy(codes)).numpy()
    error = np.abs(decoded - matrix).mean() / matrix.std()
    assert error < (0.01 if coding == "int8" else 0.6)
    if coding == "int8":
        assert (np.abs(decoded - matrix) <= coder.scale * 0.501).all()
    else:
        np.testing.assert_array_equal(decoded > coder.offset, matrix > coder.offset)
    scores, rows = top_k(queries, codes, 10, coder=coder)
    np.testing.assert_allclose(scores, -np.sort(-(queries @ decoded.T), axis=1)[:, :10], atol=1e-4)
    np.testing.assert_allclose(np.take_along_axis(queries @ decoded.T, rows, 1), scores, atol=1e-4)


def test_a_constant_dimension_does_no_harm() -> None:
    matrix = np.zeros((4, 8), "f4")
    matrix[:, 0] = 0.5
    for coding in ("int8", "binary"):
        coder = Coder.fit(matrix, coding)
        np.testing.assert_allclose(
            coder.offset + coder.scale * coder.decode(torch.from_numpy(coder.encode(matrix))).numpy(), matrix, atol=1e-6
        )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_a_gpu_finds_the_same(dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    q = torch.randn(100, 64).to(dtype).float()
    d = torch.randn(100_000, 64).to(dtype)
    scores, rows = top_k(q, d.cuda(), 50, "cuda")
    expected, expected_rows = top_k(q, d.float(), 50)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    assert (rows == expected_rows).mean() > 0.99
