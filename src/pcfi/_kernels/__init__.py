"""Compiled kernels: free functions that take arrays and fill preallocated arrays.

Kernels do not validate their arguments and know nothing of `Problem` or any other class of the library. The stages
(`pcfi.stages`) prepare the arrays and hand the kernels to threads. Most kernels work on blocks: 64 bytes per node, one
channel per lane (see `blocks`).

Foundation
    compiling             the decorator of all kernels, and their cache on disk
    threads               run tasks on a pool of threads
    thread_team           several threads inside one kernel, with barriers
    vectors               a row of a block as a vector register: load, store, arithmetic
    csr_graph             the graph as kernels take it, and the sum over the neighbours of a node
    blocks                layout of a block; gather channels into a block and scatter them back

Reading the features
    channel_stats         known count, range, sum and pattern key of each channel
    hop_relaxation        hops of 64 patterns at a time, as bytes
    hop_search            the same by breadth-first search, for deep graphs

Stage 1
    steps                 a fixed number of diffusion steps
    initial_guess         where the steady-state solver starts
    leaf_elimination      nodes that can be removed from the system before it is solved
    conjugate_gradients   the steady state of a block
    sweeps                the steady state by Gauss-Seidel sweeps, for directed and very deep graphs
    influence             influence matrices: residuals by row, and writing a product into the features
    row_groups            the passes of stage 1 over a part of the rows of a graph

Other stages
    channel_propagation   stage 2
    neighbor_mean         mean of the known neighbours
    neighbor_spread       spread among them, for expected errors
    edge_sorting          edges in any order to compressed sparse rows, in memory and larger than memory
    id_table              a hash table of ids: the row of each id
    error_fields          random fields of errors: weights of steps, and a step of a Chebyshev recurrence
    locality_order        an order of the nodes in which neighbours are near each other

`reference` has a slow implementation of each in plain numpy; tests compare the kernels with it.
"""
