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
# # Loans, from the model to the audit
#
# A bank rejects people and tells them what would have to change. Then it trains its model further. This notebook
# shows how to make offers that still hold after that, and how to find out whether they did.
#
# All data are generated; nobody in here is real. Open it with `jupytext --to ipynb loans.py`, or as it is in an
# editor that knows `# %%` cells.

# %%
import copy
import math

from sklearn.neural_network import MLPClassifier

import apas
from apas.datasets import NUMERIC, make_loans

features = list(NUMERIC)
loans = make_loans(2000, rng=0)
loans[[*features, "approved"]].head()

# %% [markdown]
# ## What may change
#
# A *feature space* says what an application may look like and what the bank may ask for: nobody gets younger, incomes
# go up and debts down, in amounts that people speak of. It also scales the numbers to 0 to 1 for the network.

# %%
space = apas.FeatureSpace.from_frame(
    loans[features],
    immutable=["age", "years_employed", "dependants"],
    increase=["income"],
    decrease=["debt_ratio", "loan_amount", "existing_loans"],
    ranges={"income": (300, 15_000), "loan_amount": (500, 60_000)},
    steps={"income": 50, "loan_amount": 500, "debt_ratio": 0.01},
    scale="minmax",
)


def encoded(table):
    """What the network sees of a table."""
    return space.encode(table[features])


network = MLPClassifier((8,), alpha=0.01, learning_rate_init=0.01, tol=1e-3, max_iter=500, random_state=0)
network.fit(encoded(loans[:1500]), loans["approved"][:1500])
print(f"decides {network.score(encoded(loans[1500:]), loans['approved'][1500:]):.0%} of new applications as the lender")

# %% [markdown]
# ## How far will the model move?
#
# The bank will train the network further with new applications. It can rehearse that with some that it has: `delta`
# is the largest change of a weight or bias that it saw, rounded up.


# %%
def trained_further(model, X, y):
    """Four more passes over the rows."""
    for _ in range(4):
        model.partial_fit(X, y)
    return model


rehearsed = apas.estimate_delta(
    network, encoded(loans[1500:]), loans["approved"][1500:].to_numpy(), update=trained_further, fraction=1.0, rng=0
)
delta = math.ceil(100 * float(rehearsed)) / 100
print(rehearsed.summary())
print("delta =", delta)

# %% [markdown]
# ## Offers that survive it
#
# `apas.generate` looks for small allowed changes, and certifies each one: of all models whose weights and biases
# differ from this one by at most `delta`, at least 99.5 % accept it, with confidence 0.999.

# %%
bank = space.bind(network)  # the network behind the scaling: it takes applications as they are
rejected = loans.loc[network.predict(encoded(loans)) == 0, features].head(6)
offers = apas.generate(bank, rejected, delta, target=1, space=space, rng=0)
offers

# %%
offers.plot()

# %%
print(offers.certificates[0].sentence())

# %% [markdown]
# ## The worst case
#
# 99.5 % of the shifts is not every shift. How far may the model move until *some* shift breaks an offer, and how far
# until too many do? `provable` is the first, `delta` the second.

# %%
largest = apas.max_shift(bank, offers.points[offers.found], target=1, rng=1)
largest

# %%
largest.plot()

# %% [markdown]
# ## A year later
#
# The certificates are kept in a file. Then the world has changed a little (`drift=1`), and the network is trained on
# new applications, which nothing above has seen. The audit asks the new model whether it keeps what was promised.

# %%
apas.save_certificates(offers, "promises.json", max_shifts=largest)
next_year = make_loans(500, drift=1.0, rng=1)
retrained = trained_further(copy.deepcopy(network), encoded(next_year), next_year["approved"].to_numpy())
report = apas.audit("promises.json", space.bind(retrained), base=bank, space=space)
report

# %%
report.plot()

# %% [markdown]
# `HELD` is a promise kept. `BROKEN_INSIDE` is one of the few that a claim about 99.5 % of the shifts leaves out;
# `BROKEN_OUTSIDE` means that the model moved further than `delta`. For broken ones the table names the nearest
# repair.
#
# `apas.write_report("promises.json", "report.html", model=bank, audit=report)` puts all of it on one page, and `apas
# audit` does the same in a build, which fails if a promise is broken.
