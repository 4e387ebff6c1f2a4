"""Figures drawn as SVG: text that is escaped, colours that follow the reader's scheme, no scripts."""
