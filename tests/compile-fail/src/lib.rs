//! Nothing: the programs are in `programs/`, and the test that compiles them in `tests/`.
