"""Mathematics of locally linear embedding: exact neighbours, barycentric weights, and the smallest eigenvectors."""
