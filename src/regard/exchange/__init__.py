"""Exchange with the Hugging Face world: folders as `transformers` reads and writes them."""
