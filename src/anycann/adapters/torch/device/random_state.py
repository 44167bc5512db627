"""Seeds and states of the npus' generators: `torch.npu.manual_seed` and its like."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from anycann.adapters.torch.device import devices
from anycann.adapters.torch.device.generators import default_generator


class _DefaultGenerators:
    """`torch.npu.default_generators`: one for each npu, made when asked for."""

    def __len__(self) -> int:
        return devices.count()

    def __getitem__(self, index: int) -> Any:
        return default_generator(range(devices.count())[index])

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(len(self)))


default_generators = _DefaultGenerators()


def manual_seed(seed: int) -> None:
    """Seed the current npu's generator."""
    default_generator(devices.current()).manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every npu's generator."""
    for generator in default_generators:
        generator.manual_seed(int(seed))


def seed() -> int:
    """Seed the current npu's generator with a number nobody chose, and return it."""
    return int(default_generator(devices.current()).seed())


def seed_all() -> int:
    """Seed every npu's generator with one number nobody chose, and return it."""
    chosen = seed()
    manual_seed_all(chosen)
    return chosen


def initial_seed() -> int:
    """The seed of the current npu's generator."""
    return int(default_generator(devices.current()).initial_seed())


def get_rng_state(device: Any = "npu") -> Any:
    """The state of an npu's generator: a ByteTensor on the cpu."""
    return default_generator(devices.index_of(device)).get_state()


def get_rng_state_all() -> list[Any]:
    """The states of all npus' generators."""
    return [generator.get_state() for generator in default_generators]


def set_rng_state(new_state: Any, device: Any = "npu") -> None:
    """Give an npu's generator a state that `get_rng_state` returned."""
    default_generator(devices.index_of(device)).set_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    """Give every npu's generator its state."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
