"""The fleet under a virtual clock: the product's own code over models of what it talks to, by seed."""
