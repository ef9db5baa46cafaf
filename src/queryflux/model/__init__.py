"""The nouns that every room speaks. Nothing here imports another room."""
