"""From files to tokens: reading text, normalisation, sentences, tokenizers, word vectors."""
