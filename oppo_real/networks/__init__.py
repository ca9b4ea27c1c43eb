"""Models and what they compute: loading, caches, decoding, scoring; no commands and no clocks."""
