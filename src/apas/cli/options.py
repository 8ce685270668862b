"""Arguments and options that several commands share, and what they are read as: models, rows, methods, shift sets.

A command writes ``seed: options.Seed = None``: the type and the help are here, the default is its own. Options that
belong together are the fields of a dataclass, which a command with `group_options` takes as one parameter. What differs
between commands (`--method`, `--coverage`, `--samples`) is written in each.
"""

import functools
import inspect
import re
import reprlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_type_hints

from typer import Argument, Option

import apas
from apas.cli.output import STREAMED, check_outputs, give
from apas.cli.rows import as_numbers, is_number, open_table, read_rows, whole_numbers
from apas.cli.workers import workers
from apas.errors import InputError

if TYPE_CHECKING:
    from apas.certification.question import Method


def split_words(text: str) -> list[str]:
    """The words of a text with commas between them."""
    return [word.strip() for word in text.split(",")]


def parse_target(text: str, model: "apas.Model", *, predicted: bool = True) -> Any:
    """The class that is written as `text`; or "predicted", if that may be asked for."""
    matches = [label for label in model.classes if str(label) == text]
    if matches:
        return matches[0]
    if predicted and text == "predicted":
        return text
    known = ", ".join(str(label) for label in model.classes)
    also = ' or "predicted"' if predicted else ""
    raise InputError(f"`--target` must be one of the model's classes ({known}){also}, got {text!r}.")


def parse_pairs(texts: Sequence[str] | None, option: str) -> dict[str, str]:
    """Pairs that were written as FEATURE=VALUE, each feature once."""
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = (part.strip() for part in text.partition("="))
        if not name or not equals or not value or name in found:
            what = f"twice for {name!r}" if name in found else repr(text)
            raise InputError(f"`{option}` must be FEATURE=VALUE, once per feature, got {what}.")
        found[name] = value
    return found


def parse_spans(texts: Sequence[str] | None) -> dict[str, Any]:
    """What `--region` says of each feature: FEATURE="at least", LOW..HIGH, a number, or levels with commas."""
    return {name: _span(value) for name, value in parse_pairs(texts, "--region").items()}


def _span(text: str) -> Any:
    low, dots, high = text.partition("..")
    ends = [end.strip() for end in (low, high)]
    if dots and all(not end or is_number(end) for end in ends):
        return tuple(float(end) if end else None for end in ends)
    if text in ("at least", "at most"):
        return text
    return float(text) if is_number(text) else as_numbers(split_words(text))


def parse_tolerance(texts: Sequence[str] | None) -> float | dict[str, float] | None:
    """One share of ranges, or numbers by feature."""
    if not texts:
        return None
    if len(texts) == 1 and is_number(texts[0]):
        return float(texts[0])
    pairs = parse_pairs(texts, "--tolerance")
    if strange := [value for value in pairs.values() if not is_number(value)]:
        raise InputError(f"`--tolerance` must be a share, or FEATURE=NUMBER, got {strange[0]!r}.")
    return {name: float(value) for name, value in pairs.items()}


#: Which methods each option goes with; those that are named nowhere go with all.
GOES_WITH: dict[str, tuple[str, ...]] = dict.fromkeys(("confidence", "samples", "test"), ("sampling",))
GOES_WITH |= {"coverage": ("sampling", "enumeration"), "time_limit": ("exact", "cascade", "enumeration")}
#: By what evidence.
MethodName = StrEnum("MethodName", "sampling interval linear exact cascade")
#: What may move.
Kind = StrEnum("Kind", "weight bias")


def pick_method(name: StrEnum, **options: float | str | None) -> "Method | str":
    """What the library takes as its method; an option that does not go with it is refused."""
    given: dict[str, Any] = {option: value for option, value in options.items() if value is not None}
    for option in given:
        fitting = [method for method in GOES_WITH[option] if method in type(name).__members__]
        if name not in fitting:
            listed, flag = " or ".join(f"`--method {method}`" for method in fitting), option.replace("_", "-")
            raise InputError(f"`--{flag}` goes with {listed}, got `--method {name}`; leave it out.")
    if name == "sampling":
        if "samples" in given:
            given["n_samples"] = given.pop("samples")
        return apas.Sampling(**given)
    if name == "enumeration":
        return apas.Enumeration(**given)
    if not given:
        return str(name)
    exact = apas.Exact(**given)
    if name == "exact":
        return exact
    return apas.Cascade(*(exact if getattr(m, "name", "") == exact.name else m for m in apas.Cascade().methods))


def optional(help: str, otherwise: str = "none", default: Any = None) -> Any:
    """An option that may be left out; its help says what is taken otherwise."""
    return Option(default, help=help, show_default=otherwise)


# What is asked about.
ModelFile = Annotated[
    Path, Argument(help="Model file (.json, .safetensors, .onnx, .apas, .skops, .ubj, .txt, .cbm, .pt or .pth).")
]
ROWS = Argument(help="CSV file with a header line and a row per explanation, or a Parquet file.")
RowsFile = Annotated[Path, ROWS]
Target = Annotated[str, Option(help='Class the rows must keep, or "predicted".')]
Delta = Annotated[float | None, Option(help="How far the parameters may move.", show_default="needed; 1 with --refits")]

CertificatesFile = Annotated[Path, Argument(help="Certificate file (.json, .jsonl or .parquet).")]

# By what evidence.
Coverage = Annotated[
    float | None, Option(help="Share of the shifts that must keep the class (sampling).", show_default="0.995")
]
Samples = Annotated[int | None, Option(help="How many shifted models to draw (sampling).")]
Confidence = Annotated[float | None, Option(help="Confidence of the statement (sampling).", show_default="0.999")]
Seed = Annotated[int | None, Option(min=0, help="Seed of the draws, to repeat a run.")]
Simultaneous = Annotated[bool, Option("--simultaneous", help="Let the confidence hold for all rows together.")]

_BOUNDED = "Delta bounds each change (linf), their sum (l1), length (l2) or L_P norm (lp:P), or each of N (sparse:N)."

# How it runs, and what is printed.
Jobs = Annotated[int | None, Option(help="Number of processes, -1 for all cores.", show_default="1")]
Dask = Annotated[
    str | None,
    Option(metavar="ADDRESS", help="Run on this Dask cluster, such as tcp://scheduler:8786.", show_default="none"),
]
Json = Annotated[bool, Option("--json", help="Print one JSON document instead.")]
Save = Annotated[Path | None, Option(help="Write what was certified to this certificate file (.json).")]

#: What a change costs.
Distance = StrEnum("Distance", "l1 linf")


@dataclass(eq=False, repr=False)
class OfferOptions:
    """What offers may be, and what they have to bear."""

    background: Path | None = Option(None, help="CSV file with known rows, such as the training table.")
    space: Path | None = optional("TOML file: what the features may be.", "from --background")
    target: str | None = optional("The wanted class.", "the other one of two, if no row has it")
    distance: Distance = Option(Distance.l1, help="Mean (l1) or largest (linf) change.")
    tolerance: list[str] | None = optional(
        "By how much numbers may be off: a share of ranges, or FEATURE=NUMBER, several times."
    )
    beyond: bool = Option(False, "--beyond", help="Going further than told must be fine as well.")

    def open(self, net: "apas.Model", rows: Path) -> tuple[Any, dict[str, Any]]:
        """The table of a file, which can be read in blocks, and what the library takes besides."""
        space = None if self.space is None else apas.FeatureSpace.from_toml(self.space)
        names = None if space is None else space.names
        table = open_table(rows, net, names)
        known = None if self.background is None else whole_numbers(read_rows(self.background, net, names))
        target = None if self.target is None else parse_target(self.target, net, predicted=False)
        bears = {"tolerance": parse_tolerance(self.tolerance), "beyond": self.beyond}
        return table, {"target": target, "space": space, "background": known, "distance": self.distance.value, **bears}


@dataclass(eq=False, repr=False)
class LayerOptions:
    """What a model file does not tell about its layers."""

    activation: str | None = optional("Activation of the hidden layers (.pt, .pth); with commas, one per layer.")
    output: str | None = optional("What the last layer gives: sigmoid, softmax or identity (.pt, .pth).")

    def read(self, path: Path, **said: Any) -> "apas.Model":
        """Read a model file."""
        names: Any = None if self.activation is None else split_words(self.activation)
        activation = names[0] if names and len(names) == 1 else names
        return apas.load_model(path, activation=activation, output=self.output, **said)


@dataclass(eq=False, repr=False)
class SeedOptions:
    """Where the draws come from."""

    seed: Seed = None
    derived: bool = Option(False, "--derived", help="Let model, rows and claim decide the seed; the risk is 2^-64.")
    bits: int | None = optional("The risk of --derived is 2^-BITS.", "64")

    def pick(self, confidence: float | None) -> Any:
        """What the library takes as its `rng`, beside this confidence."""
        if self.bits is not None and not self.derived:
            raise InputError("`--bits` goes with `--derived`; leave it out.")
        why = {"--seed": "leaves nothing to choose", "--confidence": "has a risk of 2^-64, or what `--bits` says"}
        given = [name for name, value in zip(why, (self.seed, confidence), strict=True) if value is not None]
        if given and self.derived:
            raise InputError(f"`{given[0]}` goes without `--derived`, which {why[given[0]]}; leave one of them out.")
        return apas.DerivedSeed(*([] if self.bits is None else [self.bits])) if self.derived else self.seed


@dataclass(eq=False, repr=False)
class ShiftOptions:
    """What may move, and how."""

    shifts: str = Option("linf", metavar="SET", help=_BOUNDED)
    relative: bool = Option(False, "--relative", help="Delta is a share of each size (linf, sparse).")
    only: Kind | None = Option(None, help="Move only weights or only biases.")
    refits: Path | None = Option(None, help="Ask the refits in this folder instead of shifts.")

    def check_delta(self, delta: float | None) -> None:
        """Refuse that no delta is given, unless there are refits, which are what they are."""
        if delta is None and self.refits is None:
            raise InputError("Missing option '--delta': say how far the parameters may move, or name `--refits`.")

    def pick(self) -> "apas.ShiftSet":
        """The set of shifts that is asked for."""
        if self.refits is not None:
            if self.relative or self.only is not None or self.shifts != "linf":
                raise InputError("`--refits` goes without `--shifts`, `--relative` and `--only`; leave them out.")
            return apas.ObservedShifts(apas.RetrainedModels.load(self.refits))
        kinds, number = ("weight", "bias") if self.only is None else (self.only.value,), self.shifts.partition(":")[2]
        if self.shifts == "linf":
            return apas.LinfShifts(relative=self.relative, kinds=kinds)
        if re.fullmatch(r"sparse:\d{1,9}", self.shifts):
            return apas.SparseShifts(int(number), relative=self.relative, kinds=kinds)
        if not re.fullmatch(r"l[12]|lp:\d{1,9}(\.\d{1,9})?", self.shifts):
            told = "linf, l1, l2, lp:P or sparse:N, such as lp:0.5 or sparse:5"
            raise InputError(f"`--shifts` must be {told}, got {reprlib.repr(self.shifts)}.")
        if self.relative:
            told = "`--relative` goes with `--shifts linf` or `sparse:N`"
            raise InputError(f"{told}, got `--shifts {self.shifts}`; leave it out.")
        return apas.LpShifts(float(number or self.shifts[1:]), kinds=kinds)


@dataclass(eq=False, repr=False)
class BlockOptions:
    """Where it runs, and into which file if it does so block by block."""

    jobs: Jobs = None
    dask: Dask = None
    out: Path | None = Option(None, help="Work block by block into this file (.jsonl, .parquet).")
    resume: bool = Option(False, "--resume", help="Go on with the run into --out that was stopped.")

    def streams(self, **without: Any) -> bool:
        """Whether the run goes block by block; `without` are the options that then cannot be."""
        block_by_block = self.out is not None and self.out.suffix.lower() in STREAMED
        if not block_by_block and self.resume:
            raise InputError("`--resume` goes with `--out FILE.jsonl` or `.parquet`; leave it out.")
        for name, given in without.items() if block_by_block else ():
            if given:
                flag = f"`--{name.replace('_', '-')}`"
                raise InputError(f"{flag} goes without `--out {self.out}`, whose rows are asked about in blocks.")
        return block_by_block

    def stream(self, *asked: Any, **how: Any) -> Any:
        """Ask block by block, as `apas.cli.stream.stream` has it."""
        from apas.cli.stream import stream

        return stream(self, *asked, **how)


@dataclass(eq=False, repr=False)
class QuestionOptions(LayerOptions, BlockOptions, ShiftOptions):
    """What `certify` and `max-shift` take besides their evidence."""

    simultaneous: Simultaneous = False
    save: Save = None
    as_json: Json = False

    def whole(self) -> dict[str, Any]:
        """What is about all rows together, and so does not go with blocks."""
        return {"simultaneous": self.simultaneous, "save": self.save, "json": self.as_json}

    def check_outputs(self, *inputs: Path | None) -> None:
        """Refuse files to write that cannot be."""
        if self.out is not None and self.out.suffix.lower() not in STREAMED:
            raise InputError(f"`--out` must end in .jsonl or .parquet, got {str(self.out)!r}; or use --save.")
        check_outputs({"--save": self.save, "--out": self.out}, *inputs)

    def answer(
        self, ask: Any, show: Any, model: Path, rows: Path, target: str, without: dict[str, Any], **more: Any
    ) -> None:
        """Ask about the rows of a file, save what was found, and print it; `without` does not go with blocks."""
        in_blocks, shifts, net = self.streams(**without, **self.whole()), self.pick(), self.read(model)
        asked = {"target": parse_target(target, net), "shifts": shifts, **more}
        if in_blocks:
            # of proofs, which may take a minute per row, few at a time: what is not in the file yet can be lost
            size = 2048 if more["method"] == "sampling" or hasattr(more["method"], "n_samples") else 64
            files, counts = {"MODEL": model, "ROWS": rows}, "verdict" if ask.__name__ == "certify" else ""
            self.stream(partial(ask, net), open_table(rows, net), files, asked, counts=counts, size=size)
            return
        table = read_rows(rows, net)
        with workers(self.jobs, self.dask) as n_jobs:
            found = ask(net, table, simultaneous=self.simultaneous, n_jobs=n_jobs, **asked)
        give(found, show, as_json=self.as_json, save=self.save)


@functools.cache
def _field_parameters(group: Any) -> list[inspect.Parameter]:
    kinds = get_type_hints(group, include_extras=True)
    place = inspect.Parameter.KEYWORD_ONLY
    return [inspect.Parameter(f.name, place, default=f.default, annotation=kinds[f.name]) for f in fields(group)]


def group_options(command: Callable[..., None]) -> Callable[..., None]:
    """Show Typer the fields of a dataclass as options of their own, in the place of the parameter that takes it."""
    hints = get_type_hints(command, include_extras=True)
    groups: dict[str, Any] = {name: hint for name, hint in hints.items() if is_dataclass(hint)}
    shown: list[inspect.Parameter] = []
    for parameter in inspect.signature(command).parameters.values():
        if parameter.name in groups:
            shown += _field_parameters(groups[parameter.name])
        else:
            shown.append(parameter.replace(annotation=hints[parameter.name]))

    @functools.wraps(command)
    def run(**given: Any) -> None:
        made = {name: group(**{f.name: given.pop(f.name) for f in fields(group)}) for name, group in groups.items()}
        command(**given, **made)

    # Typer and `inspect` would go on to the command behind `__wrapped__`, which has fewer parameters
    del run.__wrapped__
    run.__annotations__ = {parameter.name: parameter.annotation for parameter in shown}
    run.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    return run
