"""Random numbers in a captured graph: generators are after a capture where they were before, and each replay draws on from where they are.

States that are read and set while a graph captures are read and set again in each replay: checkpointing of activations does so.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from anycann.adapters.torch.device import devices, random_state
from anycann.adapters.torch.device.generators import default_generator
from anycann.support.records import dataclass

_SEED = slice(0, 8)  # bytes of a state


@dataclass(frozen=True)
class _Again:
    """What a replay does with a generator; `operator` is its name."""

    operator: str
    run: Callable[[], object]


class Randomness:
    """The generators of one capture. Steps of replays are added to `entries`."""

    def __init__(self, entries: list[Any], further: list[Any]):
        self._entries = entries
        self._before: dict[int, tuple[Any, Any]] = {}  # generator and its state, by the generator's identity
        for generator in (default_generator(devices.current()), *further):
            self.keep(generator)
        random_state.observers.append(self)

    def keep(self, generator: Any) -> None:
        """Remember the state of a generator that the capture is about to draw from."""
        if generator is not None and id(generator) not in self._before:
            self._before[id(generator)] = generator, generator.get_state()

    def end(self) -> None:
        """The end of the capture: the generators are where they were."""
        random_state.observers.remove(self)
        for generator, state in self._before.values():
            generator.set_state(state)

    # ---- what programs do to states
    def state_was_read(self, generator: Any, state: torch.Tensor) -> None:
        """A replay reads it into the same tensor."""
        self._entries.append(_Again("get_rng_state", lambda: state.copy_(generator.get_state())))

    def state_is_set(self, generator: Any, state: torch.Tensor) -> None:
        """A replay sets what is in the tensor then. Raises RuntimeError for a state that began with another seed."""
        self._check(generator, int.from_bytes(state[_SEED].numpy().tobytes(), "little"))
        self._entries.append(_Again("set_rng_state", lambda: generator.set_state(state)))

    def is_seeded(self, generator: Any, seed: int) -> None:
        """A replay seeds it again. Raises RuntimeError for another seed than the generator's."""
        self._check(generator, seed)
        self._entries.append(_Again("manual_seed", lambda: generator.manual_seed(seed)))

    def _check(self, generator: Any, seed: int) -> None:
        self.keep(generator)
        if seed % 2**64 != generator.initial_seed() % 2**64:
            raise RuntimeError(
                "NPUGeneratorImpl::set_current_seed can be called during stream capture only if new seed is the same as the original seed. "
                f"Got {seed}, the generator of {generator.device} began with {generator.initial_seed()}"
            )
