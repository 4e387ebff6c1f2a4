"""Exact dense search: every query against every document, without the whole score matrix."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, Protocol, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.files.arrays import append_array, map_array
from remargin.files.shapes import FileName
from remargin.losses.numerics import exact_products
from remargin.progress import track
from remargin.retrieval.base import Backend, NoState, State, Storage
from remargin.retrieval.codes import Coder

if TYPE_CHECKING:
    from remargin.retrieval.settings import BackendSettings

# Scores of this many queries and documents are in memory at a time: what fits a CPU's caches, and what fills a GPU.
CPU_BLOCK = (1024, 4096)
GPU_BLOCK = (256, 131_072)
FEW = 16  # blocks, which are no work to be shown
CPU_GROUP, GPU_GROUP = 32, 64  # neighbouring scores of which first only the maximum is looked at
VECTORS_AT_ONCE = 65_536  # are made codes of

Matrix = NDArray[Any] | Tensor


class Rows(Protocol):
    """A matrix of which some rows at a time are read from disk or computed."""

    dtype: Any

    def __len__(self) -> int: ...

    def __getitem__(self, part: slice, /) -> Matrix: ...


def top_k(
    queries: Matrix, documents: Matrix | Rows, k: int, device: torch.device | str = "cpu", coder: Coder | None = None
) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Scores and rows of the k documents with the largest dot product for each query, best first.

    Documents are read once, block by block, so they may be a memory map larger than memory. Scores are float32; where
    documents are float16 or bfloat16 and the device is a GPU, queries are rounded likewise.

    Args:
        queries: (n, d).
        documents: (m, d), or their codes.
        k: how many; fewer if there are fewer documents.
        device: where to compute.
        coder: of the codes.

    Example:
        >>> scores, rows = top_k(np.eye(2, dtype="f4"), np.array([[1, 0], [0, 2], [3, 1]], "f4"), k=2)
        >>> rows.tolist()
        [[2, 0], [1, 2]]
    """
    device = torch.device(device)
    k = min(k, len(documents))
    wanted = _tensor(queries).to(device, torch.float32)
    shift = None
    if coder is not None:
        shift = (wanted @ _tensor(coder.offset).to(device)).cpu().numpy()
        wanted = wanted * _tensor(coder.scale).to(device)
    best = _Best(len(wanted), k, device)
    at_once, size = CPU_BLOCK if device.type == "cpu" else GPU_BLOCK
    compute = _precision(documents, device)
    wanted = wanted.to(compute)
    with torch.inference_mode(), exact_products(device):
        starts = range(0, len(documents), size)
        for start in track(starts, "searching", total=len(starts), show=None if len(starts) > FEW else False):
            block = _tensor(documents[start : start + size]).to(device)
            block = (block if coder is None else coder.decode(block)).to(compute)
            for q in range(0, len(wanted), at_once):
                best.add(q, _scores(wanted[q : q + at_once], block), start)
    values, rows = best.sorted()
    return (values if shift is None else values + shift[:, None]), rows


class _Best:
    """The best scores of each query so far, and the rows they came from."""

    def __init__(self, queries: int, k: int, device: torch.device) -> None:
        self._k = k
        self._scores = torch.full((queries, k), -torch.inf, device=device)
        self._rows = torch.full((queries, k), -1, dtype=torch.long, device=device)

    def add(self, first: int, scores: Tensor, start: int) -> None:
        """Take in the scores (n, m) of the queries from `first` on, with the documents from `start` on."""
        part = slice(first, first + len(scores))
        best, rows = self._scores[part], self._rows[part]
        if scores.device.type == "cpu" and start:
            scores, columns = _above(scores, best.amin(1, keepdim=True))
        else:
            scores, columns = _largest(scores, min(self._k, scores.shape[1]))
        merged, order = torch.cat([best, scores], 1).topk(self._k, sorted=False)
        self._rows[part] = torch.cat([rows, columns + start], 1).gather(1, order)
        self._scores[part] = merged

    def sorted(self) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and rows, best first."""
        scores, order = self._scores.sort(dim=1, descending=True)
        return scores.cpu().numpy(), self._rows.gather(1, order).cpu().numpy()


def _above(scores: Tensor, least: Tensor) -> tuple[Tensor, Tensor]:
    """The scores above each row's least, padded to one length with -inf, and their columns.

    After the first block few scores are among the best, and on a CPU to find those few is much faster than torch.topk:
    first the groups of neighbours whose maximum is high enough, then the scores in these.
    """
    rows, columns = scores.shape
    group = CPU_GROUP if columns % CPU_GROUP == 0 else 1
    groups = scores.view(-1, group)
    high = (groups.amax(1).view(rows, -1) > least).flatten().nonzero().squeeze(1)
    row = high // (columns // group)
    inside = groups.index_select(0, high)
    place, offset = (inside > least.index_select(0, row)).nonzero(as_tuple=True)
    row, column = row[place], high[place] % (columns // group) * group + offset
    counts = torch.bincount(row, minlength=rows)
    slot = torch.arange(len(row)) - (counts.cumsum(0) - counts)[row]
    values = torch.full((rows, int(counts.max())), -torch.inf)
    places = torch.zeros(values.shape, dtype=torch.long)
    values[row, slot] = inside[place, offset]
    places[row, slot] = column
    return values, places


def _largest(scores: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """The k largest scores of each row, in any order, and their columns.

    The k best are in the k groups of neighbours with the best maxima: where these are few, a GPU is faster so.
    """
    rows, columns = scores.shape
    if scores.device.type == "cpu" or columns % GPU_GROUP or columns < 4 * GPU_GROUP * k:
        return scores.topk(k, sorted=False)
    groups = scores.view(rows, -1, GPU_GROUP).amax(2).topk(k, sorted=False).indices
    among = (groups.unsqueeze(2) * GPU_GROUP + torch.arange(GPU_GROUP, device=scores.device)).flatten(1)
    values, order = scores.gather(1, among).topk(k, sorted=False)
    return values, among.gather(1, order)


def _tensor(matrix: Matrix) -> Tensor:
    if isinstance(matrix, Tensor):
        return matrix
    with warnings.catch_warnings():  # a read-only memory map: fine, since nothing here writes to it
        warnings.filterwarnings("ignore", "The given NumPy array is not writable", UserWarning)
        return torch.from_numpy(matrix)


def _precision(documents: Matrix | Rows, device: torch.device) -> torch.dtype:
    """What to multiply in: a GPU takes half precision as it is."""
    half = {"float16": torch.float16, "bfloat16": torch.bfloat16}
    name = str(documents.dtype).removeprefix("torch.")
    return torch.float32 if device.type == "cpu" else half.get(name, torch.float32)


def _scores(queries: Tensor, documents: Tensor) -> Tensor:
    """All dot products, in float32."""
    if queries.device.type == "cpu" and (onednn := getattr(torch.ops.mkldnn, "_linear_pointwise", None)) is not None:
        product: Tensor = onednn(queries, documents, None, "none", [], "")  # a fifth faster than torch.mm on AMD
        return product
    if queries.dtype == torch.float32:
        return queries @ documents.T
    return torch.mm(queries, documents.T, out_dtype=torch.float32)


class Exact:
    """Compares queries with every vector, or with its code."""

    def __init__(self, documents: Matrix, device: torch.device | str = "cpu", coder: Coder | None = None) -> None:
        self._documents = documents
        self._device = device
        self._coder = coder
        self.approximate = coder is not None

    def search(self, queries: NDArray[np.float32], k: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Scores and rows of the k best vectors of each query."""
        return top_k(queries, self._documents, k, self._device, self._coder)


class CodesState(TypedDict):
    """Files of codes, and of the numbers that decode them."""

    codes: FileName
    coder: FileName


class ExactStorage(Storage):
    """No files: the vectors are enough. With a coding, codes of the vectors, and the numbers that decode them.

    Codes are made again if a new vector is out of their range.
    """

    options = ("coding", "over_fetch")
    files = ("codes.", "coder.")

    @classmethod
    def state_fields(cls, settings: BackendSettings) -> type:
        """Files, if there are codes."""
        return NoState if settings.coding is None else CodesState

    @classmethod
    def in_memory(cls, matrix: NDArray[Any], unit: bool, settings: BackendSettings, device: torch.device) -> Backend:
        """An exact search of the vectors, or of their codes."""
        if settings.coding is None:
            return Exact(matrix, device)
        coder = Coder.fit(matrix, settings.coding)
        return Exact(coder.encode(matrix), device, coder)

    def build(self) -> State:
        """Fit the codes to the vectors, and write them."""
        if self.settings.coding is None:
            return {}
        coder = Coder.fit(self.matrix, self.settings.coding)
        state = {"codes": f"codes.{len(self.matrix)}.bin", "coder": f"coder.{len(self.matrix)}.bin"}
        append_array(self.folder / state["coder"], 0, np.stack([coder.offset, coder.scale]))
        self._append(coder, 0, state)
        return state

    def extend(self, start: int, state: State) -> State:
        """Append codes."""
        coder = self._coder(state)
        if coder is None:
            return state
        if not all(coder.covers(self.matrix[place : place + VECTORS_AT_ONCE]) for place in self._places(start)):
            return self.build()
        self._append(coder, start, state)
        return state

    def open(self, state: State, device: torch.device) -> Backend:
        """An exact search of the vectors, or of their codes."""
        coder = self._coder(state)
        if coder is None:
            return Exact(self.matrix, device)
        dtype = np.int8 if coder.coding == "int8" else np.uint8
        shape = (len(self.matrix), coder.width())
        return Exact(map_array(self.folder / state["codes"], dtype, shape, at_least=True), device, coder)

    def _append(self, coder: Coder, start: int, state: State) -> None:
        for place in self._places(start):
            codes = coder.encode(self.matrix[place : place + VECTORS_AT_ONCE])
            append_array(self.folder / state["codes"], place * coder.width(), codes)

    def _places(self, start: int) -> range:
        return range(start, len(self.matrix), VECTORS_AT_ONCE)

    def _coder(self, state: State) -> Coder | None:
        if self.settings.coding is None:
            return None
        numbers = map_array(self.folder / state["coder"], np.float32, (2, self.matrix.shape[1]))
        return Coder(self.settings.coding, *numbers)
