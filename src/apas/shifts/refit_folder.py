"""A folder of refits: a model file each, and `refits.json`, which says how they were made and tells them apart."""

from __future__ import annotations

import json
import os
from pathlib import Path

from apas._atomic import write_text
from apas._fields import Fields
from apas.display.progress import Progress
from apas.errors import InputError, Unsupported
from apas.models.base import Model
from apas.models.digest import model_digest
from apas.models.files.formats import load_model, save_model
from apas.models.files.json import parse_json

MANIFEST = "refits.json"


class RefitFolder:
    """Refits that are kept as they are finished; what is there is read at once, the models when they are asked for."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            self.path = Path(folder)
            raw = (self.path / MANIFEST).read_bytes() if (self.path / MANIFEST).exists() else None
        except TypeError:
            raise InputError(f"`folder` must be the name of a folder, got {type(folder).__name__}.") from None
        except (OSError, ValueError) as error:
            raise InputError(f"`folder` {str(folder)!r} cannot be read: {error}.") from None
        self.recipe: tuple[str, str, int] | None = None  # in words, as a fingerprint, and what it draws from
        self.count, self.digests = 0, dict[str, str]()
        if raw is None:
            return
        file = self.path / MANIFEST
        about = Fields.of(parse_json(file, raw, finite=True), str(file))
        about.only("format", "version", "process", "recipe", "entropy", "count", "refits")
        about.choice("format", "apas-refits")
        if about.integer("version") != 1:
            raise about.wrong("version", "1; use a newer apas")
        self.recipe = about.text("process"), about.digest("recipe"), about.entropy("entropy")
        self.count, kept = about.integer("count", least=1), about.inner("refits")
        if self.count > 10**6:
            raise about.wrong("count", "at most a million")
        kept.only(*map(self.name, range(self.count)))
        self.digests = {name: kept.digest(name) for name in kept.content}

    @staticmethod
    def name(i: int) -> str:
        """The file of refit number i."""
        return f"refit-{i:04d}.apas"

    def begin(self, process: str, recipe: str, entropy: int, count: int) -> None:
        """Set out to make refits, or go on with those that are there, which must be made in the same way."""
        ours = process, recipe, entropy
        for what, told, here in zip(("process", "settings", "seed"), ours, self.recipe or ours, strict=True):
            if told != here:
                raise InputError(
                    f"`folder` of retrain must be for these refits, but {str(self.path)!r} holds others: their {what} "
                    f"{'are' if what == 'settings' else 'is'} another; name another folder."
                )
        self.recipe, self.count = ours, max(count, self.count)
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            self._write()
        except OSError as error:
            raise InputError(f"`folder` of retrain cannot be written: {error.strerror or error}.") from None

    def _write(self) -> None:
        process, recipe, entropy = self.recipe or ("", "", 0)
        told = {"format": "apas-refits", "version": 1, "process": process, "recipe": recipe, "entropy": hex(entropy)}
        told |= {"count": self.count, "refits": dict(sorted(self.digests.items()))}
        write_text(self.path / MANIFEST, json.dumps(told, indent=1) + "\n")

    def keep(self, i: int, model: Model) -> None:
        """Write refit number i, and then that it is there."""
        try:
            save_model(model, self.path / self.name(i))
        except Unsupported as error:
            raise Unsupported(f"`folder` of retrain cannot keep model number {i}; leave it out: {error}") from error
        self.digests[self.name(i)], self.count = model_digest(model), max(self.count, i + 1)
        self._write()

    def read(self, i: int) -> Model:
        """Refit number i, which must be the one that was written."""
        name = self.name(i)
        model = load_model(self.path / name)
        if model_digest(model) != self.digests[name]:
            told = f"is not the model that {MANIFEST} tells of; delete it, and run the same retrain again"
            raise InputError(f"{self.path / name} {told}.")
        return model

    def has(self, i: int) -> bool:
        """Whether refit number i is finished."""
        return self.name(i) in self.digests and (self.path / self.name(i)).exists()

    def read_all(self) -> list[Model]:
        """All refits, none of which may be missing: to leave one out would make it another process."""
        if self.recipe is None:
            raise InputError(f"{str(self.path)!r} is not a folder of refits: it has no {MANIFEST}; see apas.retrain.")
        there = sum(self.has(i) for i in range(self.count))
        if there < self.count:
            told = f"holds {there} of {self.count} refits; run the same retrain again to finish"
            raise InputError(f"{str(self.path)!r} {told}.")
        with Progress(self.count, "reading refits") as progress:
            models = []
            for i in range(self.count):
                models.append(self.read(i))
                progress.advance(1)
        return models
