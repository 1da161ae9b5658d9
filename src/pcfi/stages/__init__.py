"""The stages of an imputation, each a function on a `Problem`: hops, diffusion, channel propagation, neighbour mean."""
