"""Linear and mixed-integer programs: one builder, one solver."""
