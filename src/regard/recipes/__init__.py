"""Recipe = task + data + tokenizer + model + training + search; the YAML files that ship."""
