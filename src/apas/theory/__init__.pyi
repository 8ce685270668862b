from apas.theory.gadgets import (
    LemmaCheck as LemmaCheck,
    PaperGadgets as PaperGadgets,
    PaperReduction as PaperReduction,
    paper_reduction as paper_reduction,
)
from apas.theory.hardness import (
    Answer as Answer,
    DistinctRealizations as DistinctRealizations,
    Formula as Formula,
    Neighbourhood as Neighbourhood,
    Reduction as Reduction,
    distinct_realizations as distinct_realizations,
    failing_neighbourhood as failing_neighbourhood,
    read_dimacs as read_dimacs,
    reduction as reduction,
)
from apas.theory.shift_notions import (
    LEMMA_EXAMPLE as LEMMA_EXAMPLE,
    NaturalEvidence as NaturalEvidence,
    PlausibleExample as PlausibleExample,
    UnboundedFamily as UnboundedFamily,
    is_naturally_occurring as is_naturally_occurring,
    lipschitz_bound as lipschitz_bound,
)
