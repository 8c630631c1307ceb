"""Programs of full size on a GPU: eager, stock and mended, with and without CUDA graphs.

========  =====================================================================================
programs  what is measured: an encoder-decoder, a molecule encoder, experts, layers that are dropped
measure   one program in one form, in a process of its own
__main__  all of them, as a table
========  =====================================================================================
"""
