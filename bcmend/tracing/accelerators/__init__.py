"""What back ends do with graphs on an accelerator that they cannot do with mended ones."""
