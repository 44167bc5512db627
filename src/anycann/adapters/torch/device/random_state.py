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
observers: list[Any] = []  # graphs that capture: told before a generator is seeded or set, and after its state was read


def manual_seed(seed: int) -> None:
    """Seed the current npu's generator."""
    _seed(default_generator(devices.current()), int(seed))


def manual_seed_all(seed: int) -> None:
    """Seed every npu's generator."""
    for generator in default_generators:
        _seed(generator, int(seed))


def _seed(generator: Any, seed: int) -> None:
    for observer in observers:
        observer.is_seeded(generator, seed)
    generator.manual_seed(seed)


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
    generator = default_generator(devices.index_of(device))
    state = generator.get_state()
    for observer in observers:
        observer.state_was_read(generator, state)
    return state


def get_rng_state_all() -> list[Any]:
    """The states of all npus' generators."""
    return [get_rng_state(index) for index in range(len(default_generators))]


def set_rng_state(new_state: Any, device: Any = "npu") -> None:
    """Give an npu's generator a state that `get_rng_state` returned."""
    generator = default_generator(devices.index_of(device))
    for observer in observers:
        observer.state_is_set(generator, new_state)
    generator.set_state(new_state)


def set_rng_state_all(new_states: Any) -> None:
    """Give every npu's generator its state."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
