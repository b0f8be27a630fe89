"""The parts of the mask, a file each: fields, validation, predicate, text, draws, simplifications and tensors."""
