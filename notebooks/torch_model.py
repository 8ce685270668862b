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
# # A PyTorch model
#
# `apas` takes any `torch.nn.Module`: it never writes to it, and asks it with shifted parameters instead. This
# notebook trains a small module, asks how far it may move, fine-tunes it, and looks which explanations are still
# right.

# %%
import copy

import numpy as np
import torch

import apas
from apas.datasets import NUMERIC, make_loans

torch.manual_seed(0)
torch.set_num_threads(1)
features = list(NUMERIC)
loans = make_loans(1500, rng=0)
low, high = loans[features].min().to_numpy(), loans[features].max().to_numpy()


def tensors(table):
    """Rows scaled to 0 to 1, and the decisions."""
    rows = (table[features].to_numpy() - low) / (high - low)
    return torch.tensor(rows, dtype=torch.float64), torch.tensor(table["approved"].to_numpy(), dtype=torch.float64)


def train(module, table, steps, rate):
    """Some steps of Adam over the whole table."""
    X, y = tensors(table)
    optimizer = torch.optim.Adam(module.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        torch.nn.functional.binary_cross_entropy_with_logits(module(X)[:, 0], y).backward()
        optimizer.step()
    return module.eval()


module = torch.nn.Sequential(torch.nn.Linear(len(features), 12), torch.nn.SiLU(), torch.nn.Linear(12, 1)).double()
train(module, loans, 300, 0.02)

# %% [markdown]
# The last layer gives a *logit*: a number that is above 0 for class 1. That cannot be seen from the module, and a
# probability taken for a logit would make every row look safe, so `apas` wants to be told.

# %%
model = apas.as_model(module, output="logit", feature_names=features)
model

# %% [markdown]
# ## Explanations
#
# Take rejected applicants, and raise their income until the model accepts them: once just so, and once 30 % further.
# (`apas.generate` searches for changes itself. Explanations may come from anywhere.)

# %%
X, _ = tensors(loans)
rejected = X[model.margin(X.numpy(), 1) < 0].numpy()[:6]
income = features.index("income")


def raised(rows, extra):
    """The least income at which each row is accepted, and a part of the raise more; without rows that never are."""
    answers = []
    for row in rows:
        tried = np.repeat(row[None], 200, axis=0)
        tried[:, income] = np.linspace(row[income], 1.5, 200)
        accepted = model.margin(tried, 1) >= 0
        if accepted.any():
            answer = tried[accepted.argmax()].copy()
            answer[income] += extra * (answer[income] - row[income])
            answers.append(answer)
    return np.array(answers)


least, safer = raised(rejected, 0.0), raised(rejected, 0.3)
delta = 0.02
for name, rows in (("least", least), ("safer", safer)):
    print(f"{name}: {apas.certify(model, rows, delta, target=1, rng=0).summary()}")

# %% [markdown]
# How far may the module move? The answer needs no `delta`. (Fewer draws than usual keep this notebook short; they
# make the answer smaller, not less certain.)

# %%
largest = apas.max_shift(model, safer, target=1, method=apas.Sampling(n_samples=3000), rng=1)
largest

# %%
largest.plot()

# %% [markdown]
# ## Fine-tuning
#
# The copy of the module is trained a little more, on new data. `measure_shift` says how far each layer moved, and the
# audit which rows are still accepted.

# %%
new_module = train(copy.deepcopy(module), make_loans(500, drift=0.5, rng=1), 5, 0.002)
new_model = apas.as_model(new_module, output="logit", feature_names=features)
apas.measure_shift(model, new_model)

# %%
certificates = apas.certify(model, safer, delta, target=1, rng=2)
report = apas.audit(certificates, new_model, base=model, repairs=False)
print(report.summary())
report.plot()
