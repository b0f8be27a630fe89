"""Device code: masks, schedule, softmax and addresses once each, and the four kernels that share them."""
