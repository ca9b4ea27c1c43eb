"""One small script per figure; `python -m experiments` runs them all (see README.md here)."""
