"""What the site is made with besides Sphinx: equations without a network, and pages that are made."""
