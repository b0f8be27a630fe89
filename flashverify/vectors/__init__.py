"""`flashverify vectors`: cases with exact outputs and bounds in files, for suites in CUDA, HIP, C++ or Rust.

`answers` says what is asked of every element, `contents` names the tensors of a file, `safetensors_file` and `hex_file` write them,
`folder` writes a folder with its manifest, `command` is the command line. `reader` holds what reads them in C++.
"""
