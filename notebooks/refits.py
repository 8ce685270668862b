# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Boosted trees: offers that survive a refit
#
# A bank decides with XGBoost, and trains it again every month. Trees have no weights that move a little: the change
# *is* a refit. So offers are made against refits: some are searched, others certify, and in the end a new model judges.
#
# All data are generated; nobody in here is real. It needs the library `xgboost`.

# %%
from xgboost import XGBClassifier

import apas
from apas.datasets import NUMERIC, make_loans

loans = make_loans(1200, rng=0)
table, approved = loans[list(NUMERIC)], loans["approved"].astype(int)
table.head()

# %% [markdown]
# ## What may change
#
# Nobody gets younger, and amounts are those that people speak of.

# %%
space = apas.FeatureSpace.from_frame(
    table,
    immutable=["age", "years_employed", "dependants"],
    increase=["income"],
    decrease=["debt_ratio", "loan_amount", "existing_loans"],
    steps={"income": 50, "loan_amount": 500, "debt_ratio": 0.01},
)
model = XGBClassifier(n_estimators=40, max_depth=3, learning_rate=0.2, subsample=0.8, n_jobs=1, random_state=0)
model.fit(table, approved)
rejected = table[model.predict(table) == 0].iloc[:6]
print(f"{(model.predict(table) == 0).mean():.0%} are rejected")

# %% [markdown]
# ## Refits
#
# 120 models of one process: a bootstrap sample of the table and a seed each. The last 93 certify: a claim about 95 % of
# all refits at confidence 0.95 then allows one failure. The others are searched, by reading their trees.

# %%
refits = apas.retrain(model, table, approved, n_models=120, rng=1)
offers = apas.generate(
    model,
    rejected,
    None,
    space=space,
    background=table,
    shifts=apas.ObservedShifts(refits),
    method=apas.Sampling(coverage=0.95, confidence=0.95, n_samples=93),
    rng=0,
)
print(offers.summary())
offers.changes()

# %%
print(offers.certificates[0])

# %% [markdown]
# ## The next month
#
# The bank fits its model again. Did the offers hold?

# %%
later = apas.retrain(model, table, approved, n_models=1, rng=2)[0]
audit = apas.audit(offers.certificates, later)
print(audit.summary())
audit

# %% [markdown]
# Had there been 59 refits and no more, all of them would have been needed to certify. Then the search looks at the
# margin of the model alone.

# %%
few = apas.ObservedShifts(refits[:59])
alone = apas.generate(
    model,
    rejected,
    None,
    space=space,
    background=table,
    shifts=few,
    source=apas.RobustOptimum(alone=True),
    method=apas.Sampling(coverage=0.95, confidence=0.95),
    rng=0,
)
print(f"{alone.status.tolist().count(apas.Status.FOUND)} of {len(alone)} found without a refit to search")
