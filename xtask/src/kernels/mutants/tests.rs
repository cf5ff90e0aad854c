//! The generator, the slices and the list of equivalents.
