"""What is done to text before it is tokens: files, sentences, offsets, tokenizers, word vectors."""
