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
# # A gate where models are promoted
#
# In January a model was certified, and applicants were told what would get them a loan. In March somebody wants to
# promote a retrained model. MLflow asks apas whether it keeps what was promised.

# %%
import logging
import warnings

warnings.filterwarnings("ignore", module="mlflow|tqdm")  # what they say of their own libraries
import mlflow
import numpy as np
import pandas as pd
from sklearn.linear_model import LogisticRegression

import apas

logging.getLogger("mlflow").setLevel(logging.ERROR)
mlflow.set_tracking_uri("sqlite:///mlflow.db")
draw = np.random.default_rng(0)
table = pd.DataFrame(draw.normal(size=(400, 3)), columns=["income", "debt", "savings"])
approved = (table["income"] - table["debt"] + 0.5 * table["savings"] > 0).astype(int)
january = LogisticRegression().fit(table, approved)
offers = table[january.predict_proba(table)[:, 1] > 0.9]
promises = apas.certify(january, offers, 0.2, target=1, method="interval")
apas.save_certificates(promises, "promises.json")
print(promises.summary())

# %% [markdown]
# ## Ten lines that block a bad model


# %%
def may_be_promoted(candidate):
    """The counts of an audit that breaks nothing; else an error of MLflow."""
    with mlflow.start_run():
        uri = mlflow.sklearn.log_model(candidate, name="model", input_example=table[:2]).model_uri
        result = mlflow.models.evaluate(
            uri, table.assign(approved=approved), targets="approved", model_type="classifier", evaluators="apas",
            evaluator_config={"promises": "promises.json", "base": january},
        )  # fmt: skip
        none_broken = {"promises_broken": mlflow.models.MetricThreshold(threshold=0, greater_is_better=False)}
        mlflow.validate_evaluation_results(validation_thresholds=none_broken, candidate_result=result)
        return result.metrics


# %% [markdown]
# A model that was fitted to nearly the same table passes:

# %%
good = LogisticRegression().fit(table[20:], approved[20:])
print("promoted:", may_be_promoted(good))

# %% [markdown]
# One that somebody fitted to wrong labels does not:

# %%
bad = LogisticRegression().fit(table, (table["debt"] < 0.2).astype(int))
try:
    may_be_promoted(bad)
except mlflow.exceptions.MlflowException as error:
    print("blocked:", str(error).split("\n")[0][:200])
