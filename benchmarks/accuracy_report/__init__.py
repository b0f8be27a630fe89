"""How accurate kernels are, over all elements of drawn cases: `measuring` judges, `record` keeps, `picture` and `page` show."""
