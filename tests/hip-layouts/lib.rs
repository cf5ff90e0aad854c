//! Compares the declarations in `backend-hip/src/runtime` with those of AMD: all of it is in `tests/`.
