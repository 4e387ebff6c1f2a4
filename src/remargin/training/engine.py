"""The engine under training: it computes the vectors of a batch and, from their gradients, the weights' gradients.

The loss stands between the two, whatever it is. So the same few lines train packed, padded, replayed from CUDA graphs,
and in micro-batches that are computed twice because memory holds only some of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from remargin.errors import InputError
from remargin.model.compute import Compute, copy_together
from remargin.model.cpu import on_all_cores
from remargin.model.dropping import SeedOfPart, StateOfDevice
from remargin.model.encoder import BiEncoder
from remargin.model.packing import Packed, pack, split
from remargin.model.tokenizer import Tokens
from remargin.training.settings import FitSettings

# Where padding costs, micro-batches of texts of similar lengths: what fits a CPU's caches, and what fills a GPU.
TOKENS_AT_ONCE = (1200, 65_536)
# With more tokens in a step, a GPU is busy for longer than it takes to launch its kernels one by one.
GRAPH_TOKENS = 100_000
MOST_GRAPHS = 32
# From this many steps on, the minute that torch.compile takes at the start is won back.
COMPILE_STEPS = 5000
# What training keeps of a token in each layer, in numbers: some more than measured.
KEPT = 30

T = TypeVar("T")
R = TypeVar("R")


class MicroBatches(NamedTuple):
    """A batch's texts in parts that are computed one after another.

    Attributes:
        parts: the texts, packed.
        order: the place in the batch of each text, part after part.
        tokens: how many the texts have.
        computed: how many are computed: the tokens and the padding.
    """

    parts: list[Packed]
    order: NDArray[np.int64]
    tokens: int
    computed: int


class Encodes(Protocol):
    """What a validator needs of an engine: `Engine` has it, and several engines of several devices together."""

    device: torch.device

    def parts(self, tokens: Tokens) -> tuple[list[Packed], NDArray[np.int64]]:
        """Texts packed once, and the order in which `evaluate` will give their vectors."""

    def evaluate(self, parts: Sequence[Packed]) -> Tensor:
        """Vectors of the texts, without dropout."""


class Engine:
    """Runs an encoder forward and backward on a device.

    Args:
        model: the encoder; its gradients are filled.
        settings: engine, compile, token_budget, attention_dropout, steps.
        device: where.
        dtype: to compute in.
        sample: lengths of the texts of a typical batch, which decides whether graphs pay.
        here: how many processes train on this machine, and share the memory of its CPU.
    """

    def __init__(
        self,
        model: BiEncoder,
        settings: FitSettings,
        device: torch.device,
        dtype: torch.dtype,
        sample: NDArray[np.int64],
        here: int = 1,
    ) -> None:
        self.device = device
        self.compute = Compute(model, dtype, settings.engine, settings.attention_dropout)
        self.longest = max(model.query_length, model.document_length)
        self.budget = settings.token_budget or _budget(model, device, dtype, here)
        self._one_piece = self.compute.packed and device.type == "cuda"
        self._at_once = min(self.budget, TOKENS_AT_ONCE[device.type != "cpu"])
        tokens = int(sample.sum())
        graphs = self._one_piece and settings.graphs and tokens <= min(self.budget, GRAPH_TOKENS)
        pays = self._one_piece and settings.steps >= COMPILE_STEPS
        self.compiles = pays if settings.compile == "auto" else settings.compile == "on"
        self._run = torch.compile(self.compute, dynamic=True) if self.compiles else self.compute
        self._side_by_side = self.compute.side_by_side and not self.compiles
        self._texts, self._dimension = len(sample), model.dimension
        self._multiple = max(64, 1 << round(np.log2(max(1, tokens) / 40))) if graphs else 1
        self._buffers = [torch.zeros_like(master) for master in self.compute.masters]
        self._graphs = _Graphs(self) if graphs else None

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *_: object) -> None:
        self._graphs = None  # they hold this engine and gigabytes

    def describe(self) -> str:
        """How it runs, for people."""
        how = [self.compute.describe(self.device)]
        how += ["compiled"] if self.compiles else []
        how += ["CUDA graphs"] if self._graphs is not None else []
        longer = ", longer texts layer by layer" if self.longest > self.budget else ""
        return f"engine: {', '.join(how)}, at most {self.budget:,} tokens at once{longer}"

    def split(self, tokens: Tokens) -> MicroBatches:
        """Texts as this engine takes them. The loader's thread calls this, ahead of training."""
        real = int(tokens.lengths.sum())
        if self._one_piece:
            groups = list(split(tokens.lengths, self.budget, by_length=False))
            multiple = self._multiple if len(groups) == 1 else 1
            packed = [pack(tokens, group, self.longest, multiple, self._texts) for group in groups]
            computed = sum(len(part.ids) for part in packed)
        else:
            groups = list(split(tokens.lengths, self._at_once, by_length=True))
            packed = [pack(tokens, group) for group in groups]
            computed = real if self.compute.packed else sum(part.longest * (len(part.bounds) - 1) for part in packed)
        if self.device.type == "cuda":
            packed = [part.pin() for part in packed]
        order = np.concatenate([*groups, np.arange(0)])  # of no texts, too
        return MicroBatches(packed, order, real, computed)

    @contextmanager
    def embed(self, batch: MicroBatches) -> Iterator[Tensor]:
        """Vectors of the batch's texts, (n, d), in their order: a leaf tensor, on which the block computes a loss.

        When the block ends, the gradient that its `backward` left on the vectors goes on to the model's weights, and is
        added to the gradients that they have. So there is no order of calls to keep. A block that raises changes no
        gradient.
        """
        self.compute.train()
        self.compute.pull()
        graphs, self._graphs = self._graphs, None  # one is replayed at a time: a block inside this one does without
        try:
            order = torch.from_numpy(batch.order).to(self.device, non_blocking=True)
            one = len(batch.parts) == 1 and not self._too_long(batch.parts[0])
            graph = graphs.forward(batch.parts[0]) if graphs is not None and one else None
            passes = self._forward(batch) if graph is None else graph
            made = [each.vectors.detach() for each in ([passes] if isinstance(passes, _Graph) else passes)]
            flat = torch.cat([*made, self._no_vectors()])[: len(order)]  # without a graph's fillers
            vectors = torch.empty_like(flat).index_copy_(0, order, flat).requires_grad_()
            yield vectors
            if vectors.grad is not None:
                self._backward(passes, vectors.grad[order])
        finally:
            self._graphs = graphs

    def _forward(self, batch: MicroBatches) -> list[_Forward]:
        """The forward pass of each part. If not all fit into memory, they keep no activations and run once more."""
        again = batch.computed > self.budget and len(batch.parts) > 1

        def run(job: tuple[Packed, SeedOfPart | StateOfDevice | None]) -> _Forward:
            part, draws = job
            with draws.first() if draws else nullcontext(), torch.set_grad_enabled(not again):
                return _Forward(part, self._vectors(part), draws if again else None)

        jobs = ((part.to(self.device), self._draws(again)) for part in batch.parts)
        return list(self._each(run, jobs, len(batch.parts)))

    def _too_long(self, part: Packed) -> bool:
        """Whether a part is one text that is above the budget by itself: its layers are computed twice, one by one."""
        return len(part.ids) > self.budget

    def _vectors(self, part: Packed) -> Tensor:
        vectors: Tensor = self.compute(part, frugal=True) if self._too_long(part) else self._run(part)
        return vectors

    def _draws(self, again: bool) -> SeedOfPart | StateOfDevice | None:
        if self._side_by_side:
            return SeedOfPart()
        return StateOfDevice(self.device) if again else None

    def _each(self, work: Callable[[T], R], items: Iterable[T], count: int) -> Iterator[R]:
        return on_all_cores(work, items, count) if self._side_by_side else map(work, items)

    def _backward(self, passes: list[_Forward] | _Graph, of_vectors: Tensor) -> None:
        """From the gradients of the vectors, in the order of the passes, to those of the weights: through buffers."""
        masters, buffers = self.compute.masters, {buffer.data_ptr() for buffer in self._buffers}
        present = [master.grad for master in masters if master.grad is not None]
        before = [gradient.clone() if gradient.data_ptr() in buffers else gradient for gradient in present]
        if isinstance(passes, _Graph):
            passes.replay_backward(of_vectors)
        elif not passes:  # there were no texts
            torch._foreach_zero_(self._buffers)
        else:
            of_parts = of_vectors.split([len(forward.vectors) for forward in passes])
            jobs = ((passes.pop(0), of_part) for of_part in of_parts)  # activations go when they are done with
            for number, gradients in enumerate(self._each(self._gradients, jobs, len(of_parts))):
                self._add_up(gradients, first=number == 0)
        if before:
            torch._foreach_add_(before, self._buffers)
        for master, gradient in zip(masters, before or self._buffers, strict=True):
            master.grad = gradient

    def _gradients(self, job: tuple[_Forward, Tensor]) -> list[Tensor]:
        forward, of_part = job
        if forward.draws is None:
            return self.compute.gradients(forward.vectors, of_part)
        with forward.draws.again():
            vectors = self._vectors(forward.part)
        return self.compute.gradients(vectors, of_part)

    def _add_up(self, gradients: list[Tensor], first: bool) -> None:
        """Add a part's gradients to those in the buffers, of which the first part's are the first."""
        dense = [(buffer, made) for buffer, made in zip(self._buffers, gradients, strict=True) if not made.is_sparse]
        if first:
            copy_together(*zip(*dense, strict=True))
        else:
            torch._foreach_add_([buffer for buffer, _ in dense], [made.float() for _, made in dense])
        for buffer, made in zip(self._buffers, gradients, strict=True):
            if made.is_sparse:
                buffer = buffer.zero_() if first else buffer
                buffer.index_add_(0, made._indices()[0], made._values().float())

    def parts(self, tokens: Tokens, rows: NDArray[np.int64] | None = None) -> tuple[list[Packed], NDArray[np.int64]]:
        """Texts, all or those of some rows, packed once for `evaluate`, and the order in which it will give their
        vectors.
        """
        rows = np.arange(len(tokens.lengths)) if rows is None else rows
        groups = [rows[group] for group in self.compute.groups(tokens.lengths[rows], self.device)]
        longest = self.longest if self._one_piece else None
        return [pack(tokens, group, longest).to(self.device) for group in groups], np.concatenate([*groups, rows[:0]])

    def evaluate(self, parts: Sequence[Packed]) -> Tensor:
        """Vectors of texts without dropout, part after part."""
        self.compute.eval()
        self.compute.pull()

        def run(part: Packed) -> Tensor:
            with torch.no_grad():
                vectors: Tensor = self._run(part)
                return vectors

        made = map(run, parts) if self.compiles else self.compute.each(run, parts, len(parts))
        return torch.cat([*made, self._no_vectors()])

    def _no_vectors(self) -> Tensor:
        """For `torch.cat`, which needs something to join where a device has no texts: a batch may be that small."""
        return torch.zeros(0, self._dimension, dtype=self.masters[0].dtype, device=self.device)

    @property
    def masters(self) -> list[torch.nn.Parameter]:
        """The weights that are trained."""
        return self.compute.masters

    @property
    def operations_per_token(self) -> int:
        """Floating-point operations of training on a token, forward and backward, attention's own left out."""
        return 6 * self.compute.linear_weights


class _Forward(NamedTuple):
    """A forward pass: what it computed, and what is needed to compute it once more if it kept no activations."""

    part: Packed
    vectors: Tensor
    draws: SeedOfPart | StateOfDevice | None


class _Graph(NamedTuple):
    """A recorded forward and backward pass. It may compute more vectors than texts: the last ones are fillers'."""

    inputs: Packed
    vectors: Tensor
    of_vectors: Tensor
    forward: torch.cuda.CUDAGraph
    backward: torch.cuda.CUDAGraph

    def replay_backward(self, of_vectors: Tensor) -> None:
        """Replay the backward pass of what was replayed last: gradients of the weights, into the engine's buffers."""
        self.of_vectors[: len(of_vectors)].copy_(of_vectors)
        self.of_vectors[len(of_vectors) :].zero_()  # the fillers'
        self.backward.replay()


class _Graphs:
    """Forward and backward passes recorded once for each shape: replaying one costs a single launch."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._made: dict[tuple[int, int], _Graph] = {}
        self._pool = torch.cuda.graph_pool_handle()
        self._most = MOST_GRAPHS

    def forward(self, part: Packed) -> _Graph | None:
        """Replay the forward pass. Its vectors are valid until the next call; None if there are too many shapes."""
        shape = (len(part.ids), len(part.bounds))
        if shape not in self._made:
            if len(self._made) >= self._most:
                return None
            random = StateOfDevice(self._engine.device)
            try:
                self._made[shape] = self._record(part.to(self._engine.device))
            except torch.OutOfMemoryError:  # without another graph, there may be room
                self._most = len(self._made)
                return None
            finally:
                random.restore()  # what was drawn while recording does not count
        graph = self._made[shape]
        for mine, theirs in zip(graph.inputs[:4], part[:4], strict=True):
            mine.copy_(theirs, non_blocking=True)
        graph.forward.replay()
        return graph

    def _record(self, part: Packed) -> _Graph:
        engine, compute = self._engine, self._engine.compute
        copies = {name: getattr(part, name).clone() for name in part._fields[:4]}
        inputs = part._replace(**copies, fillers=0)  # another batch of this shape may have more texts
        for _ in range(2):  # kernels are chosen and compiled before anything is recorded
            vectors = engine._run(inputs)
            compute.gradients(vectors, torch.zeros_like(vectors))
        del vectors
        forward, backward = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
        # The loader's thread pins memory meanwhile, which must not spoil the recording.
        alone: dict[str, Any] = {"pool": self._pool, "capture_error_mode": "thread_local"}
        with torch.cuda.graph(forward, **alone):
            vectors = engine._run(inputs)
        of_vectors = torch.zeros_like(vectors)
        with torch.cuda.graph(backward, **alone):
            copy_together(engine._buffers, compute.gradients(vectors, of_vectors))
        return _Graph(inputs, vectors.detach(), of_vectors, forward, backward)


def _budget(model: BiEncoder, device: torch.device, dtype: torch.dtype, here: int) -> int:
    """How many tokens a forward pass that keeps its activations may have: as many as fit into half of the memory.

    Of a CPU's memory, only what other programs leave counts. Which parts are computed twice changes no gradient.
    """
    config: Any = model.backbone.config
    gpu = device.type == "cuda"
    memory = torch.cuda.get_device_properties(device).total_memory if gpu else _available_memory() // here
    layers = getattr(config, "num_hidden_layers", 12)
    per_token = KEPT * int(config.hidden_size) * int(layers) * dtype.itemsize
    return max(1024, int(memory / 2 / per_token))


def _available_memory() -> int:
    """How many bytes of this machine's memory programs can still take; where nothing says so, all that it has."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    says = Path("/proc/meminfo")
    for line in says.read_text().splitlines() if says.exists() else []:
        if line.startswith("MemAvailable:"):
            memory = 1024 * int(line.split()[1])
    return memory


def require_precision(precision: str) -> None:
    """Refuse a precision that this machine does not train in: float16 is slow on a CPU, and much of it is missing.

    >>> require_precision("bf16")
    """
    if precision == "16" and not torch.cuda.is_available():
        raise InputError("precision 16 needs a GPU, and there is none", do="use bf16, 32, or auto")


def matmul_rate(device: torch.device, dtype: torch.dtype) -> float:
    """Floating-point operations per second that this device reaches in a large matrix product."""
    size, repeats = (8192, 8) if device.type == "cuda" else (1024, 4)
    own = torch.Generator(device).manual_seed(0)  # the run's random numbers are not to be touched
    a = torch.randn(size, size, device=device, dtype=dtype, generator=own)
    best = float("inf")
    for _ in range(3):
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        start = time.perf_counter()
        for _ in range(repeats):
            a @ a
        if device.type == "cuda":
            torch.cuda.synchronize(device)
        best = min(best, time.perf_counter() - start)
    return 2 * size**3 * repeats / best
