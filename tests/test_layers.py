"""Imports go one way, `import apas` is light, and the public names are pinned."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import statements

import apas

SOURCE = Path(apas.__file__).parent
#: From top to bottom: a layer may import those below it. Leaves import nothing of ours but other leaves.
ORDER = [
    "cli",
    "paper",
    "report",
    "contracts",
    "metrics",
    "counterfactuals",
    "certification",
    "worst_case",
    "optimize",
    "shifts",
    "models",
]
BESIDE = {"theory": "paper", "experiments": "paper", "datasets": "paper"}
LEAVES = {
    "stats",
    "display",
    "errors",
    "_validation",
    "_lazy",
    "_random",
    "_atomic",
    "_sanitise",
    "_typing",
    "_parallel",
    "_fields",
}


def layer(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def imports_of(path: Path) -> set[str]:
    """Modules of ours that a file imports, also inside functions, but not for type checkers only."""
    found, tree = set(), ast.parse(path.read_text())
    for_checkers = [n for n in statements(tree) if isinstance(n, ast.If) and ast.unparse(n.test) == "TYPE_CHECKING"]
    skipped = {id(child) for node in for_checkers for child in statements(node)}
    for node in statements(tree):
        if id(node) in skipped:
            continue
        if isinstance(node, ast.ImportFrom) and node.module and node.module.split(".")[0] == "apas":
            found |= {f"apas.{a.name}" for a in node.names} if node.module == "apas" else {node.module}
        elif isinstance(node, ast.Import):
            found |= {a.name for a in node.names if a.name.split(".")[0] == "apas"}
    return found


def allowed(importer: str, imported: str) -> bool:
    if imported in LEAVES or importer == imported:
        return importer not in LEAVES or imported in LEAVES
    if importer in LEAVES:
        return False
    if imported in BESIDE:
        return importer in ("cli", "report", "paper")
    if imported not in ORDER:
        return importer in ("cli", "paper")  # the command line uses the public names, like any user
    return ORDER.index(BESIDE.get(importer, importer)) < ORDER.index(imported)


FILES = sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE or p.stem not in ("__init__", "__main__"))


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(SOURCE)))
def test_imports_go_one_way(path):
    importer = path.relative_to(SOURCE).parts[0].removesuffix(".py")
    for module in imports_of(path):
        assert allowed(importer, layer(module)), f"{importer} must not import {module}"


def test_the_rule_can_fail():
    assert not allowed("models", "certification")
    assert not allowed("stats", "models")
    assert not allowed("display", "certification")
    assert allowed("cli", "certification")


HEAVY = ("torch", "sklearn", "pandas", "scipy", "highspy", "typer", "matplotlib", "joblib")


def loaded(code: str, names: tuple[str, ...]) -> list[str]:
    """Which of these modules are there after running the code."""
    code = f"import sys\n{code}\nprint(*[m for m in {names!r} if m in sys.modules])"
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()


def test_import_is_light():
    assert loaded("import apas", ("numpy", "apas.certification.api", *HEAVY)) == []
    assert loaded("import apas.cli.app", ("numpy", *HEAVY)) == ["typer"]
    assert loaded("import apas\nfor name in apas._PLACES: getattr(apas, name)", ("numpy", *HEAVY)) == ["numpy"]


@pytest.mark.parametrize("package", ["apas", "apas.datasets", "apas.experiments"])
def test_names_on_first_use_are_those_that_type_checkers_see(package):
    module = importlib.import_module(package)
    tree = ast.parse(Path(module.__file__).with_suffix(".pyi").read_text())
    lines = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    seen = {(node.module, alias.name) for node in lines for alias in node.names}
    assert all(alias.asname == alias.name for node in lines for alias in node.names)  # else it is not passed on
    assert seen == {(place, name) for name, place in module._PLACES.items()}
    assert {name for _, name in seen} == set(module.__all__) <= set(dir(module))
    for place, name in seen:
        found = importlib.import_module(place) if place != package else sys.modules[package]
        assert getattr(module, name) is getattr(found, name)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        module.nothing


def test_verb_and_package_of_one_name():
    assert loaded(
        "import apas.certification.methods.sampling, apas\nassert callable(apas.certify)", ("apas.certification.api",)
    ) == ["apas.certification.api"]


def test_certifying_a_numpy_network_needs_no_frames():
    code = (
        "import sys, apas\n"
        "net = apas.FeedForward([[[1.0]]], [[0.5]])\n"
        "apas.certify(net, [[1.0]], 0.1, target=1, rng=0)\n"
        "print([m for m in ('sklearn', 'pandas', 'scipy') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


PUBLIC = """
Calibration EllipsoidShifts NextUpdate calibrate_delta calibrate_offers
ApasError Attack AuditReport Candidate CandidateSource Cascade Certificate Certificates Counterfactual
Counterfactuals CuttingPlanes DataChange DerivedSeed Enumeration Evaluation Every Exact Feature FeatureSpace FeedForward FractionCurve FractionCurves
GaussianShifts Given GuaranteeWarning InputError InputNoise IntervalBounds IntervalNetwork JointShifts Ledger LinearBounds LinfShifts LpShifts
MaxShift MaxShifts Menu MenuItem MenuStatus MilpSource MissingExtra Model Most NearestNeighbours ObservedShifts OutputRange OutputRanges ParametricModel Predictor
Parameters Prototype Region RowRegion RefitBounds RefitReport RetrainedModels Roar RobustOptimum Sampling ShiftReport ShiftSet SparseShifts Status UnsafeFile
Unsupported Verdict VerifyReport Wachter allowed_failures as_model audit certify citation datasets estimate_delta
evaluate experiments generate load_certificates load_model max_shift measure_shift menu metrics output_range retrain robust_fraction
sample_size save_certificates save_model stats theory verify write_letter write_report
"""


def test_public_names():
    assert sorted(apas.__all__) == sorted(PUBLIC.split())
    for name in apas.__all__:
        assert getattr(apas, name) is not None
    assert set(apas.__all__) <= set(dir(apas))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        apas.nothing


def test_source_files_have_a_readable_size():
    for path in FILES:
        lines = len(path.read_text().splitlines())
        assert lines <= 610, f"{path.relative_to(SOURCE)} has {lines} lines"
