"""Training, publishing and serving for orchard runs."""
