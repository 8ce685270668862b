"""An option that several commands have reads the same in all of them."""

from __future__ import annotations

from collections import defaultdict

import typer.main

from apas.cli.app import app

#: What differs on purpose.
OWN = {"method", "coverage", "samples", "time_limit"}


def test_shared_options_read_the_same():
    commands = typer.main.get_command(app).commands
    texts = defaultdict(set)
    for name in ("certify", "max-shift", "shift"):
        for parameter in commands[name].params:
            texts[parameter.name].add((tuple(parameter.opts), parameter.help, str(parameter.default)))
    shared = {name: found for name, found in texts.items() if name not in OWN}
    assert {"target", "seed", "shifts", "relative", "only", "jobs", "as_json"} <= set(shared)
    assert {name: len(found) for name, found in shared.items() if len(found) > 1} == {}
    assert all(text for found in texts.values() for _, text, _ in found)
