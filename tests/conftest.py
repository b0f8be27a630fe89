import os

# Small problems on busy cores: a second thread costs far more than it gives. Read when torch is first imported.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Triton reads this when it is first imported; without a GPU its interpreter runs the kernels.
if not os.path.exists("/dev/nvidiactl"):
    os.environ.setdefault("TRITON_INTERPRET", "1")
