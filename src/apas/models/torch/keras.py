"""A Keras model that computes with PyTorch, as a module that can be called with other numbers in its variables."""

from __future__ import annotations

from typing import Any

from torch import nn

from apas.models.digest import canonical, own_class


class _Program:
    """A Keras model of which only the layers are used: every variable is given when it is called."""

    def __init__(self, model: Any) -> None:
        self.model, self.variables = model, list[Any]()

    def __deepcopy__(self, memo: Any) -> _Program:
        return self  # nothing in it is ever written


class KerasModule(nn.Module):
    """What is trained are parameters, under the names of their layers; statistics and the like are buffers."""

    def __init__(self, model: Any, not_dense: str) -> None:
        super().__init__()
        self._program, self._not_dense, self._places = _Program(model), not_dense, list[tuple[str, str]]()
        variables = self._program.variables
        for layer in model._flatten_layers():
            trained = {id(v) for v in layer._trainable_variables}
            own = [*layer._trainable_variables, *layer._non_trainable_variables]
            own = [v for v in own if not any(v is known for known in variables)]
            if not own:
                continue
            name = layer.name.replace(".", "_")
            while hasattr(self, name):  # a member of every module, or a layer of a nested model
                name += "_"
            self.add_module(name, holder := nn.Module())
            for variable in own:
                value, part = variable.value.detach().clone(), variable.name.replace(".", "_")
                if id(variable) in trained:
                    holder.register_parameter(part, nn.Parameter(value))
                else:
                    holder.register_buffer(part, value)
                variables.append(variable)
                self._places.append((name, part))
        self.config = repr(model.get_config()) if type(model).__module__.split(".")[0] == "keras" else None
        self.layers = [canonical(type(layer)) for layer in model._flatten_layers() if own_class(type(layer))]

    def forward(self, x: Any) -> Any:
        """What Keras computes with the numbers that the module holds now."""
        import keras

        values = [getattr(getattr(self, name), part) for name, part in self._places]
        with keras.StatelessScope(state_mapping=list(zip(self._program.variables, values, strict=True))):
            return self._program.model(x, training=False)
