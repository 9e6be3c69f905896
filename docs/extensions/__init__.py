"""Build the site, besides Sphinx: equations without a network, and generated pages."""
