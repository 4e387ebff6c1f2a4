"""The paper's tables, figures and claims. Each declares the runs that it needs, and draws from their results."""
