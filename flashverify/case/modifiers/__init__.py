"""What modifies the logits or the weights, a file each: fields, validation, text, values, draws and tensors."""
