"""Keys and values of many rows of different length, preallocated, and the forwards that use them.

A row is a slot; its context lies at tokens 0..length-1, so there are no holes, and a position is
simply a place. What lies behind a row's end is stale but finite, and every mask hides it. The cache
is handed to transformers' layers in place of its own, which grows by concatenation at every token.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

WIDTH = 8  # widths that are read are multiples of this: fewer shapes, aligned masks


def _cache_name(backbone: nn.Module) -> str:
    """transformers 5.24 calls the argument `cache`; 5.23 knows only `past_key_values`."""
    names = inspect.signature(inspect.unwrap(type(backbone).forward)).parameters
    return "cache" if "cache" in names else "past_key_values"


class SlotCache:
    """[slots, heads, tokens, head_dim] of keys and of values for every layer of one backbone.

    `fresh`, `extend` and `step` are its three forwards; each returns the last hidden states
    [n, T, H]. They differ in what the queries read: the tokens of the same forward; gathered slots;
    the first n slots where they are. Rows may be padded on the right: a padding token writes behind
    its row's end.
    """

    layers: Sequence[Any] = ()  # transformers looks for sliding windows here; there are none

    def __init__(self, backbone: nn.Module) -> None:
        self._backbone = backbone
        self._name = _cache_name(backbone)
        self._keys: list[Tensor] = []
        self._values: list[Tensor] = []
        self.slots, self.tokens = 0, 0
        self._slots = self._positions = torch.empty(0)  # [n], [n, T] that this forward writes
        self._heads_at: dict[int, Tensor] = {}  # where these slots begin, for a number of heads
        self._flat: dict[int, Tensor] = {}  # and where the vectors go, in all of a layer's
        self._reads: Tensor | int | None = None  # gathered slots, the first n slots, the new tokens
        self._width = 0
        self._line: Tensor | None = None  # 0, 1, 2 ...
        weight = next(backbone.parameters())
        self._shown_hidden = (
            weight.new_zeros(()),
            weight.new_full((), torch.finfo(weight.dtype).min),
        )

    # the forwards

    def fresh(self, ids: Tensor, slots: Tensor) -> Tensor:
        """Rows [n, T] from their first token on. No mask: causal attention hides padding behind."""
        self._reads = None
        positions = torch.arange(ids.shape[1], device=ids.device).expand_as(ids)
        return self._forward(ids, slots, positions, None)

    def extend(self, ids: Tensor, slots: Tensor, starts: Tensor, most: int) -> Tensor:
        """The next tokens [n, T] of rows that hold `starts` [n], at most `most`, tokens each."""
        self._reads = slots
        positions = starts[:, None] + torch.arange(ids.shape[1], device=ids.device)
        return self._forward(ids, slots, positions, most + ids.shape[1])

    def step(self, ids: Tensor, slots: Tensor, positions: Tensor, longest: int) -> Tensor:
        """One token [n, 1] at `positions` [n, 1] of each of the slots 0..n-1; `longest` with it."""
        self._reads = len(ids)
        return self._forward(ids, slots, positions, longest)

    def _forward(self, ids: Tensor, slots: Tensor, positions: Tensor, width: int | None) -> Tensor:
        if slots is not self._slots:
            self._slots, self._heads_at = slots, {}
        self._positions, self._flat = positions, {}
        mask = None
        if width is not None:
            self._width = min(-(-width // WIDTH) * WIDTH, self.tokens)
            mask = self._mask(positions)
        inputs = {
            "input_ids": ids,
            "position_ids": positions,
            "attention_mask": mask,
            "use_cache": True,
            self._name: self,
        }
        return self._backbone(**inputs).last_hidden_state

    def _mask(self, positions: Tensor) -> Tensor:
        """[n, 1, T, width], added to the scores: a query sees its own place and those before it."""
        if self._line is None or len(self._line) < self._width:
            self._line = torch.arange(self.tokens, device=positions.device)
        seen = self._line[: self._width] <= positions[:, None, :, None]
        return torch.where(seen, *self._shown_hidden)

    # what transformers' layers and masks ask of a cache

    def update(
        self, keys: Tensor, values: Tensor, layer: int, *_: Any, **__: Any
    ) -> tuple[Tensor, Tensor]:
        """Store keys and values [n, heads, T, head_dim]; return those to attend to."""
        if layer == len(self._keys):
            self._allocate(keys.shape[1], keys.shape[3], keys.dtype, keys.device)
        return self._put(self._keys[layer], keys), self._put(self._values[layer], values)

    def _put(self, store: Tensor, new: Tensor) -> Tensor:
        heads, dim = new.shape[1], new.shape[3]
        if heads not in self._flat:
            if heads not in self._heads_at:
                slots = self._slots[:, None] * heads
                rows = slots + torch.arange(heads, device=slots.device)
                self._heads_at[heads] = rows[:, :, None] * self.tokens
            self._flat[heads] = (self._heads_at[heads] + self._positions[:, None]).flatten()
        store.view(-1, dim).index_copy_(0, self._flat[heads], new.reshape(-1, dim))
        if self._reads is None:
            return new
        seen = store[:, :, : self._width]
        return seen[: self._reads] if isinstance(self._reads, int) else seen[self._reads]

    def get_mask_sizes(self, query_length: int, layer_idx: int = 0) -> tuple[int, int]:
        """Asked for only without a mask: `fresh`, where queries see what they bring."""
        return query_length, 0

    def get_query_offset(self, layer_idx: int = 0) -> int:
        return 0

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return 0

    # memory

    def reserve(self, slots: int, tokens: int) -> None:
        """Make room; doubling keeps the copies rare, and nothing ever shrinks."""
        if slots <= self.slots and tokens <= self.tokens:
            return
        old_slots, old_tokens = self.slots, self.tokens
        self._heads_at = {}
        if slots > old_slots:
            self.slots = max(slots, 2 * old_slots)
        if tokens > old_tokens:
            self.tokens = -(-max(tokens, 2 * old_tokens) // 64) * 64
        for stores in (self._keys, self._values):
            for layer, store in enumerate(stores):
                heads, dim = store.shape[1], store.shape[3]
                grown = store.new_zeros(self.slots, heads, self.tokens, dim)
                grown[:old_slots, :, :old_tokens] = store
                stores[layer] = grown

    def _allocate(
        self, heads: int, dim: int, dtype: torch.dtype, device: torch.device | str
    ) -> None:
        for stores in (self._keys, self._values):
            # zeros: what is hidden has weight 0, and 0 times a nan would still be one
            shape = (self.slots, heads, self.tokens, dim)
            stores.append(torch.zeros(shape, dtype=dtype, device=device))

    def move(self, source: int, target: int, tokens: int) -> None:
        """Copy a row of that length to another slot."""
        for store in (*self._keys, *self._values):
            store[target, :, :tokens] = store[source, :, :tokens]

    def read(self, slot: int, tokens: int) -> Tensor:
        """A copy of a row: [layers, 2, heads, tokens, head_dim]."""
        if not self._keys:  # nothing but prompts of a single token so far
            return torch.empty(0, 2, 0, tokens, 0)
        stores = (store[slot, :, :tokens] for pair in self._pairs() for store in pair)
        return torch.stack(list(stores)).unflatten(0, (-1, 2))

    def write(self, slot: int, row: Tensor) -> None:
        """Put a row that was read before, possibly by another process, into a slot."""
        heads, tokens, dim = row.shape[2:]
        self.reserve(slot + 1, tokens)
        for layer, (keys, values) in enumerate(row):
            if layer == len(self._keys):
                device = next(self._backbone.parameters()).device
                self._allocate(heads, dim, row.dtype, device)
            self._keys[layer][slot, :, :tokens] = keys
            self._values[layer][slot, :, :tokens] = values

    def _pairs(self) -> Iterator[tuple[Tensor, Tensor]]:
        return zip(self._keys, self._values, strict=True)


def padded(rows: Sequence[Sequence[int]], device: torch.device) -> Tensor:
    """Token ids [n, longest], zeros on the right."""
    longest = max(map(len, rows))
    filled = [[*row, *[0] * (longest - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.long, device=device)
