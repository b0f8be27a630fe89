"""The public functions, for people who call flashverify from Python; `import flashverify` shows them.

`options` holds the arguments that `oracle` and `assert_attention_close` share, `layouts` and `tensors` read them, `arguments` makes a
problem of them. `float64` is the oracle, `assertion` the assertion with its `hints`. `judging` judges and counts one case, `drawing`
gives cases, `interpreting` holds the corrected interpreter. No module has the name of a public function.
"""
