"""The meeting of torchrun's agents of several nodes: torch's rendezvous, with its state signed by the run's key.

That state is a pickle in a store to which anyone who reaches the port can write; reading an unsigned one would
run its code.
"""

from __future__ import annotations

from torch.distributed.elastic.rendezvous import (
    RendezvousHandler,
    RendezvousParameters,
    RendezvousStateError,
    rendezvous_handler_registry,
)
from torch.distributed.elastic.rendezvous.c10d_rendezvous_backend import create_backend
from torch.distributed.elastic.rendezvous.dynamic_rendezvous import RendezvousBackend, Token, create_handler

from gpudoc.process.seal import KEY, Seal, SealError, seal_here

# its name in --rdzv-backend
BACKEND = "gpudoc"


class SignedBackend(RendezvousBackend):
    """Wraps another backend: signs its state, and refuses unsigned state."""

    def __init__(self, inner: RendezvousBackend, seal: Seal, run_id: str) -> None:
        self._inner, self._seal, self._run_id = inner, seal, run_id

    @property
    def name(self) -> str:
        """The name of the backend."""
        return BACKEND

    def get_state(self) -> tuple[bytes, Token] | None:
        """The state and its token, None while there is none; RendezvousStateError for one that is not signed."""
        found = self._inner.get_state()
        return None if found is None else (self._open(found[0]), found[1])

    def set_state(self, state: bytes, token: Token | None = None) -> tuple[bytes, Token, bool] | None:
        """Write `state`; returns the state in the store afterwards, its token, and whether it is `state`."""
        found = self._inner.set_state(self._seal.sign(self._run_id, state), token)
        return None if found is None else (self._open(found[0]), *found[1:])

    def _open(self, signed: bytes) -> bytes:
        try:
            return self._seal.open(self._run_id, signed)
        except SealError as problem:
            raise RendezvousStateError(f"the rendezvous store contains {problem}") from problem


def register() -> None:
    """Register the backend with torchrun."""
    rendezvous_handler_registry.register(BACKEND, _create)


def _create(parameters: RendezvousParameters) -> RendezvousHandler:
    seal = seal_here()
    if seal is None:
        raise SealError(f"without a key for this run ({KEY}) no node can join")
    backend, store = create_backend(parameters)
    return create_handler(store, SignedBackend(backend, seal, parameters.run_id), parameters)
