"""Training of the common networks: node classification and link prediction."""
