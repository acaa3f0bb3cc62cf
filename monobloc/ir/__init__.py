"""The tensor graph: types, nodes, text form, verifier, interpreter, index-space expressions."""
