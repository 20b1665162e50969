"""ELMo: words from their characters, two bidirectional LSTM layers, and a mix of all layers.

S texts in a batch, T words of the longest, C characters of a word, P width of one direction.

Source: Peters et al. 2018, with the arithmetic of allenai/bilm-tf, whose weight files are read.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from filbert.errors import ConfigError, FormatError

# Characters are bytes of UTF-8; these follow. All are shifted by one: 0 is beyond the text's end.
_TEXT_BEGIN, _TEXT_END, _BEGIN, _END, _PADDING = range(256, 261)
NUM_CHARACTERS = 262
WORD_LENGTH = 50


@dataclass(frozen=True)
class ElmoConfig:
    """The sizes of an ELMo; the defaults are those of `elmo-small`.

    `filters` has the characters and the number of filters of each convolution; `clip` bounds the
    magnitude of cells and projected states.
    """

    width: int = 128  # P
    cells: int = 512
    layers: int = 2
    character_width: int = 16
    filters: tuple[tuple[int, int], ...] = ((1, 16), (2, 32), (3, 64), (4, 128), (5, 128))
    highways: int = 1
    clip: float | None = None


def characters(text: Sequence[str]) -> np.ndarray:
    """Return the character ids of a text's words, with its begin and its end, int64 (T, C)."""
    marks = ([_TEXT_BEGIN], *(list(w.encode()[: WORD_LENGTH - 2]) for w in text), [_TEXT_END])
    ids = np.full((len(marks), WORD_LENGTH), _PADDING)
    for row, letters in zip(ids, marks, strict=True):
        row[: len(letters) + 2] = [_BEGIN, *letters, _END]
    return ids + 1


class CharacterEncoder(nn.Module):
    """Convolutions over a word's characters, highway layers and a projection."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        width = sum(count for _, count in config.filters)
        self.table = nn.Embedding(NUM_CHARACTERS, config.character_width)
        self.filters = nn.ModuleList(
            nn.Conv1d(config.character_width, count, size) for size, count in config.filters
        )
        # Of each highway layer the transformation and the gate.
        self.highways = nn.ModuleList(
            nn.ModuleList((nn.Linear(width, width), nn.Linear(width, width)))
            for _ in range(config.highways)
        )
        self.project = nn.Linear(width, config.width)

    def forward(self, ids_NC: Tensor) -> Tensor:
        """Return the vectors of N words, (N, P)."""
        letters = self.table(ids_NC).mT
        values = torch.cat([F.relu(layer(letters).amax(-1)) for layer in self.filters], -1)
        for layer in self.highways:
            transform, gate = cast("nn.ModuleList", layer)
            share = torch.sigmoid(gate(values))
            values = share * F.relu(transform(values)) + (1 - share) * values
        return self.project(values)  # type: ignore[no-any-return]


class ProjectedLSTM(nn.Module):
    """An LSTM of one direction whose states are projected and, if wanted, bounded.

    Source: Sak et al. 2014, section 2, without peepholes. Gates are in the order input, new cell,
    forget, output.
    """

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.clip = config.clip
        self.input = nn.Linear(config.width, 4 * config.cells)
        self.state = nn.Linear(config.width, 4 * config.cells, bias=False)
        self.project = nn.Linear(config.cells, config.width, bias=False)
        with torch.no_grad():
            # Forget gates begin with a bias of one, so that cells stay.
            self.input.bias.chunk(4)[2].fill_(1.0)

    def _bounded(self, values: Tensor) -> Tensor:
        return values if self.clip is None else values.clamp(-self.clip, self.clip)

    def forward(self, inputs_TSP: Tensor) -> Tensor:
        """Return the states, (T, S, P)."""
        steps, states = self.input(inputs_TSP), []
        state = inputs_TSP.new_zeros(inputs_TSP.shape[1:])
        cell = inputs_TSP.new_zeros((len(state), self.project.in_features))
        for step in steps:
            gates = step + self.state(state)
            enter, new, forget, leave = gates.chunk(4, -1)
            cell = torch.sigmoid(forget) * cell + torch.sigmoid(enter) * torch.tanh(new)
            cell = self._bounded(cell)
            state = self._bounded(self.project(torch.sigmoid(leave) * torch.tanh(cell)))
            states.append(state)
        return torch.stack(states)


class Elmo(nn.Module):
    """The layers of ELMo."""

    def __init__(self, config: ElmoConfig) -> None:
        super().__init__()
        self.config = config
        self.characters = CharacterEncoder(config)
        self.forwards, self.backwards = (
            nn.ModuleList(ProjectedLSTM(config) for _ in range(config.layers)) for _ in range(2)
        )
        # Larger than torch's own, whose states are so small that learning begins slowly.
        for layer in self.modules():
            if isinstance(layer, nn.Linear | nn.Conv1d):
                nn.init.normal_(layer.weight, std=layer.weight[0].numel() ** -0.5)

    def forward(self, ids_STC: Tensor, lengths_S: Tensor) -> list[Tensor]:
        """Return the vectors of each layer, (S, T, 2 P): the forward half, then the backward half.

        The first layer has the vectors of the words themselves, twice.
        """
        count, longest, _ = ids_STC.shape
        # A word that occurs several times is read once.
        distinct, places = torch.unique(ids_STC.flatten(0, 1), dim=0, return_inverse=True)
        words_TSP = self.characters(distinct)[places].view(count, longest, -1).transpose(0, 1)
        layers, ahead, behind = [torch.cat((words_TSP, words_TSP), -1)], words_TSP, words_TSP
        # Texts are turned around where they are, so that padding stays at the end.
        order_TS = (lengths_S - 1 - torch.arange(longest)[:, None]) % longest
        order_TS1 = torch.where(order_TS < lengths_S, order_TS, torch.arange(longest)[:, None])
        turn = order_TS1[..., None].expand_as(words_TSP)
        for number, (left, right) in enumerate(zip(self.forwards, self.backwards, strict=True)):
            skip = (ahead, behind) if number else (0, 0)
            ahead = left(ahead) + skip[0]
            behind = right(behind.gather(0, turn)).gather(0, turn) + skip[1]
            layers.append(torch.cat((ahead, behind), -1))
        return [layer.transpose(0, 1) for layer in layers]


class ScalarMix(nn.Module):
    """The sum of layers by trained shares, times a trained factor: section 3.2, equation 1."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self.shares = nn.Parameter(torch.zeros(count))
        self.factor = nn.Parameter(torch.ones(()))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        """Return the mix, of the shape of one layer."""
        shares = torch.softmax(self.shares, 0)
        return self.factor * torch.einsum("n,n...->...", shares, torch.stack(list(layers)))


# Published weights


def read_allennlp(path: Path, options: Mapping[str, Any]) -> Elmo:
    """Read weights as AllenNLP publishes them, an HDF5 file, with their options (its JSON file).

    Raises:
        ConfigError: h5py is not installed.
        FormatError: A tensor is missing or of another shape.
    """
    try:
        import h5py
    except ImportError as error:
        raise ConfigError("These weights need h5py; install it with: pip install h5py") from error
    cnn, lstm = options["char_cnn"], options["lstm"]
    model = Elmo(
        ElmoConfig(
            width=lstm["projection_dim"], cells=lstm["dim"], layers=lstm["n_layers"],
            character_width=cnn["embedding"]["dim"],
            filters=tuple((size, count) for size, count in cnn["filters"]),
            highways=cnn["n_highway"], clip=lstm.get("cell_clip"),
        )
    )  # fmt: skip
    try:
        with h5py.File(path, "r") as file, torch.no_grad():
            for ours, theirs in _published(model, file).items():
                model.get_parameter(ours).copy_(torch.from_numpy(np.ascontiguousarray(theirs)))
    except (KeyError, OSError, RuntimeError) as error:
        raise FormatError(f"{path} is not a file of ELMo's weights: {error}") from error
    return model


def _published(model: Elmo, file: Any) -> dict[str, np.ndarray]:
    """Return our parameters out of a file: it has matrices (in, out) and no row for padding."""
    weights = {"characters.table.weight": np.pad(file["char_embed"][...], ((1, 0), (0, 0)))}
    for at in range(len(model.characters.filters)):
        weights[f"characters.filters.{at}.weight"] = file[f"CNN/W_cnn_{at}"][0].transpose(2, 1, 0)
        weights[f"characters.filters.{at}.bias"] = file[f"CNN/b_cnn_{at}"][...]
    for at in range(len(model.characters.highways)):
        for part, name in enumerate(("transform", "carry")):
            ours = f"characters.highways.{at}.{part}"
            weights[f"{ours}.weight"] = file[f"CNN_high_{at}/W_{name}"][...].T
            weights[f"{ours}.bias"] = file[f"CNN_high_{at}/b_{name}"][...]
    weights["characters.project.weight"] = file["CNN_proj/W_proj"][...].T
    weights["characters.project.bias"] = file["CNN_proj/b_proj"][...]
    for direction, side in enumerate(("forwards", "backwards")):
        for at in range(model.config.layers):
            cell = file[f"RNN_{direction}/RNN/MultiRNNCell/Cell{at}/LSTMCell"]
            both, bias = cell["W_0"][...].T, cell["B"][...].copy()
            # The authors' cell adds 1 to the gate that keeps cells.
            np.split(bias, 4)[2][...] += 1.0
            inputs, states = np.split(both, [model.config.width], axis=1)
            weights |= {
                f"{side}.{at}.input.weight": inputs, f"{side}.{at}.input.bias": bias,
                f"{side}.{at}.state.weight": states,
                f"{side}.{at}.project.weight": cell["W_P_0"][...].T,
            }  # fmt: skip
    return weights
