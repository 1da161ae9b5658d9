"""
A photo with missing pixels
===========================

Pixels are nodes, linked to the pixels beside them; the three colours are columns. 70 % of the pixels are removed. The
photo comes with scikit-learn.
"""

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_sample_image
from sklearn.feature_extraction.image import grid_to_graph

import pcfi

photo = load_sample_image("flower.jpg")[60:340:3, 180:520:3] / 255
height, width, _ = photo.shape
graph = grid_to_graph(height, width)

pixels = photo.reshape(-1, 3).copy()
pixels[np.random.default_rng(0).random(len(pixels)) < 0.7] = np.nan
result = pcfi.impute(pixels, graph)
print(result.columns)

# %%
# The expected error is large along edges in the picture, where neighbours differ. The mean of each colour would be grey
# everywhere.

error = result.expected_error.mean(axis=1).reshape(height, width)
pictures = {
    "original": photo,
    "70 % removed": np.nan_to_num(pixels, nan=1.0).reshape(photo.shape),
    "filled": result.values.reshape(photo.shape).clip(0, 1),
}
figure, axes = plt.subplots(1, 4, figsize=(12, 2.7), layout="constrained")
for axis, (title, picture) in zip(axes, pictures.items(), strict=False):
    axis.imshow(picture)
    axis.set(title=title, xticks=[], yticks=[])
shown = axes[3].imshow(error, cmap="magma", vmax=0.3)
axes[3].set(title="expected error", xticks=[], yticks=[])
figure.colorbar(shown, ax=axes[3], shrink=0.8, extend="max")
plt.show()
