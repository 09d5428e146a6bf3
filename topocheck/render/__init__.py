"""Output formats: each module has its `FORMAT` and a `render(report, **options) -> str`."""
