"""The checkpoint of a training run, from which it continues exactly where it was: safetensors and JSON, no pickle."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, TypedDict

import safetensors.torch
import torch
from torch import Tensor, nn

from remargin.errors import InputError
from remargin.files.atomic import new_folder
from remargin.files.checksums import sha256
from remargin.files.headers import read_header, write_header
from remargin.files.shapes import Count, FieldsOf

FORMAT = "remargin-checkpoint-4"
STATE = "state.safetensors"


@dataclass
class Progress:
    """How far a training run is: steps and triplets, validations, the best of them, and how many since had no gain.

    `began_alike` says that the encoder mapped all texts to nearly one vector before it was trained.
    """

    step: Count = 0
    triplets: Count = 0
    best: float | None = None
    best_step: int | None = None
    best_triplets: int | None = None
    without_gain: int = 0
    validations: list[tuple[int, dict[str, float]]] = field(default_factory=list)
    seconds: float = 0.0
    began_alike: bool = False


class CheckpointHeader(TypedDict):
    """How far a training run is, what must not change, and the checksum of the rest of its checkpoint."""

    format: str
    progress: Annotated[dict[str, Any], FieldsOf(Progress)]
    precision: dict[str, Any] | None
    fixed: dict[str, Any]
    sha256: str


def save_checkpoint(
    folder: Path,
    progress: Progress,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    precision: Any,
    fixed: dict[str, Any] | None = None,
    random_states: Sequence[dict[str, Tensor]] = (),
) -> None:
    """Write weights, optimiser state and random state; the old checkpoint stays until the new one is whole.

    `fixed` holds the settings that must be the same when the training run is resumed. Of several processes that train
    together, one writes for all: `random_states` has the random state of each, the own one first.
    """
    tensors: dict[str, Tensor] = {f"rng.{name}": state for name, state in random_state().items()}
    for rank, of_rank in enumerate(random_states):
        tensors |= {f"rng.{rank}.{name}": state for name, state in of_rank.items() if rank}
    for prefix, module in modules.items():
        tensors |= {f"{prefix}.{name}": tensor for name, tensor in module.state_dict().items()}
    state = optimiser.state_dict()["state"]
    for number, of_parameter in state.items():
        tensors |= {f"optimiser.{number}.{name}": torch.as_tensor(value) for name, value in _flat(of_parameter)}
    with new_folder(folder, overwrite=True, marker="progress.json") as out:
        whole = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in tensors.items()}
        safetensors.torch.save_file(whole, out / STATE)
        write_header(
            out / "progress.json",
            {
                "format": FORMAT,
                "progress": asdict(progress),
                "precision": json.loads(json.dumps(precision)),
                "fixed": fixed or {},
                "sha256": sha256(out / STATE),
            },
        )


def load_checkpoint(
    folder: Path,
    modules: dict[str, nn.Module],
    optimiser: torch.optim.Optimizer,
    fixed: dict[str, Any] | None = None,
    rank: int = 0,
) -> tuple[Progress, dict[str, Any]]:
    """Put everything back, and return how far the training run was and the state of its precision plugin.

    The random state is that of the process of this rank; if there was none, it stays as it is.
    """
    remedy = "start the training run anew in another folder"
    header = read_header(folder / "progress.json", CheckpointHeader, FORMAT, remedy)
    before = header["fixed"]
    if changed := [name for name, value in (fixed or {}).items() if value != before.get(name, value)]:
        problem = f"the training run was started with another {' and another '.join(changed)}"
        raise InputError(problem, file=folder, do="resume with the same settings, or start another training run")
    if not (folder / STATE).is_file() or sha256(folder / STATE) != header["sha256"]:
        raise InputError("damaged or missing", file=folder / STATE, do=remedy)
    tensors = safetensors.torch.load_file(folder / STATE)
    try:
        for prefix, module in modules.items():
            names = module.state_dict()
            module.load_state_dict({name: tensors[f"{prefix}.{name}"] for name in names})
    except (KeyError, RuntimeError):
        raise InputError("the checkpoint is of another model", file=folder, do=remedy) from None
    state: dict[int, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        if name.startswith("optimiser."):
            _, number, key = name.split(".", 2)
            state.setdefault(int(number), {})[key] = (
                tensor if tensor.shape or tensor.is_floating_point() else tensor.item()
            )
    optimiser.load_state_dict({"state": state, "param_groups": optimiser.state_dict()["param_groups"]})
    prefix = f"rng.{rank}." if rank else "rng."
    _restore_random_state({name.removeprefix(prefix): t for name, t in tensors.items() if name.startswith(prefix)})
    progress = Progress(**header["progress"])
    progress.validations = [(step, values) for step, values in progress.validations]
    return progress, header["precision"] or {}


def _flat(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """A parameter's state without an inner dict, in which bitsandbytes puts the quantised part; it reads both forms."""
    for name, value in state.items():
        if isinstance(value, dict):
            yield from value.items()
        else:
            yield name, value


@contextmanager
def own_random_state() -> Iterator[None]:
    """What a block draws or seeds is its own: afterwards the process's random numbers go on as if it had drawn none.

    >>> torch.manual_seed(0).initial_seed()
    0
    >>> with own_random_state():
    ...     _ = torch.manual_seed(7), torch.rand(3)
    >>> torch.initial_seed()
    0
    """
    before = random_state()
    try:
        yield
    finally:
        _restore_random_state(before)


def random_state() -> dict[str, Tensor]:
    """The state of the random number generators of this process.

    >>> list(random_state())[0]
    'cpu'
    """
    state = {"cpu": torch.get_rng_state()}
    if torch.cuda.is_available():
        state["cuda"] = torch.cuda.get_rng_state()
    return state


def _restore_random_state(state: dict[str, Tensor]) -> None:
    if "cpu" in state:
        torch.set_rng_state(state["cpu"])
    if "cuda" in state and torch.cuda.is_available():
        torch.cuda.set_rng_state(state["cuda"])
