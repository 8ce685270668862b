from apas.paper.data_folder import (
    DATASETS as DATASETS,
    data_folder as data_folder,
    data_from as data_from,
    dataset_path as dataset_path,
)
from apas.paper.loans import (
    CATEGORICAL as CATEGORICAL,
    LOAN_FEATURES as LOAN_FEATURES,
    NUMERIC as NUMERIC,
    make_loans as make_loans,
)
