"""The report: one HTML file that needs nothing else, and a Markdown summary for CI; projections of the result."""
