"""What to cite for what was used, as BibTeX."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from apas.errors import InputError


def _entry(head: str, **fields: str) -> str:
    lines = ",\n".join(f"  {name} = {{{text}}}" for name, text in fields.items())
    return f"{head},\n{lines}\n}}"


_PAPER: Final = _entry(
    "@inproceedings{marzari2024rigorous",
    year="2024",
    author="Marzari, Luca and Leofante, Francesco and Cicalese, Ferdinando and Farinelli, Alessandro",
    title="Rigorous Probabilistic Guarantees for Robust Counterfactual Explanations",
    booktitle="Proceedings of the 27th European Conference on Artificial Intelligence (ECAI)",
)
_WILKS: Final = _entry(
    "@article{wilks1941determination",
    author="Wilks, S. S.",
    year="1941",
    title="Determination of Sample Sizes for Setting Tolerance Limits",
    journal="The Annals of Mathematical Statistics",
    volume="12",
    number="1",
    pages="91--96",
)
_CLOPPER_PEARSON: Final = _entry(
    "@article{clopper1934use",
    author="Clopper, C. J. and Pearson, E. S.",
    year="1934",
    title="The Use of Confidence or Fiducial Limits Illustrated in the Case of the Binomial",
    journal="Biometrika",
    volume="26",
    number="4",
    pages="404--413",
)
_INTERVAL_NETWORKS: Final = _entry(
    "@inproceedings{jiang2023formalising",
    year="2023",
    author="Jiang, Junqi and Leofante, Francesco and Rago, Antonio and Toni, Francesca",
    title="Formalising the Robustness of Counterfactual Explanations for Neural Networks",
    booktitle="Proceedings of the AAAI Conference on Artificial Intelligence",
)
_HIGHS: Final = _entry(
    "@article{huangfu2018parallelizing",
    author="Huangfu, Q. and Hall, J. A. J.",
    year="2018",
    title="Parallelizing the Dual Revised Simplex Method",
    journal="Mathematical Programming Computation",
    volume="10",
    number="1",
    pages="119--142",
)
_WACHTER: Final = _entry(
    "@article{wachter2017counterfactual",
    year="2017",
    author="Wachter, Sandra and Mittelstadt, Brent and Russell, Chris",
    title="Counterfactual Explanations without Opening the Black Box: Automated Decisions and the {GDPR}",
    journal="Harvard Journal of Law \\& Technology",
    volume="31",
    number="2",
)
_PROTOTYPES: Final = _entry(
    "@inproceedings{vanlooveren2021interpretable",
    author="Van Looveren, Arnaud and Klaise, Janis",
    year="2021",
    title="Interpretable Counterfactual Explanations Guided by Prototypes",
    booktitle="ECML PKDD",
)
_ROAR: Final = _entry(
    "@inproceedings{upadhyay2021towards",
    year="2021",
    author="Upadhyay, Sohini and Joshi, Shalmali and Lakkaraju, Himabindu",
    title="Towards Robust and Reliable Algorithmic Recourse",
    booktitle="Advances in Neural Information Processing Systems",
)
_OUTLIERS: Final = _entry(
    "@inproceedings{breunig2000lof",
    year="2000",
    author='Breunig, Markus M. and Kriegel, Hans-Peter and Ng, Raymond T. and Sander, J{\\"o}rg',
    title="{LOF}: Identifying Density-Based Local Outliers",
    booktitle="Proceedings of ACM SIGMOD",
)

#: By the name of a class or its alias, in small letters without underscores, what it rests on besides the paper.
_RESTS_ON: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        **dict.fromkeys(("sampling", "rays", "maxshift", "maxshifts", "outputranges"), (_WILKS,)),
        **dict.fromkeys(("certificates", "counterfactuals", "paper", "confirm", "enumeration", "attack"), ()),
        **dict.fromkeys(("robustfraction", "fractioncurves"), (_CLOPPER_PEARSON,)),
        **dict.fromkeys(("interval", "intervalbounds", "linear", "linearbounds"), (_INTERVAL_NETWORKS,)),
        **dict.fromkeys(("exact", "cascade"), (_INTERVAL_NETWORKS, _HIGHS)),
        **dict.fromkeys(("milp", "milpsource"), (_INTERVAL_NETWORKS, _HIGHS)),
        **dict.fromkeys(("robust", "robustoptimum"), (_WILKS, _HIGHS)),
        **dict.fromkeys(("neighbours", "nearestneighbours", "given", "refit", "refitbounds"), ()),
        **dict.fromkeys(("cuts", "cuttingplanes"), (_HIGHS,)),
        **dict.fromkeys(("validity", "l1", "l0", "linf", "cost", "distancetodata", "violations"), ()),
        "deltavalidity": (_INTERVAL_NETWORKS,),
        "wachter": (_WACHTER,),
        "prototype": (_PROTOTYPES,),
        "roar": (_ROAR,),
        "lof": (_OUTLIERS,),
    }
)


def citation(*used: Any) -> str:
    """What to cite, as BibTeX: the software, the paper whose method it implements, and what else was used.

    Parameters
    ----------
    *used : object
        Methods, sources, searches or metrics: a class, an object of it, or its name, such as ``Exact()``,
        ``apas.Roar`` or ``"wachter"``.

    Returns
    -------
    str
        One entry per work, each once.

    Examples
    --------
    >>> [line for line in citation("roar").splitlines() if line.startswith("@")]
    ['@software{apas,', '@inproceedings{marzari2024rigorous,', '@inproceedings{upadhyay2021towards,']
    """
    software = _entry(
        "@software{apas",
        author="{The apas developers}",
        version=sys.modules["apas"].__version__,
        title="apas: certificates for counterfactual explanations under model change",
    )
    found = dict.fromkeys([software, _PAPER])
    for one in used:
        name = one if isinstance(one, str) else getattr(one, "__name__", type(one).__name__)
        rests_on = _RESTS_ON.get(name.lower().replace("_", ""))
        if rests_on is None:
            known = ", ".join(_RESTS_ON)
            raise InputError(f"`used` of citation must name methods, sources or metrics ({known}), got {one!r}.")
        found.update(dict.fromkeys(rests_on))
    return "\n\n".join(found)
