"""What ``wootz.*`` and the command line do: recipe, train, generate, evaluate, gate, report, data, doctor."""
